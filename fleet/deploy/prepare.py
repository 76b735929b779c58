"""From a deployment to launches: the facts of host, model and build, then the compiler."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fleet.compiler.compile_deployment import compile_deployment, image_of
from fleet.deploy.build_image import ensure_image
from fleet.deploy.host_files import wanted_draft
from fleet.deploy.image_build import image_build
from fleet.deploy.model_files import (
    ModelOnDisk,
    ensure_model,
    find_model,
    models_folder,
    read_model,
)
from fleet.effects.installed import embedded_build
from fleet.effects.machine import LOCAL
from fleet.errors import OutsideError, UserError
from fleet.facts.known_builds import build_facts
from fleet.observe.probe_host import probe_host
from fleet.profiles.resolve_deployment import apply_tuned

if TYPE_CHECKING:
    from fleet.compiler.launch_config import LaunchConfig
    from fleet.deploy.bring_up import Progress
    from fleet.deploy.rim import Rim
    from fleet.facts.build_facts import BuildFacts
    from fleet.facts.host_facts import HostFacts
    from fleet.facts.model_facts import ModelFacts
    from fleet.profiles.kinds import Deployment, RuntimeName

# by name: only deployments on other hosts need SSH and all that goes with it
_HOSTS = "fleet.deploy.prepare_hosts"

VOCABULARY_APART = 128


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """A deployment compiled for this machine, with what it was compiled from.

    `model` is None when the model is not here yet (only after `here_only`).
    """

    deployment: Deployment
    runtime: RuntimeName
    launches: tuple[LaunchConfig, ...]
    host: HostFacts
    build: BuildFacts
    model: ModelOnDisk | None


def prepare(
    deployment: Deployment,
    *,
    runtime: RuntimeName,
    rim: Rim,
    progress: Progress,
    use_tuned: bool = True,
    here_only: bool = False,
) -> Prepared:
    """Compile `deployment` for this machine; with `here_only` nothing is fetched.

    Raises `UserError`, `CannotExpress`, `OutsideError`.
    """
    if runtime == "ansible":
        away: Prepared = importlib.import_module(_HOSTS).prepared_on_hosts(
            deployment, rim=rim, progress=progress
        )
        return away
    engine = deployment.engine.engine
    if runtime == "embedded" and engine != "embedded":
        fix = "use `--runtime podman`, or `--set engine=embedded`"
        raise UserError(f"the runtime `embedded` has no {engine}", where=deployment.name, fix=fix)
    host = probe_host(rim.commands, LOCAL, models_dir=str(rim.folders.cache.parent))
    model = (
        find_model(deployment.model, rim)
        if here_only
        else ensure_model(deployment.model, rim=rim, progress=progress)
    )
    draft = wanted_draft(deployment)
    if draft is not None and not here_only:
        ensure_model(draft, rim=rim, progress=progress)
    deployment = replace(deployment, runtime=runtime)
    if runtime == "podman" and not here_only:
        ensure_image(deployment, rim=rim, progress=progress)
    build = engine_build(deployment, rim)
    if model is not None:
        # from here on the model is a file, wherever it came from
        local = replace(deployment.model, path=str(model.path), repo=None, package=None, files=())
        deployment = replace(deployment, model=local)
        if use_tuned:
            deployment = apply_tuned(
                deployment, fingerprint=host.fingerprint, build=build.name, digest=model.digest
            )
    launches = compile_deployment(
        deployment,
        hosts={LOCAL: host},
        model=model.facts if model else None,
        build=build,
        models_dir=str(models_folder(rim)),
    )
    if model is not None and not here_only:
        for launch in launches:
            check_draft(dict(launch.settings).get("draft_model"), model.facts)
    return Prepared(
        deployment=deployment,
        runtime=runtime,
        launches=launches,
        host=host,
        build=build,
        model=model,
    )


def check_draft(path: object, target: ModelFacts) -> None:
    """Refuse a draft that is missing, damaged, or has another vocabulary. Raises `UserError`.

    The engine wants the same kind of tokenizer and sizes at most 128 apart (speculative.cpp).
    """
    if not path:
        return
    draft = read_model(Path(str(path))).facts
    apart = abs(draft.n_vocab - target.n_vocab)
    if draft.tokenizer != target.tokenizer or apart > VOCABULARY_APART:
        message = (
            f"the draft has another vocabulary ({draft.tokenizer}, {draft.n_vocab} tokens) "
            f"than the model ({target.tokenizer}, {target.n_vocab})"
        )
        raise UserError(message, where=str(path), fix="choose a draft of the same model family")


def engine_build(deployment: Deployment, rim: Rim | None = None) -> BuildFacts:
    """Return the facts of the build that will run: with `rim` the image's own help wins.

    Raises `OutsideError` when the embedded engine is not installed.
    """
    engine = deployment.engine
    if engine.engine != "embedded":
        image = image_of(deployment)
        found = image_build(image, engine.engine, rim) if image and rim else None
        return found or build_facts(engine.engine, engine.build)
    number = embedded_build()
    if number is None:
        fix = "`pip install 'fleet[demo]'`, or `--runtime podman`"
        raise OutsideError("the embedded engine is not installed", where=engine.name, fix=fix)
    return build_facts("embedded", number)

"""Prime a server that runs already: after `restart` or `rollback`, or when asked."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from fleet.deploy.launch_memory import careful_memory
from fleet.deploy.look import client_of
from fleet.deploy.model_files import find_model
from fleet.deploy.prime import prime
from fleet.effects.files import read_text
from fleet.effects.installed import embedded_build
from fleet.errors import UserError
from fleet.facts.architecture_records import model_facts_from_record
from fleet.facts.known_builds import build_facts

if TYPE_CHECKING:
    from fleet.deploy.prime import PrimeReport
    from fleet.deploy.rim import Rim
    from fleet.facts.build_facts import BuildFacts
    from fleet.facts.model_facts import ModelFacts
    from fleet.observe.observation import RunningServer
    from fleet.profiles.kinds import Deployment, ModelProfile


def prime_running(
    deployment: Deployment, server: RunningServer, rim: Rim, *, look_before: bool = True
) -> PrimeReport:
    """Send the deployment's shared prefix to every slot of `server`; as `prime`.

    Raises `UserError` without a shared prefix, `OutsideError` when the server does not run.
    """
    if deployment.shared_prefix is None:
        fix = "give the deployment a `shared_prefix:`"
        message = "this deployment names no shared prefix"
        raise UserError(message, where=deployment.name, fix=fix)
    settings = dict(server.settings)
    return prime(
        deployment.shared_prefix,
        client_of(server, rim),
        read_text=read_text,
        memory=careful_memory(settings, shape_of(deployment.model, rim), build_of(deployment)),
        slot_files=bool(settings.get("slot_save_path")),
        look_before=look_before,
    )


def build_of(deployment: Deployment) -> BuildFacts:
    """Return what the deployment's build accepts, from the shipped table."""
    engine = deployment.engine
    number = embedded_build() if engine.engine == "embedded" else None
    return build_facts(engine.engine, number or engine.build)


def shape_of(model: ModelProfile, rim: Rim) -> ModelFacts | None:
    """Return the model's shape from its file, else from its record, else None."""
    with suppress(UserError):
        if (disk := find_model(model, rim)) is not None:
            return disk.facts
    return model_facts_from_record(model.architecture) if model.architecture else None

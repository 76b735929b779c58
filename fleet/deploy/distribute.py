"""Bring model and image to all hosts that lack them: at once, and each file the short way."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from fleet.deploy.copy_between_hosts import lent
from fleet.deploy.distribute_image import bring_image, image_missing
from fleet.deploy.distribute_model import bring_model, copies_of, missing_on
from fleet.effects.ssh import on_each
from fleet.errors import FleetError, OutsideError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet.compiler.launch_config import LaunchConfig
    from fleet.deploy.ansible_host import HostGroup
    from fleet.deploy.bring_up import Progress
    from fleet.deploy.copy_between_hosts import Loan
    from fleet.deploy.look_at_host import HostSight
    from fleet.deploy.prepare_hosts import PreparedHosts
    from fleet.deploy.rim import Rim
    from fleet.profiles.kinds import Deployment


def distribute(
    prepared: PreparedHosts,
    launches: Mapping[str, LaunchConfig],
    *,
    group: HostGroup,
    rim: Rim,
    progress: Progress,
) -> None:
    """Give every host of `launches` what it needs, whole and checked.

    Of hosts with a fabric one gets the model from here and lends it to the others. Raises
    the first host's error after all have ended.
    """
    model = prepared.model
    copies = copies_of(model.files, rim=rim, progress=progress) if model else ()
    fabric = {host.name: host.fabric_address for host in prepared.deployment.hosts}

    def bring(host: str, loan: Loan | None = None) -> None:
        sight, launch, commands = prepared.sights[host], launches[host], group.commands(host)
        if prepared.deployment.engine.engine == "vllm" and not sight.filled:
            raise _no_folder(prepared.deployment, sight)
        if launch.model_path and missing_on(sight, copies):
            bring_model(commands, sight, copies, progress=progress, loan=loan)
        if launch.image and image_missing(sight, launch.image):
            bring_image(commands, sight, launch.image, rim=rim, progress=progress)

    lacking = [
        host
        for host, launch in launches.items()
        if fabric.get(host) and launch.model_path and missing_on(prepared.sights[host], copies)
    ]
    having = [
        name
        for name, sight in prepared.sights.items()
        if copies and fabric.get(name) and not missing_on(sight, copies)
    ]
    lender, borrowers = split(having, lacking)
    first = [host for host in launches if host not in borrowers]
    _raise_first(on_each(first, bring, forks=group.forks))
    if not lender or not borrowers:
        return
    names = [copy.name for copy in copies]
    folder, address = prepared.sights[lender].folder, fabric[lender]
    loan_of = lent(group.commands(lender), address, folder, names) if address else nullcontext()
    with loan_of as loan:
        _raise_first(on_each(borrowers, lambda host: bring(host, loan), forks=group.forks))


def split(having: Sequence[str], lacking: Sequence[str]) -> tuple[str | None, tuple[str, ...]]:
    """Return who lends and who borrows: without a lender the first that lacks it gets it first."""
    if having:
        return having[0], tuple(lacking)
    return (lacking[0], tuple(lacking[1:])) if len(lacking) > 1 else (None, ())


def _raise_first(answers: Mapping[str, FleetError | None]) -> None:
    for answer in answers.values():
        if answer is not None:
            raise answer


def _no_folder(deployment: Deployment, sight: HostSight) -> OutsideError:
    """Return the error for a model that vLLM reads as a folder, which fleet does not copy."""
    source = deployment.model.repo or deployment.model.name
    fix = f"`hf download {source} --local-dir {sight.folder}` there"
    return OutsideError(f"the model is not in {sight.folder}", where=sight.name, fix=fix)

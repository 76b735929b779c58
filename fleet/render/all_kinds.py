"""All that can be rendered of a deployment, by kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.errors import UserError
from fleet.render.compose import render_compose
from fleet.render.containerfile import render_containerfile
from fleet.render.inventory import render_inventory
from fleet.render.llama_swap import render_llama_swap
from fleet.render.podman_line import render_podman
from fleet.render.quadlet import render_quadlet
from fleet.render.router_preset import render_preset
from fleet.render.runbook import render_runbook

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fleet.compiler.launch_config import LaunchConfig
    from fleet.profiles.kinds import Deployment
    from fleet.render.artefact import Artefact
    from fleet.render.runbook import Remedy

_CONTAINERS = frozenset({"quadlet", "podman", "compose"})


def render_kinds(
    deployment: Deployment,
    launches: Sequence[LaunchConfig],
    kinds: Sequence[str],
    *,
    strict: bool = True,
    remedies: Sequence[Remedy] = (),
) -> tuple[Artefact, ...]:
    """Return the files of every kind; a kind without meaning here raises only if `strict`.

    `remedies` go into the runbook: what to do for each finding of `diagnose`.
    """
    found: list[Artefact] = []
    for kind in kinds:
        try:
            if kind == RUNBOOK:
                found.append(render_runbook(deployment, launches, remedies=remedies))
            else:
                found += _render(kind, deployment, launches)
        except UserError:
            if strict:
                raise
    return tuple(found)


def _render(
    kind: str, deployment: Deployment, launches: Sequence[LaunchConfig]
) -> Sequence[Artefact]:
    contained = [launch for launch in launches if launch.image]
    if kind in _CONTAINERS and not contained:
        fix = f"`--set runtime=podman` with an engine that has an image, or not `{kind}`"
        raise UserError("nothing of it runs in a container", where=kind, fix=fix)
    return _RENDERERS[kind](deployment, launches)


_RENDERERS: dict[str, Callable[[Deployment, Sequence[LaunchConfig]], Sequence[Artefact]]] = {
    "containerfile": lambda deployment, _: (render_containerfile(deployment.engine),),
    "quadlet": lambda _, launches: render_quadlet(launches),
    "podman": lambda _, launches: render_podman([it for it in launches if it.image]),
    "inventory": lambda deployment, launches: (render_inventory(deployment, launches),),
    "preset": lambda _, launches: render_preset(launches),
    "llama-swap": lambda _, launches: render_llama_swap(launches),
    "compose": lambda _, launches: render_compose(launches),
}
RUNBOOK = "runbook"
KINDS = (*_RENDERERS, RUNBOOK)

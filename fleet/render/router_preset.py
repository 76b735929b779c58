"""A preset for llama-server's router mode: one section for each model it may load.

Keys are long option names without dashes; an unknown one stops the router, so the names
are those of the build. Where it listens and its keys are the router's own business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.errors import UserError
from fleet.facts.known_builds import build_facts
from fleet.render.artefact import Artefact

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fleet.compiler.launch_config import LaunchConfig
    from fleet.facts.build_facts import BuildFacts

_ROUTER = frozenset([
    "--host", "--port", "--api-key-file", "--ssl-cert-file", "--ssl-key-file", "-a", "--alias",
    "--metrics", "--cors-origins", "--no-cors-credentials", "-to", "--timeout",
])  # fmt: skip


def render_preset(launches: Sequence[LaunchConfig]) -> tuple[Artefact, ...]:
    """Return `preset/<host>.ini` for hosts that run llama-server.

    Raises `UserError` when none does: other engines have no router.
    """
    ours = [it for it in launches if it.engine in {"llama.cpp", "embedded"} and it.role == "server"]
    if not ours:
        engine = launches[0].engine if launches else "nothing"
        fix = "render `llama-swap` instead, which starts any server"
        raise UserError(f"{engine} has no router mode", where="preset", fix=fix)
    return tuple(Artefact(path=f"preset/{launch.host}.ini", text=_text(launch)) for launch in ours)


def _text(launch: LaunchConfig) -> str:
    build = build_facts("llama.cpp", launch.build)
    lines = ["version = 1", "", f"[{launch.deployment}]"]
    lines += [f"{key} = {value}" for key, value in _keys(launch, build)]
    return "\n".join(lines) + "\n"


def _keys(launch: LaunchConfig, build: BuildFacts) -> Iterator[tuple[str, str]]:
    for name, value in launch.options():
        flag = build.flags.get(name)
        if name in _ROUTER or flag is None:
            continue
        long = next((it for it in flag.names if it.startswith("--")), flag.names[0])
        if name in flag.negations:
            yield long.lstrip("-"), "false"
        else:
            yield long.lstrip("-"), "true" if value is None else value

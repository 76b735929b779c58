"""`ggml-rpc-server`: a host's devices lent to a head over the fabric."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.errors import CannotExpress

if TYPE_CHECKING:
    from fleet.facts.build_facts import BuildFacts

_RENAMED = (9093, 9538)  # `rpc-server` before


def rpc_worker_argv(address: str, port: int, threads: int) -> list[str]:
    """Return the arguments; the worker listens on the fabric address alone."""
    return ["--host", address, "--port", str(port), "-t", str(threads)]


def rpc_program(build: BuildFacts) -> str:
    """Return the program's name in this build. Raises `CannotExpress` where it changed."""
    renamed = build.changed(*_RENAMED)
    if renamed is None:
        message = f"{build.name}: the RPC worker was renamed between b9093 and b9538"
        raise CannotExpress(message, where="topology", fix="use b9538 or later")
    return "ggml-rpc-server" if renamed else "rpc-server"

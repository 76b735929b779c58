"""Send the output of a program here into a program on a host."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from fleet.effects.commands import CommandResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.effects.ssh import SshCommands


def pipe_into(source: Sequence[str], commands: SshCommands, sink: Sequence[str]) -> CommandResult:
    """Return the sink's result, or the source's when that failed. Raises `HostUnreachable`."""
    with subprocess.Popen(
        source, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None  # noqa: S101, PT018 - pipes were asked for
        received = commands.send(sink, process.stdout)
        process.stdout.close()
        said = process.stderr.read().decode(errors="replace")
        code = process.wait()
    if received.ok and code:
        return CommandResult(argv=tuple(source), code=code, stdout="", stderr=said)
    return received

"""Bring an engine's image to a host: streamed from here, else pulled there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.effects.pipe import pipe_into
from fleet.errors import OutsideError

if TYPE_CHECKING:
    from fleet.deploy.bring_up import Progress
    from fleet.deploy.look_at_host import HostSight
    from fleet.deploy.rim import Rim
    from fleet.effects.ssh import SshCommands


# A sender that lost its power or its network never says so: after this silence podman sees the
# end of half an archive, and clears it away. Saving a large image may be silent for minutes.
SILENCE_S = 600.0
LOAD = """
import os, select, subprocess, sys
child = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, bufsize=0)
block = b"-"
try:
    while block and select.select([0], [], [], float(sys.argv[1]))[0]:
        block = os.read(0, 1 << 20)
        rest = block
        while rest:
            rest = rest[child.stdin.write(rest):]
except BrokenPipeError:
    pass
child.stdin.close()
code = child.wait()
sys.exit(code or (1 if block else 0))
"""


def load_words(
    silence_s: float = SILENCE_S, load: tuple[str, ...] = ("podman", "load", "--quiet")
) -> tuple[str, ...]:
    """Return the words that load what comes on stdin, until its end or a silence."""
    return ("python3", "-c", LOAD, str(silence_s), *load)


def image_missing(sight: HostSight, image: str) -> bool:
    """Whether the host has no image of that name."""
    names = {image, f"{image}:latest", f"docker.io/library/{image}", f"docker.io/{image}"}
    return not names & sight.images


def bring_image(
    commands: SshCommands, sight: HostSight, image: str, *, rim: Rim, progress: Progress
) -> None:
    """Load `image` on the host; an interrupted load leaves nothing behind and is done again.

    Raises `OutsideError` naming the host.
    """
    if rim.commands.run(("podman", "image", "exists", image)).ok:
        progress(f"{sight.name}: loading {image}")
        loaded = pipe_into(("podman", "save", "--quiet", image), commands, load_words())
    elif image.startswith("localhost/"):
        message = f"the image {image} is neither there nor here"
        raise OutsideError(message, where=sight.name, fix="`fleet build NAME` makes it here first")
    else:
        progress(f"{sight.name}: pulling {image}")
        loaded = commands.run(("podman", "pull", "--quiet", image))
    if not loaded.ok:
        last = (loaded.stderr or loaded.stdout).strip().splitlines()[-1:] or ["no word why"]
        full = "no space left" in last[0].lower()
        fix = "free some space there, see `df -h`" if full else "run the command again"
        message = "its disk is full" if full else f"the image did not arrive: {last[0]}"
        raise OutsideError(message, where=sight.name, fix=fix)

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
        loaded = pipe_into(
            ("podman", "save", "--quiet", image), commands, ("podman", "load", "--quiet")
        )
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

"""Build the image of a deployment's engine with podman, from its rendered Containerfile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet.compiler.compile_deployment import image_of
from fleet.effects.files import write_atomically
from fleet.effects.podman_causes import explain
from fleet.errors import UserError
from fleet.render.containerfile import image_and_containerfile

if TYPE_CHECKING:
    from fleet.deploy.bring_up import Progress
    from fleet.deploy.rim import Rim
    from fleet.profiles.kinds import Deployment


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltImage:
    """An image that fleet built, and how long that took in seconds."""

    image: str
    id: str
    seconds: float
    log_path: str


def ensure_image(deployment: Deployment, *, rim: Rim, progress: Progress) -> None:
    """Build the engine's image, or pull the one it names, if it is not here.

    Raises `UserError` without either, `OutsideError` when that fails.
    """
    image = image_of(deployment)
    if image is None:
        fix = "name an `image:` or a `containerfile:` in the engine profile"
        raise UserError("podman needs an image", where=deployment.engine.name, fix=fix)
    if rim.commands.run(("podman", "image", "exists", image)).ok:
        return
    if deployment.engine.image is None:
        build_image(deployment, rim=rim, progress=progress)
        return
    progress(f"pulling {image}")
    pulled = rim.commands.run(("podman", "pull", "--quiet", image))
    if not pulled.ok:
        raise explain(pulled.stderr, where=image)


def build_image(deployment: Deployment, *, rim: Rim, progress: Progress) -> BuiltImage:
    """Build the image; layers that are there already are used again.

    Raises `UserError` when the engine has no Containerfile, `OutsideError` when podman is
    missing or the build fails (cause and log named).
    """
    image, artefact = image_and_containerfile(deployment)
    folder = rim.folders.cache / "builds" / deployment.engine.name
    file, log = folder / "Containerfile", rim.folders.state / "logs" / "build.log"
    write_atomically(file, artefact.text)
    progress(f"building {image}; the first time takes minutes")
    began = rim.clock.monotonic()
    # the host's network: a build needs names and packages, and no back end for bridges
    words = ("podman", "build", "--network", "host", "--tag", image, "--file", str(file))
    done = rim.commands.run((*words, str(folder)))
    write_atomically(log, done.stdout + done.stderr, mode=0o600)
    if not done.ok:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise explain(" ".join(lines[-3:]), where=f"{image} (log: {log})")
    return BuiltImage(
        image=image,
        id=done.stdout.strip().splitlines()[-1][:12],
        seconds=rim.clock.monotonic() - began,
        log_path=str(log),
    )

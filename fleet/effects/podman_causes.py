"""What podman says, what it means, and what mends it."""

from __future__ import annotations

from fleet.effects.causes import Cause, cause_of
from fleet.errors import OutsideError

# the first that matches wins
CAUSES = (
    Cause(r"^podman: not found|podman: command not found", "podman is not installed",
          "install it (`apt-get install podman`), or use `--runtime embedded`"),
    Cause(r"RLIMIT_\w+.*(?:operation not permitted|permission denied)|setrlimit",
          "podman's default limits are above what this machine allows",
          "in /etc/containers/containers.conf: `[containers]` `default_ulimits = "
          '["nofile=1024:1024", "nproc=1024:1024"]`'),
    Cause(r"cgroups in hybrid mode not supported",
          "crun does not run on hybrid cgroups",
          'install runc and set `[engine]` `runtime = "runc"` in containers.conf'),
    Cause(r"no cgroup mount found|cgroup.*(?:no such file|not mounted)",
          "the cgroup file systems are not mounted here", "mount /sys/fs/cgroup, then try again"),
    Cause(r"image not known|no such image|manifest unknown|unable to find image",
          "the image is missing", "`fleet build NAME` builds it, or `podman pull` it"),
    Cause(r"newuidmap|/etc/subuid|cannot set up namespace|cannot re-exec process",
          "rootless podman lacks sub-uids for this user",
          "install uidmap, then `usermod --add-subuids 100000-165535 --add-subgids ... USER`"),
    Cause(r"bind: address already in use|rootlessport listen",
          "the port is in use", "choose another `port:`, or end what listens there"),
    Cause(r"runtime \S+ not found|could not find .*(?:crun|runc)|oci runtime.*not found",
          "no container runtime is installed", "install crun or runc"),
    Cause(r"slirp4netns|pasta|/dev/net/tun",
          "an ordinary user's containers have no network of their own here",
          "install slirp4netns or passt and `chmod 666 /dev/net/tun`, or `--set network=host`"),
    Cause(r"netavark|could not find .*network|cni",
          "podman's network back end is missing", "install netavark and aardvark-dns"),
    Cause(r"unresolvable CDI devices|could not resolve device",
          "the GPU is not known to podman",
          "`nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`"),
    Cause(r"permission denied", "podman is not allowed to do this",
          "use a socket of your own, or run as the user that owns it"),
    Cause(r"no space left", "the disk is full", "free some space: `podman system df`, `df -h`"),
)  # fmt: skip


class PodmanFailed(OutsideError):
    """Podman said no; the message names the cause when it is a known one."""

    kind = "podman"


def explain(said: str, *, where: str | None = None) -> PodmanFailed:
    """Return the error for what podman said."""
    cause = cause_of(said, CAUSES)
    if cause:
        return PodmanFailed(f"{cause.message} ({short(said)})", where=where, fix=cause.fix)
    return PodmanFailed(short(said), where=where, fix="`fleet doctor` looks for the cause")


def short(said: str) -> str:
    """Return what was said in one line of bearable length."""
    return " ".join(said.split())[:300]

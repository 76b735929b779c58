"""A podman that works where the tests run, apart from the user's own containers.

Run `eval "$(python tests/support/podman_env.py)"` to have it in a shell: the same images
(`docker.io/library/debian:forky-slim` and the engine's, built when missing) and settings as
in the tests. Only the tests need this; fleet itself uses podman as the machine has it set up.

Where a machine withholds CAP_SYS_RESOURCE, podman's own limits are refused; where cgroups
are not unified, crun is. `containers.conf` then names lower limits and runc.
"""

from __future__ import annotations

import hashlib
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.cache import Missing, alone, cache_folder

BASE_IMAGE = "docker.io/library/debian:forky-slim"
ENGINE_IMAGE = "localhost/fleet-test-llama:forky"
PACKAGES = (
    "podman", "runc", "crun", "netavark", "aardvark-dns", "uidmap", "iproute2", "iptables",
    "openssh-server", "openssh-client", "mmdebstrap", "rsync",
)  # fmt: skip
CAP_SYS_RESOURCE = 24
NETAVARK = "/usr/lib/podman:/usr/libexec/podman"
RPC_IMAGE = "localhost/fleet-test-rpc:b10434"
RPC_CONTAINERFILE = f"""\
FROM {ENGINE_IMAGE}
COPY programs /opt/llama
ENV LD_LIBRARY_PATH=/opt/llama PATH=/opt/llama:/usr/bin:/bin LLAMA_CACHE=/tmp
"""
ENGINE_CONTAINERFILE = f"""\
FROM {BASE_IMAGE}
RUN apt-get update \\
 && apt-get install -y --no-install-recommends llama.cpp curl numactl ca-certificates \\
 && rm -rf /var/lib/apt/lists/*
"""


def podman_environment() -> dict[str, str]:
    """Return the variables that point podman at the tests' own storage and settings."""
    folder = cache_folder() / "podman"
    folder.mkdir(exist_ok=True)
    settings = folder / "containers.conf"
    settings.write_text(containers_conf())
    storage = folder / "storage.conf"
    run = Path("/run" if os.geteuid() == 0 else os.environ.get("XDG_RUNTIME_DIR", "/tmp"))  # noqa: S108 - podman's own fallback
    mark = hashlib.sha256(str(folder).encode()).hexdigest()[:8]
    storage.write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/storage"\n'
        f'runroot = "{run}/fleet-tests-{mark}"\n'
    )
    return {"CONTAINERS_CONF": str(settings), "CONTAINERS_STORAGE_CONF": str(storage)}


def containers_conf() -> str:
    """Return the settings that this machine needs, empty where podman works by itself."""
    # podman of Debian 12 would complain about a leftover CNI set-up on every call
    lines = (
        ["[network]", 'network_backend = "netavark"']
        if shutil.which("netavark", path=NETAVARK)
        else []
    )
    if not _may_raise_limits():
        _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
        _, processes = resource.getrlimit(resource.RLIMIT_NPROC)
        limits = f'"nofile={min(files, 1024)}:{min(files, 1024)}"'
        limits += f', "nproc={_at_most(processes, 4096)}:{_at_most(processes, 4096)}"'
        lines += ["[containers]", f"default_ulimits = [{limits}]"]
    if not Path("/sys/fs/cgroup/cgroup.controllers").exists():
        lines += ["[engine]", 'runtime = "runc"', 'cgroup_manager = "cgroupfs"']
    return "\n".join(lines) + "\n"


def require_podman() -> None:
    """Raise `Missing` with the cure when podman is not here or not allowed."""
    if shutil.which("podman") is None:
        cure = f"apt-get install -y --no-install-recommends {' '.join(PACKAGES)}"
        raise Missing(f"podman is not installed: {cure}")


def ensure_base_image() -> str:
    """Make the distribution's base image from its packages, once; return its name."""
    require_podman()
    with alone("base-image"):
        if not _image_exists(BASE_IMAGE):
            archive = cache_folder() / "base.tar"
            debootstrap(archive, suite="forky")
            podman("import", "--quiet", str(archive), BASE_IMAGE)
            archive.unlink()
    return BASE_IMAGE


def ensure_engine_image() -> str:
    """Build the image with the distribution's llama-server, once; return its name."""
    ensure_base_image()
    with alone("engine-image"):
        if not _image_exists(ENGINE_IMAGE):
            folder = cache_folder() / "engine-image"
            folder.mkdir(exist_ok=True)
            (folder / "Containerfile").write_text(ENGINE_CONTAINERFILE)
            podman("build", "--network", "host", "--quiet", "--tag", ENGINE_IMAGE, str(folder))
    return ENGINE_IMAGE


def ensure_engine_archive() -> Path:
    """Save the engine's image to a file that other hosts can load, once; return its path."""
    image = ensure_engine_image()
    archive = cache_folder() / "engine-image.tar"
    with alone("engine-archive"):
        if not archive.exists():
            partial = archive.with_suffix(".partial")
            partial.unlink(missing_ok=True)
            podman("save", "--quiet", "--output", str(partial), image)
            partial.rename(archive)
    return archive


def ensure_rpc_image(programs: Path) -> str:
    """Build an image with an older llama-server and its RPC worker, once; return its name."""
    ensure_engine_image()
    with alone("rpc-image"):
        if not _image_exists(RPC_IMAGE):
            folder = cache_folder() / "rpc-image"
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(programs, folder / "programs")
            for program in ("llama-server", "ggml-rpc-server"):
                (folder / "programs" / program).chmod(0o755)
            (folder / "Containerfile").write_text(RPC_CONTAINERFILE)
            podman("build", "--network", "host", "--quiet", "--tag", RPC_IMAGE, str(folder))
    return RPC_IMAGE


def debootstrap(target: Path, *, suite: str, include: tuple[str, ...] = ()) -> None:
    """Write a minimal root of `suite` to `target`, from the mirror this machine uses itself."""
    if shutil.which("mmdebstrap") is None:
        raise Missing("mmdebstrap is not installed: apt-get install -y mmdebstrap")
    words = ["mmdebstrap", "--variant=minbase", '--aptopt=Acquire::Check-Valid-Until "false"']
    words += [f"--include={','.join(include)}"] if include else []
    _run([*words, suite, str(target), mirror()])


def mirror() -> str:
    """Return the address of the Debian mirror in this machine's own apt sources."""
    release = dict(
        line.split("=", 1)
        for line in Path("/etc/os-release").read_text().splitlines()
        if "=" in line
    )
    if release.get("ID", "").strip('"') != "debian":
        raise Missing("the engine image is made from Debian packages, and this is not Debian")
    fields = "$(REPO_URI) $(RELEASE) $(COMPONENT)"
    listed = _run(["apt-get", "indextargets", "--format", fields, "Created-By: Packages"])
    for line in listed.splitlines():
        match line.split():
            case [address, suite, "main"] if suite == release["VERSION_CODENAME"]:
                return address
    raise Missing("no Debian mirror in the apt sources of this machine")


def podman(*words: str) -> str:
    """Run podman in the tests' environment and return its output."""
    return _run(["podman", *words], environment={**os.environ, **podman_environment()})


def _image_exists(name: str) -> bool:
    environment = {**os.environ, **podman_environment()}
    done = subprocess.run(["podman", "image", "exists", name], env=environment, check=False)
    return done.returncode == 0


def _may_raise_limits() -> bool:
    status = Path("/proc/self/status").read_text()
    effective = next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff"))
    return bool(int(effective, 16) >> CAP_SYS_RESOURCE & 1)


def _at_most(limit: int, wanted: int) -> int:
    return wanted if limit == resource.RLIM_INFINITY else min(limit, wanted)


def _run(words: list[str], *, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        tail = "\n".join(done.stderr.splitlines()[-5:])
        raise Missing(f"`{' '.join(words)}` failed: {tail}")
    return done.stdout


if __name__ == "__main__":
    ensure_engine_image()
    for name, value in podman_environment().items():
        print(f"export {name}={value}")

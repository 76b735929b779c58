"""The same in containers of an ordinary user, who is made for the test when root runs it."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
import yaml

from fleet.effects.machine import free_port
from support import podman_env
from support.cache import Missing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

pytestmark = [pytest.mark.podman, pytest.mark.machine_may_lack]
USER = f"fleet-rootless-{os.getpid()}"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def user() -> Iterator[pwd.struct_passwd]:
    if os.geteuid() != 0:
        pytest.skip("an ordinary user runs these tests, so the other podman journeys are rootless")
    for program in ("useradd", "runuser", "newuidmap"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: apt-get install -y uidmap util-linux passwd")
    subprocess.run(["useradd", "--create-home", USER], check=True)
    made = pwd.getpwnam(USER)
    try:
        yield made
    finally:
        for process in psutil.process_iter(["uids"]):
            if process.info["uids"] and process.info["uids"].real == made.pw_uid:
                process.kill()
        subprocess.run(["userdel", "--force", "--remove", USER], check=True, capture_output=True)


def as_user(
    user: pwd.struct_passwd, *words: str, archive: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `words` as `user`, in the user's own folders."""
    packages = f"{Path(yaml.__file__).parents[1]}:{ROOT}"
    clean = (
        "env", "-i", f"HOME={user.pw_dir}", f"PYTHONPATH={packages}", "PYTHONDONTWRITEBYTECODE=1",
        "PATH=/usr/sbin:/usr/bin:/sbin:/bin", f"CONTAINERS_CONF={user.pw_dir}/containers.conf",
    )  # fmt: skip
    with (archive or Path(os.devnull)).open("rb") as given:
        return subprocess.run(
            ["runuser", "-u", USER, "--", *clean, *words], stdin=given, capture_output=True,
            text=True, check=False, cwd=user.pw_dir,
        )  # fmt: skip


@pytest.fixture
def python(user: pwd.struct_passwd) -> str:
    """Give a Python that the user may run and that finds fleet's libraries."""
    for candidate in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        if as_user(user, candidate, "-m", "fleet", "--version").returncode == 0:
            return candidate
    pytest.skip("no Python of this version that an ordinary user may run with these libraries")


@pytest.fixture
def loaded(user: pwd.struct_passwd, engine_image: str) -> str:
    """Give the engine's image in the user's own storage, or skip with what podman says."""
    home = Path(user.pw_dir)
    (home / "containers.conf").write_text(podman_env.containers_conf())
    folder = home / ".config" / "containers"
    folder.mkdir(parents=True)
    (folder / "storage.conf").write_text('[storage]\ndriver = "overlay"\n')  # vfs copies layers
    for path in (home / ".config", folder):
        os.chown(path, user.pw_uid, user.pw_gid)
    try:
        archive = podman_env.ensure_engine_archive()
    except Missing as missing:
        pytest.skip(str(missing))
    done = as_user(user, "podman", "load", "--quiet", archive=archive)
    if done.returncode:
        pytest.skip(f"rootless podman cannot hold an image here: {done.stderr.strip()[-300:]}")
    return engine_image


def test_up_check_down_as_an_ordinary_user(
    user: pwd.struct_passwd, python: str, loaded: str, tiny_models: Mapping[str, Path]
) -> None:
    home = Path(user.pw_dir)
    shutil.copy(tiny_models["llama"], home / "tiny.gguf")
    profiles = home / "profiles"
    profiles.mkdir()
    (profiles / "e.yaml").write_text(
        f"kind: engine\nversion: 1\nname: eng\nengine: llama.cpp\nimage: {loaded}\n"
    )
    # the user's own network needs /dev/net/tun, which a machine may keep from users
    up = (
        "up", "tiny.gguf", "--runtime", "podman", "--set", "engine=eng", "--set", "ctx_size=512",
        "--set", "threads=1", "--set", "network=host", "--set", f"port={free_port()}",
        "--set", "api_key=true", "--json",
    )  # fmt: skip

    done = as_user(user, python, "-m", "fleet", *up)
    try:
        assert done.returncode == 0, done.stdout + done.stderr
        (server,) = json.loads(done.stdout)["servers"]
        assert (server["state"], server["health"]) == ("running", "ready")
        checked = as_user(user, python, "-m", "fleet", "check", "tiny", "--json")
        assert checked.returncode == 0, checked.stdout
        inside = as_user(user, "podman", "top", server["container"], "huser")
        assert "root" not in inside.stdout
    finally:
        down = as_user(user, python, "-m", "fleet", "down", "tiny", "--yes")
    assert down.returncode == 0, down.stderr
    assert as_user(user, "podman", "ps", "--all", "--quiet").stdout == ""
    assert as_user(user, "podman", "secret", "ls", "--quiet").stdout == ""

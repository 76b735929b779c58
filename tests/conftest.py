"""What every test may ask for, the seal on pure ones, and `--accept`."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import hypothesis
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from support import engines, models, podman_env
from support import net_hosts as hosts_of_networks
from support.cache import Missing, cache_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

T = TypeVar("T")
ROOT = Path(__file__).parents[1]
PARTS = ("llama", "podman", "ansible", "quadlet", "chromium")
OUTSIDE = {"open", "subprocess.Popen", "socket.connect", "socket.bind", "os.system"}
READABLE = (".py", ".pyc", ".so")
SEAL = {"closed": False}

# no example database: it would write files in the middle of pure tests
hypothesis.settings.register_profile("fleet", database=None, deadline=None)
hypothesis.settings.load_profile("fleet")


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if SEAL["closed"] and event in OUTSIDE and not _harmless(str(arguments[0])):
        raise AssertionError(f"pure code touched the outside: {event} {arguments[0]!r}")


def _harmless(path: str) -> bool:
    shipped = (f"{ROOT}/containers/", f"{ROOT}/fleet/")  # templates and tables
    # a module loaded for the first time is written below `__pycache__`, by its descriptor
    compiled = "/__pycache__/" in path or path.isdigit()
    return compiled or path.endswith(READABLE) or path.startswith(shipped)


# hooks cannot be removed, so a flag seals them
sys.addaudithook(_watch)


@pytest.hookimpl(hookwrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Seal tests marked `pure` for as long as their function runs."""
    SEAL["closed"] = pyfuncitem.get_closest_marker("pure") is not None
    yield
    SEAL["closed"] = False


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--accept", action="store_true", help="rewrite golden files")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Turn the skip of a part that FLEET_REQUIRE names into a failure.

    Not where the machine itself may lack what is asked, whatever is installed on it.
    """
    outcome = yield
    report = outcome.get_result()
    needed = [part for part in required_parts() if item.get_closest_marker(part)]
    if item.get_closest_marker("machine_may_lack"):
        return
    if report.skipped and needed and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{needed[0]} is required here, but: {report.longrepr}"


def required_parts() -> tuple[str, ...]:
    """Return the parts that must be there, `all` for each of them."""
    named = os.environ.get("FLEET_REQUIRE", "").split(",")
    return PARTS if "all" in named else tuple(part for part in PARTS if part in named)


def have(part: Callable[[], T]) -> T:
    """Return what `part` makes, or skip the test with what it says is missing."""
    try:
        return part()
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def accept(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be rewritten."""
    return bool(request.config.getoption("--accept"))


@pytest.fixture
def golden(accept: bool) -> Callable[[Path, str], None]:
    """Compare a whole text with a file, or rewrite the file with `--accept`."""

    def compare(path: Path, text: str) -> None:
        if accept:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert text == path.read_text(), f"{path} differs; `pytest --accept` rewrites it"

    return compare


@pytest.fixture(scope="session")
def demo_model() -> Path:
    """Path of the demo's real model."""
    return models.demo_model()


@pytest.fixture(scope="session")
def tiny_models() -> Mapping[str, Path]:
    """Path of each tiny model by name, see `support/tiny_gguf.py`."""
    return models.tiny_models()


@pytest.fixture(scope="session")
def wheel_engine() -> engines.WheelEngine:
    """llama-server and RPC worker of b10434."""
    return have(engines.wheel_engine)


@pytest.fixture(scope="session")
def older_embedded() -> Callable[[int], Path]:
    """Give the python of an environment with an older embedded engine, by build."""
    return lambda build: have(lambda: engines.older_embedded(build))


@pytest.fixture(scope="session")
def podman() -> Iterator[Mapping[str, str]]:
    """Set a podman that works here for all processes; the value is its variables."""
    have(podman_env.require_podman)
    with pytest.MonkeyPatch.context() as patch:
        variables = podman_env.podman_environment()
        for name, value in variables.items():
            patch.setenv(name, value)
        yield variables


@pytest.fixture(scope="session")
def base_image(podman: Mapping[str, str]) -> str:  # noqa: ARG001 - sets the environment
    """Name of the distribution's image that Containerfiles start from."""
    return have(podman_env.ensure_base_image)


@pytest.fixture(scope="session")
def engine_image(podman: Mapping[str, str]) -> str:  # noqa: ARG001 - sets the environment
    """Name of the image with the distribution's llama-server."""
    return have(podman_env.ensure_engine_image)


@pytest.fixture(scope="session")
def rpc_image(engine_image: str, wheel_engine: engines.WheelEngine) -> str:  # noqa: ARG001 - its base
    """Name of an image with llama-server and RPC worker of b10434."""
    return have(lambda: podman_env.ensure_rpc_image(wheel_engine.programs))


@pytest.fixture
def net_hosts(podman: Mapping[str, str]) -> Iterator[Callable[[int], hosts_of_networks.Network]]:
    """Give `n` hosts with an address, sshd and podman of their own; gone after the test."""
    networks: list[hosts_of_networks.Network] = []

    def make(count: int) -> hosts_of_networks.Network:
        networks.append(have(lambda: hosts_of_networks.start_network(count, podman)))
        return networks[-1]

    try:
        yield make
    finally:
        for network in networks:
            network.remove()


@pytest.fixture(scope="session")
def quadlet_root() -> Path:
    """Give a root with a podman that has the Quadlet generator (see `quadlet_dryrun`)."""
    return have(lambda: _quadlet_root(cache_folder() / "quadlet-root"))


def _quadlet_root(folder: Path) -> Path:
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        raise Missing("the generator's root is made by root with mmdebstrap")
    with podman_env.alone("quadlet-root"):
        if not (folder / "usr/libexec/podman/quadlet").exists():
            shutil.rmtree(folder, ignore_errors=True)
            podman_env.debootstrap(folder, suite="trixie", include=("podman",))
    return folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give fleet folders of its own for configuration, state and cache."""
    for kind in ("config", "state", "cache"):
        monkeypatch.setenv(f"XDG_{kind.upper()}_HOME", str(tmp_path / kind))
    return tmp_path

"""Shipped deployments as they are compiled and rendered, whole; `pytest --accept` rewrites."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fleet.cli.compile import as_json_object
from fleet.cli.load import load_deployment
from fleet.compiler.compile_deployment import compile_deployment
from fleet.facts.known_builds import build_facts
from fleet.render.all_kinds import KINDS, render_kinds

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleet.compiler.launch_config import LaunchConfig
    from fleet.profiles.kinds import Deployment

GOLDEN = Path(__file__).parents[2] / "golden"
MODELS = "/srv/fleet/models"


@pytest.fixture
def fixed_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set folders whose names are the same everywhere; nothing is written to them."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "/srv/cache")


def compiled(
    name: str, *sets: str, build: str | None = None
) -> tuple[Deployment, tuple[LaunchConfig, ...]]:
    """Compile a shipped deployment with the figures of its hardware profile."""
    deployment = load_deployment(name, sets=sets)
    facts = build_facts(deployment.engine.engine, build or deployment.engine.build)
    return deployment, compile_deployment(
        deployment, hosts={}, model=None, build=facts, models_dir=MODELS
    )


CASES = {
    "improved-launch-in-ik": ("deepseek-epyc", ()),
    "improved-launch-in-llama.cpp": ("deepseek-epyc", ("engine=llama.cpp",)),
    "first-launch": ("deepseek-epyc-original", ()),
    "pair-joined-by-rpc": ("spark-pair-rpc", ()),
    "pair-that-shares-each-layer": ("spark-pair-v4-flash", ()),
    "draft-on-a-unified-gpu": ("qwen-780m", ()),
}


@pytest.mark.usefixtures("fixed_folders")
@pytest.mark.parametrize("case", CASES)
def test_launch(case: str, golden: Callable[[Path, str], None]) -> None:
    name, sets = CASES[case]

    _, launches = compiled(name, *sets)

    text = json.dumps([as_json_object(launch) for launch in launches], indent=1) + "\n"
    golden(GOLDEN / case / "launch.json", text)


@pytest.mark.usefixtures("fixed_folders")
@pytest.mark.parametrize("case", ["improved-launch-in-llama.cpp", "pair-that-shares-each-layer"])
def test_artefacts(case: str, golden: Callable[[Path, str], None]) -> None:
    name, sets = CASES[case]
    kinds = [kind for kind in KINDS if kind != "runbook"]

    for artefact in render_kinds(*compiled(name, *sets), kinds, strict=False):
        golden(GOLDEN / case / artefact.path, artefact.text)


# the options of the report that deployment reproduces
IMPROVED = {
    "threads": "13", "threads_batch": "13", "ctx": "16384", "slots": "1", "batch": "2048",
    "ubatch": "512", "attention": "on", "k": "q8_0", "v": "q8_0",
}  # fmt: skip
NAMES = {
    "threads": ("--threads", "-t"), "threads_batch": ("--threads-batch", "-tb"),
    "ctx": ("--ctx-size", "-c"), "slots": ("--parallel", "-np"), "batch": ("--batch-size", "-b"),
    "ubatch": ("--ubatch-size", "-ub"), "attention": ("--flash-attn", "-fa"),
    "k": ("--cache-type-k",), "v": ("--cache-type-v",),
}  # fmt: skip


@pytest.mark.usefixtures("fixed_folders")
@pytest.mark.parametrize("engine", ["ik_llama.cpp", "llama.cpp"])
@pytest.mark.parametrize(
    ("name", "types"), [("deepseek-epyc", "q8_0"), ("deepseek-epyc-original", "f16")]
)
def test_the_report_is_reproduced(engine: str, name: str, types: str) -> None:
    _, (launch,) = compiled(name, f"engine={engine}")

    argv = launch.argv
    said = {
        what: next(argv[argv.index(word) + 1] for word in words if word in argv)
        for what, words in NAMES.items()
    }
    assert said == {**IMPROVED, "k": types, "v": types}
    assert "--jinja" in argv
    assert argv[argv.index("--reasoning") + 1] == "on"
    assert launch.shm_size == 16 * 2**30

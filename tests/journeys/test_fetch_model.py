"""Models fetched from a hub: whole, checked, gone on with after a cut, and pruned again."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fleet.effects.machine import free_port
from support.fleet_command import fleet

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

REPO = "acme/Tiny-GGUF"
WORD = f"hf:{REPO}:Q4_K_M"
NAME = "Tiny-Q4_K_M"
MB = 10**6


@pytest.fixture
def shelf(tmp_path: Path, tiny_models: Mapping[str, Path]) -> Path:
    """Give a hub's folder with one model in two sizes, names in lower case as some have them."""
    repo = tmp_path / "hub" / REPO
    repo.mkdir(parents=True)
    shutil.copy(tiny_models["llama"], repo / "tiny-q4_k_m.gguf")
    shutil.copy(tiny_models["gemma3"], repo / "tiny-Q8_0.gguf")
    (repo / "mmproj-q4_k_m.gguf").write_bytes(b"GGUF")
    (repo / "README.md").write_text("# tiny")
    return tmp_path / "hub"


@contextmanager
def hub(folder: Path, monkeypatch: pytest.MonkeyPatch, *, cut: int = 0) -> Iterator[None]:
    program = Path(__file__).parents[1] / "support" / "fake_hub.py"
    serving = subprocess.Popen(
        [sys.executable, str(program), str(folder), str(cut)], stdout=subprocess.PIPE, text=True
    )
    assert serving.stdout
    try:
        with monkeypatch.context() as patch:
            patch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{serving.stdout.readline().strip()}")
            patch.setenv("NO_PROXY", "127.0.0.1")
            patch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
            yield
    finally:
        serving.terminate()
        serving.wait()
        serving.stdout.close()


def asked(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "requests.jsonl").read_text().splitlines()]


@pytest.fixture
def own_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep `prune` away from the images of other tests."""
    storage = tmp_path / "storage.conf"
    roots = f'graphroot = "{tmp_path}/images"\nrunroot = "{tmp_path}/run"\n'
    storage.write_text(f'[storage]\ndriver = "vfs"\n{roots}')
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(storage))


def models(home: Path) -> Path:
    return home / "cache" / "fleet" / "models"


@pytest.mark.llama
@pytest.mark.usefixtures("own_storage")
def test_up_fetches_checks_and_serves_what_a_word_names(
    shelf: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--set", f"port={free_port()}", "--set", "ctx_size=512", "--json")
    with hub(shelf, monkeypatch):
        done = fleet("up", WORD, *words)
    try:
        assert done.code == 0, done.out
        assert done.json["deployment"] == NAME
        assert [file.name for file in models(home).glob("*/*.gguf")] == ["tiny-q4_k_m.gguf"]
        used = fleet("prune", "--models", "--yes", "--json").json["removed"]
        assert "model" not in {item["kind"] for item in used}
    finally:
        fleet("down", NAME, "--yes")

    kept = fleet("prune", "--yes", "--json").json["kept"]
    assert [(item["name"], item["bytes"] > 0) for item in kept] == [(NAME, True)]
    assert len(fleet("models", "list", "--json").json["models"]) == 1
    gone = fleet("prune", "--models", "--yes", "--json").json["removed"]
    assert [(item["name"], item["bytes"] > 0) for item in gone if item["kind"] == "model"] == [
        (NAME, True)
    ]
    assert fleet("models", "list", "--json").json == {"models": []}


@pytest.mark.llama
def test_a_draft_is_fetched_beside_its_model_and_told_from_it(
    shelf: Path, home: Path, tiny_models: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = shelf / "acme" / "Draft-GGUF" / "a-draft-Q4_K_M.gguf"
    small.parent.mkdir()
    shutil.copy(tiny_models["draft"], small)
    profiles = home / "config" / "fleet" / "profiles"
    profiles.mkdir(parents=True)
    model = {"repo": REPO, "quant": "Q4_K_M", "draft_repo": "acme/Draft-GGUF"}
    whole = {
        "hardware": "auto", "model": "pair", "engine": "embedded", "port": free_port(),
        "settings": {"ctx_size": 512, "threads": 1},
    }  # fmt: skip
    write = {"pair": ("model", {**model, "draft_file": small.name}), "d": ("deployment", whole)}
    for name, (kind, content) in write.items():
        text = json.dumps({"kind": kind, "version": 1, "name": name, **content})
        (profiles / f"{name}.yaml").write_text(text)

    with hub(shelf, monkeypatch):
        done = fleet("up", "d", "--json")
    try:
        assert done.code == 0, done.out
        folder = models(home) / "pair"
        assert (folder / "draft" / small.name).exists()
        # the draft is of the same quantisation and comes first by name
        log = fleet("logs", "d").out
        assert f"{folder}/draft/{small.name}" in log
        assert f"{folder}/tiny-q4_k_m.gguf" in log
        assert fleet("plan", "d").code == 0
    finally:
        fleet("down", "d", "--yes")

    (profiles / "pair.yaml").write_text(json.dumps({"kind": "model", "version": 1, "name": "pair",
                                                    **model}))  # fmt: skip
    told = fleet("validate", str(profiles / "pair.yaml"), "--json")
    assert told.code == 3
    assert "draft_file" in told.json["files"][0]["errors"][0]["message"]


def test_a_cut_fetch_goes_on_where_it_was(
    shelf: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (shelf / REPO / "tiny-q4_k_m.gguf").open("ab") as file:
        file.write(bytes(24 * MB))  # the library keeps pieces of 10 MB

    with hub(shelf, monkeypatch, cut=15 * MB):
        done = fleet("models", "pull", WORD, "--json")
        while done.code == 5:  # the library itself tries again, or leaves it to the next call
            done = fleet("models", "pull", WORD, "--json")

    assert done.code == 0, done.out
    assert any(request["range"] for request in asked(shelf))
    (fetched,) = models(home).glob("*/*.gguf")
    assert fetched.read_bytes() == (shelf / REPO / "tiny-q4_k_m.gguf").read_bytes()


@pytest.mark.usefixtures("home")
def test_all_parts_of_a_split_come_together(
    shelf: Path, monkeypatch: pytest.MonkeyPatch, tiny_models: Mapping[str, Path]
) -> None:
    first = tiny_models["split"]
    for part in first.parent.glob(first.name.replace("00001", "*")):
        number = part.name.rsplit("-", 3)[1]
        total = part.name.rsplit("-", 1)[1]
        shutil.copy(part, shelf / REPO / f"tiny-q2_k-{number}-of-{total}")

    with hub(shelf, monkeypatch):
        done = fleet("models", "pull", f"hf:{REPO}:Q2_K", "--json")

    assert done.code == 0, done.out
    assert len(done.json["files"]) == len(list(first.parent.glob("*-of-*.gguf")))


def test_another_sha256_is_refused_and_moved_aside(
    shelf: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shelf / REPO / ".tiny-q4_k_m.gguf.sha256").write_text("0" * 64)

    with hub(shelf, monkeypatch):
        failed = fleet("models", "pull", WORD, "--json")

    assert failed.code == 5, failed.out
    assert "SHA-256" in failed.error["message"]
    assert [file.name for file in models(home).glob("*/*.gguf*")] == ["tiny-q4_k_m.gguf.damaged"]


@pytest.mark.parametrize(
    ("word", "code", "said"),
    [
        (f"hf:{REPO}:Q5_K_M", 3, "no file for `Q5_K_M`"),
        ("hf:acme/none:Q4_K_M", 5, "Hugging Face"),
        ("hf:acme:Q4_K_M", 3, "names no repository"),
    ],
)
def test_what_the_hub_lacks_is_named(
    word: str, code: int, said: str, shelf: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hub(shelf, monkeypatch):
        failed = fleet("models", "pull", word, "--json")

    assert failed.code == code, failed.out
    assert said in failed.error["message"]
    assert failed.error["fix"]
    assert not list(models(home).glob("*/*.gguf"))


def test_without_a_network_it_is_said_at_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    failed = fleet("models", "pull", WORD, "--json")

    assert failed.code == 5, failed.out
    assert "Hugging Face" in failed.error["message"]
    assert not list(models(home).glob("*/*.gguf"))


@pytest.mark.podman
@pytest.mark.usefixtures("home", "podman", "own_storage")
def test_prune_removes_images_that_fleet_built_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "Containerfile").write_text(
        "FROM scratch\nLABEL fleet.containerfile.digest=1\nCOPY Containerfile /x\n"
    )
    for name in ("localhost/fleet/made:1", "localhost/others/made:1"):
        run = ("podman", "build", "--quiet", "--tag", name, str(tmp_path))
        subprocess.run(run, check=True, capture_output=True)

    unasked = fleet("prune", "--json")
    assert unasked.code == 1
    assert "--yes" in unasked.error["fix"]
    (gone,) = fleet("prune", "--yes", "--json").json["removed"]

    assert (gone["kind"], gone["name"], gone["path"]) == ("image", "localhost/fleet/made:1", None)
    words = ("podman", "images", "--format", "{{.Repository}}")
    listed = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()
    assert "localhost/others/made" in listed
    assert "localhost/fleet/made" not in listed

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fleet.cli.main import main
from fleet.tune.tuned_profile import Provenance, tuned_profile_yaml

DEPLOYMENT = "kind: deployment\nversion: 1\nname: {name}\nhardware: auto\nmodel: gemma3-270m\nengine: embedded\n"  # noqa: E501


@dataclass
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Fleet:
    """The program with a home of its own, and a record of every file in it."""

    def __init__(self, home: Path, captured: pytest.CaptureFixture[str]) -> None:
        self.home = home
        self.captured = captured

    def __call__(self, *words: str) -> Answer:
        with pytest.raises(SystemExit) as ended:
            main(words)
        out, err = self.captured.readouterr()
        assert "Traceback" not in out + err
        return Answer(int(str(ended.value.code)), out, err)

    def write(self, name: str, text: str | bytes) -> str:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return name

    def files(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.home)): path.read_bytes()
            for path in self.home.rglob("*")
            if path.is_file()
        }


@pytest.fixture
def fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Fleet:
    monkeypatch.chdir(tmp_path)
    for name in ("CONFIG", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    return Fleet(tmp_path, capsys)


def test_lists_what_is_shipped_and_what_is_the_users(fleet: Fleet) -> None:
    fleet.write("profiles/mine.yaml", DEPLOYMENT.format(name="mine"))
    fleet.write("config/fleet/profiles/demo.yaml", DEPLOYMENT.format(name="demo"))

    found = {
        entry["name"]: entry for entry in fleet("list", "deployment", "--json").json["profiles"]
    }

    assert found["mine"] == {
        "kind": "deployment", "name": "mine", "file": "profiles/mine.yaml", "layer": "user",
    }  # fmt: skip
    assert found["demo"]["layer"] == "user"
    assert found["deepseek-epyc"]["layer"] == "shipped"


def test_a_folder_of_the_command_line_wins_over_the_others(fleet: Fleet) -> None:
    fleet.write("profiles/a.yaml", DEPLOYMENT.format(name="a") + "port: 1111\n")
    fleet.write("more/a.yaml", DEPLOYMENT.format(name="a") + "settings: {threads: 3}\n")

    assert fleet("show", "a", "--json").json["settings"] == {}
    shown = fleet("show", "a", "--json", "--profiles", "more").json
    assert shown == {
        "deployment": "a",
        "settings": {
            "threads": {"value": 3, "layer": "deployment", "file": "more/a.yaml", "line": 7}
        },
    }


def test_a_folder_named_profiles_that_is_the_shipped_one_counts_as_shipped(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parents[3])

    layers = {entry["layer"] for entry in fleet("list", "--json").json["profiles"]}

    assert layers == {"shipped"}


def test_show_why_names_the_line_of_each_setting(fleet: Fleet) -> None:
    answer = fleet("show", "deepseek-epyc", "--why", "--set", "threads=12")

    rows = [line.split() for line in answer.out.splitlines()]
    assert ["threads", "12", "--set", "--set:1"] in rows
    assert any(row[:3] == ["cache_type_k", "q8_0", "deployment"] for row in rows)


def test_set_chooses_the_engine(fleet: Fleet) -> None:
    assert fleet("show", "deepseek-epyc", "--set", "engine=llama.cpp", "--json").code == 0
    wrong = fleet("show", "deepseek-epyc", "--set", "engine=lama.cpp", "--json")
    assert wrong.code == 3
    assert wrong.json["error"]["fix"] == "did you mean `llama.cpp`?"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("show", "demoo"), 3, "did you mean `demo`?"),
        (("show", "demo", "--set", "thraeds=1"), 3, "did you mean `threads`?"),
        (("show", "demo", "--set", "threads=-1"), 3, "not between 1 and 512"),
        (("show", "demo", "--set", "ctx_size=99999999999"), 3, "not between"),
        (("show", "demo", "--profiles", "nowhere"), 3, "no such folder"),
        (("show", "hf:x"), 3, "names no repository"),
        (("list", "hardwre"), 3, "did you mean `hardware`?"),
        (("schema", "modle"), 3, "did you mean `model`?"),
        (("shw",), 2, "did you mean 'show'?"),
        (("show",), 2, "Missing argument"),
        (("show", "demo", "--nonsense"), 2, "No such option"),
        ((), 2, ""),
    ],
)
def test_wrong_words_have_a_clear_error(
    fleet: Fleet, words: tuple[str, ...], code: int, says: str
) -> None:
    before = fleet.files()

    for_people = fleet(*words)
    for_programs = fleet(*words, "--json")

    assert (for_people.code, for_programs.code) == (code, code)
    assert for_people.out == ""
    assert says in for_people.err
    error = for_programs.json["error"]
    assert set(error) == {"kind", "message", "where", "fix", "exit_code"}
    assert error["exit_code"] == code
    assert fleet.files() == before


@pytest.mark.parametrize(
    ("content", "line", "says"),
    [
        ("", 1, "empty"),
        ("a: [", 2, "not YAML"),
        (b"kind: model\nname: \xff\n", 2, "not UTF-8"),
        (DEPLOYMENT.format(name="x") + "hardware: auto\n", 7, "written twice"),
        (DEPLOYMENT.format(name="x") + "settings: {ctx_size: 0}\n", 7, "not between"),
        (DEPLOYMENT.format(name="x") + "memory_limit: 24\n", 7, "not a size"),
        (DEPLOYMENT.format(name="x").replace("gemma3-270m", "gema3-270m"), 5, "no model is called"),
        (DEPLOYMENT.format(name="compare"), 3, "reserved"),
        ("kind: deployment\nversion: 9\n", 2, "above 1"),
    ],
)
def test_validate_names_file_and_line(
    fleet: Fleet, content: str | bytes, line: int, says: str
) -> None:
    file = fleet.write("x.yaml", content)
    before = fleet.files()

    answer = fleet("validate", file, "--json")

    assert answer.code == 3
    errors = answer.json["files"][0]["errors"]
    assert any(says in error["message"] and error["line"] == line for error in errors), errors
    assert f"x.yaml:{line}: " in fleet("validate", file).out
    assert fleet.files() == before


def test_validate_lists_every_file_and_every_error(fleet: Fleet) -> None:
    good = fleet.write("good.yaml", DEPLOYMENT.format(name="good"))
    bad = fleet.write("bad.yaml", DEPLOYMENT.format(name="bad") + "prt: 1\nsettings: {a: 1}\n")

    answer = fleet("validate", good, bad, "missing.yaml", ".", "--json").json["files"]

    assert [(each["file"], each["valid"]) for each in answer] == [
        ("good.yaml", True), ("bad.yaml", False), ("missing.yaml", False), (".", False),
    ]  # fmt: skip
    assert answer[1]["errors"][0] == {
        "line": 7, "path": "prt", "message": "unknown key", "near": "port",
    }  # fmt: skip
    assert len(answer[1]["errors"]) == 2
    assert "folder" in answer[3]["errors"][0]["message"]


def test_validate_resolves_names_among_the_files_it_is_given(fleet: Fleet) -> None:
    model = fleet.write("m.yaml", "kind: model\nversion: 1\nname: own\nrepo: a/b\n")
    text = DEPLOYMENT.format(name="x").replace("gemma3-270m", "own")

    assert fleet("validate", fleet.write("d.yaml", text)).code == 3
    assert fleet("validate", "d.yaml", model).code == 0


def test_two_files_of_one_folder_may_not_have_one_name(fleet: Fleet) -> None:
    fleet.write("profiles/a.yaml", DEPLOYMENT.format(name="same"))
    fleet.write("profiles/b.yaml", DEPLOYMENT.format(name="same"))

    answer = fleet("validate", "--json")

    wrong = [each for each in answer.json["files"] if not each["valid"]]
    assert [each["file"] for each in wrong] == ["profiles/b.yaml"]
    assert "profiles/a.yaml" in wrong[0]["errors"][0]["message"]


def test_show_names_the_tuned_profiles_there_are(fleet: Fleet) -> None:
    provenance = Provenance(
        deployment="demo", metric="tg", fingerprint="0123456789012345", build="b11549",
        model_digest="12e4", date="2026-10-10T12:00:00+00:00",
    )  # fmt: skip
    text = tuned_profile_yaml(
        provenance, {"threads": 2, "flash_attention": "on", "draft_p_min": 0.5, "poll": None},
        {"gain": 1.25, "kept": True},
    )  # fmt: skip
    fleet.write("config/fleet/profiles/tuned/demo-tg.yaml", text)

    assert fleet("validate").code == 0
    assert "demo-tg for b11549 on host 0123456789012345" in fleet("show", "demo").out


def test_validate_without_files_checks_all_folders(fleet: Fleet) -> None:
    assert fleet("validate").code == 0
    fleet.write("config/fleet/profiles/bad.yaml", DEPLOYMENT.format(name="bad") + "prt: 1\n")
    assert fleet("validate").code == 3


def test_a_file_that_cannot_be_read_is_named(fleet: Fleet) -> None:
    # for root too: reading a process's memory from address 0 fails
    answer = fleet("validate", "/proc/self/mem", "--json")

    assert answer.code == 3
    assert "cannot be read" in answer.json["files"][0]["errors"][0]["message"]


def test_a_broken_profile_of_the_user_harms_no_other(fleet: Fleet) -> None:
    fleet.write("profiles/broken.yaml", "kind: model\nversion: 1\nname: mine\nnonsense: [\n")
    fleet.write("profiles/compose.yaml", "services: {a: {image: b}}\n")
    fleet.write("profiles/latin1.yaml", b"kind: engine\nname: \xe9\n")

    assert fleet("show", "demo").code == 0
    assert fleet("list").code == 0


def test_init_writes_a_model_file_as_the_working_folder_makes_it_absolute(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)

    answer = fleet("init", "mine", "--model", "./some.gguf", "--on", "auto", "--json")
    fleet("init", "odd", "--model", "an #odd: one.gguf", "--on", "auto")

    assert f"model: {tmp_path}/some.gguf\n" in Path(answer.json["file"]).read_text()
    assert fleet("show", "odd", "--json").code == 0


def test_init_writes_a_file_that_is_valid_and_asks_before_nothing(fleet: Fleet) -> None:
    answer = fleet("init", "mine", "--model", "qwen2.5-7b", "--on", "gpu-8gb", "--json")

    assert answer.code == 0
    file = answer.json["file"]
    assert file == str(fleet.home / "config/fleet/profiles/mine.yaml")
    assert fleet("validate", file).code == 0
    assert fleet("show", "mine", "--json").json["settings"]["gpu_layers"]["value"] == "all"
    again = fleet("init", "mine", "--model", "qwen2.5-7b", "--on", "gpu-8gb")
    assert again.code == 3
    assert "exists already" in again.err


@pytest.mark.parametrize(
    ("name", "model", "hardware"),
    [
        ("report", "gemma3-270m", "auto"),
        ("../evil", "gemma3-270m", "auto"),
        ("x: y", "gemma3-270m", "auto"),
        ("mine", "nothing", "auto"),
        ("mine", "gemma3-270m", "nothing"),
        ("mine", "x\nport: 1.gguf", "auto"),
    ],
)
def test_init_refuses_what_no_deployment_may_be(
    fleet: Fleet, name: str, model: str, hardware: str
) -> None:
    answer = fleet("init", name, "--model", model, "--on", hardware, "--json")

    assert answer.code == 3
    assert answer.json["error"]["exit_code"] == 3
    assert fleet.files() == {}


@pytest.mark.parametrize(
    "words",
    [("list",), ("show", "demo", "--why"), ("validate",), ("schema", "model"), ("--help",)],
)
def test_reading_commands_write_nothing(fleet: Fleet, words: tuple[str, ...]) -> None:
    assert fleet(*words).code == 0
    assert fleet.files() == {}


def test_a_file_is_deployed_by_its_path(fleet: Fleet) -> None:
    fleet.write("models/foo-Q4_K_M.gguf", b"GGUF")

    assert fleet("show", "models/foo-Q4_K_M.gguf", "--json").json["deployment"] == "foo-Q4_K_M"


def test_schema_is_a_document_for_editors(fleet: Fleet) -> None:
    schema = fleet("schema", "deployment").json

    assert schema["properties"]["kind"] == {
        "description": "what kind of profile this file holds", "const": "deployment",
    }  # fmt: skip
    assert "threads" in schema["properties"]["settings"]["properties"]

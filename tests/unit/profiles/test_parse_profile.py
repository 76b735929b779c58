from __future__ import annotations

from typing import Any

import pytest

from fleet.errors import UserError
from fleet.profiles.kinds import (
    ConversationProfile,
    DeploymentProfile,
    HardwareProfile,
    ModelProfile,
    TunedProfile,
)
from fleet.profiles.parse_profile import check_profile, parse_profile
from fleet.profiles.problems import BadProfile, Problem
from fleet.sizes import GIB

pytestmark = pytest.mark.pure

HEAD = {kind: f"kind: {kind}\nversion: 1\nname: x\n" for kind in (
    "hardware", "model", "engine", "workload", "deployment", "tuned"
)}  # fmt: skip
MODEL = HEAD["model"] + "repo: org/name\n"
DEPLOYMENT = HEAD["deployment"] + "hardware: auto\nmodel: m\nengine: embedded\n"


def problems(text: str | bytes) -> list[tuple[int, str, str]]:
    found = check_profile(text, file="x.yaml")
    assert isinstance(found, tuple), found
    return [(problem.line, problem.path, problem.message) for problem in found]


def only(text: str | bytes) -> Problem:
    found = check_profile(text, file="x.yaml")
    assert isinstance(found, tuple), found
    assert len(found) == 1, found
    return found[0]


def test_reads_every_kind_of_value() -> None:
    text = HEAD["hardware"] + (
        "cores: 16\nmemory: 755 GiB\nmemory_bandwidth: 614.4 GB/s\nisa: [avx512f]\n"
        "gpus:\n  - {name: card, memory: 24 GiB, unified: false}\n"
        "settings:\n  threads: 13\n  flash_attention: on\n"
    )

    profile = parse_profile(text, file="x.yaml")

    assert isinstance(profile, HardwareProfile)
    assert profile.memory == 755 * GIB
    assert profile.memory_bandwidth == 614_400_000_000
    assert profile.isa == ("avx512f",)
    assert profile.gpus[0].unified is False
    assert profile.settings["flash_attention"].value == "on"
    assert str(profile.settings["threads"].place) == "x.yaml:11"
    assert profile.settings["threads"].layer == "hardware"


def test_finds_all_problems_of_a_file_at_once() -> None:
    text = HEAD["hardware"] + (
        "coers: 3\ncores: -4\nmemory: 64\ngpus:\n  - nam: x\n"
        "settings:\n  ctx_sise: 3\n  threads: lots\n"
    )

    lines = [(line, path) for line, path, _ in problems(text)]

    assert lines == [
        (4, "coers"),
        (5, "cores"),
        (6, "memory"),
        (8, "gpus[0].nam"),
        (8, "gpus[0].name"),
        (10, "settings.ctx_sise"),
        (11, "settings.threads"),
    ]


@pytest.mark.parametrize(
    ("text", "near"),
    [
        (HEAD["hardware"] + "coers: 3\n", "cores"),
        (MODEL + "settings:\n  ctx_sise: 3\n", "ctx_size"),
        (HEAD["engine"] + "engine: lama.cpp\n", "llama.cpp"),
        ("kind: modle\nversion: 1\n", "model"),
    ],
)
def test_names_the_near_word(text: str, near: str) -> None:
    assert only(text).near == near


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("cores: 0", "below 1"),
        ("cores: 99999", "above"),
        ("cores: 08", "not a whole number"),
        ("cores: 1.5", "not a whole number"),
        ("cores: 1e3", "not a whole number"),
        ("cores: 0x10", "not a whole number"),
        ('cores: "16"', "is text"),
        ("cores:", "has no value"),
        ("cores: [16]", "is a list"),
        ("cores: {a: 1}", "is a set of keys"),
        ("memory: 24", "not a size"),
        ("memory: 24 GX", "not a size"),
        ("memory: 24 GB/s", "not a size"),
        ("memory: -24 GiB", "not a size"),
        ("memory: 0 GiB", "below"),
        ("memory: 9999999 TiB", "above"),
        ("memory_bandwidth: 614 GB", "not a bandwidth"),
        ("probe: yes", "neither `true` nor `false`"),
        ("gpus: {name: x}", "a list is wanted"),
        ("settings: [threads]", "is a list"),
        ("settings: {threads: [1]}", "a single value is wanted"),
        ("settings: {threads: -1}", "between 1"),
        ("settings: {threads: 100000}", "between 1"),
        ("cpu: ''", "is empty"),
        ("reserved_cores: 20\ncores: 16", "leaves no core"),
        ("threads: 8\ncores: 16", "below `cores`"),
    ],
)
def test_refuses_a_value_of_the_wrong_kind(line: str, says: str) -> None:
    problem = only(HEAD["hardware"] + line + "\n")

    assert says in problem.message
    assert problem.line == 4


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", 1, "empty"),
        ("# only a comment\n", 1, "empty"),
        ("- a\n- b\n", 1, "key: value"),
        ("just text\n", 1, "key: value"),
        ("kind: model\n  bad: indent\n", 2, "not YAML"),
        ("kind: model\n---\nkind: model\n", 2, "not YAML"),
        ("kind: [model\n", 2, "not YAML"),
        ("version: 1\n", 1, "is missing"),
        (b"kind: model\nname: \xff\xfe\n", 2, "not UTF-8"),
        (b"kind: model\nname: a\x00b\n", 1, "not YAML"),
        ("[" * 5000, 1, "not YAML"),
        ("kind: *nothing\n", 1, "not YAML"),
        ("a: " + "x" * (5 * 1024**2), 1, "larger than"),
    ],
)
def test_refuses_a_file_that_is_no_profile(text: str | bytes, line: int, says: str) -> None:
    problem = only(text)

    assert says in problem.message
    assert problem.line == line


def test_refuses_a_key_written_twice_and_names_both_lines() -> None:
    assert problems(MODEL + "quant: Q4_K_M\nquant: Q8_0\n") == [
        (6, "quant", "is written twice, first on line 5")
    ]


def test_a_bomb_of_anchors_is_harmless() -> None:
    levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 30))
    text = HEAD["engine"] + "engine: vllm\nl0: &l0 [x]\n" + levels

    assert {message for _, _, message in problems(text)} == {"unknown key"}


def test_an_anchor_may_be_used() -> None:
    text = HEAD["engine"] + "engine: vllm\nimage: &i local/x\nprogram: *i\n"

    assert parse_profile(text, file="x.yaml").program == "local/x"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("extra", "path"),
    [
        ("name: report\n", "name"),
        ("settings: {threads: 1}\npinned: {threads: 2}\n", "pinned"),
        ("hosts: [a, b, a]\n", "hosts"),
        ("shared_prefix: {system: a, file: b}\n", "shared_prefix"),
        ("shared_prefix: {}\n", "shared_prefix"),
    ],
)
def test_refuses_keys_that_do_not_go_together(extra: str, path: str) -> None:
    text = DEPLOYMENT.replace("name: x\n", "") if extra.startswith("name") else DEPLOYMENT

    assert only(text + extra).path == path


@pytest.mark.parametrize("extra", ["", "repo: a/b\npath: c.gguf\n"])
def test_a_model_has_exactly_one_source(extra: str) -> None:
    assert "exactly one source" in only(HEAD["model"] + extra).message


def test_thinking_becomes_a_setting_of_the_model() -> None:
    profile = parse_profile(MODEL + "thinking: off\n", file="x.yaml")

    assert isinstance(profile, ModelProfile)
    assert profile.settings["reasoning"].value == "off"
    assert profile.settings["reasoning"].place.line == 5


@pytest.mark.parametrize(
    ("word", "user", "address", "port"),
    [
        ("epyc1", None, "epyc1", 22),
        ("alice@10.0.0.7:2222", "alice", "10.0.0.7", 2222),
        ("'[fd00::7]:22'", None, "fd00::7", 22),
    ],
)
def test_a_host_may_be_a_word(word: str, user: str | None, address: str, port: int) -> None:
    profile = parse_profile(DEPLOYMENT + f"hosts: [{word}]\n", file="x.yaml")

    assert isinstance(profile, DeploymentProfile)
    host = profile.hosts[0]
    assert (host.user, host.address, host.port) == (user, address, port)


@pytest.mark.parametrize("word", ["-oProxyCommand=x", "a b", "a:99999", "a;b", "@x"])
def test_refuses_a_host_that_ssh_would_take_for_something_else(word: str) -> None:
    assert "not a host" in only(DEPLOYMENT + f"hosts: ['{word}']\n").message


def test_the_name_is_the_files_when_absent() -> None:
    text = "kind: engine\nversion: 1\nengine: vllm\n"

    assert parse_profile(text, file="some/folder/mine.yaml").name == "mine"
    assert isinstance(check_profile(text, file="not a name.yaml"), tuple)
    assert isinstance(check_profile(
        "kind: deployment\nversion: 1\nhardware: auto\nmodel: m\nengine: e\n", file="report.yaml"
    ), tuple)  # fmt: skip


def test_other_kinds_of_profile_are_read() -> None:
    conversation = parse_profile(
        "kind: conversation\nversion: 1\nname: c\nlanguage: ja\npersona: p\n"
        "system: |\n  a\n  b\nturns: [はい, いいえ]\n",
        file="x.yaml",
    )
    tuned = parse_profile(
        HEAD["tuned"] + "deployment: d\nmetric: tg\nfingerprint: f\nbuild: b11549\n"
        "model_digest: m\ndate: '2026-10-10'\nmeasured: {tg: 61.5, trials: 8, note: x, ok: true}\n"
        "settings: {threads: 2}\n",
        file="x.yaml",
    )

    assert isinstance(conversation, ConversationProfile)
    assert conversation.system == "a\nb\n"
    assert conversation.turns == ("はい", "いいえ")
    assert isinstance(tuned, TunedProfile)
    measured: dict[str, Any] = dict(tuned.measured)
    assert measured == {"tg": 61.5, "trials": 8, "note": "x", "ok": True}


def test_the_error_carries_every_problem() -> None:
    with pytest.raises(BadProfile) as raised:
        parse_profile(HEAD["hardware"] + "coers: 3\ncores: -4\n", file="x.yaml")

    assert raised.value.where == "x.yaml:4"
    assert raised.value.exit_code == UserError.exit_code
    assert "x.yaml:5: cores: `-4` is below 1" in str(raised.value)
    assert "`cores`" in str(raised.value)

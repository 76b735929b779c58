from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fleet.errors import UserError
from fleet.profiles.library import ProfileLayer, ProfileLibrary, ProfileSource
from fleet.profiles.model_file import deployment_of, is_model
from fleet.profiles.problems import BadProfile
from fleet.profiles.resolve_deployment import apply_tuned, resolve_deployment, resolve_written

if TYPE_CHECKING:
    from fleet.profiles.kinds import Deployment

pytestmark = pytest.mark.pure


def source(name: str, text: str, layer: ProfileLayer = "user") -> ProfileSource:
    return ProfileSource(file=f"{name}.yaml", layer=layer, content=text.encode())


def of(kind: str, name: str, rest: str, layer: ProfileLayer = "user") -> ProfileSource:
    return source(f"{kind}-{name}", f"kind: {kind}\nversion: 1\nname: {name}\n{rest}", layer)


TUNED = (
    "deployment: d\nmetric: tg\nfingerprint: host\nbuild: b1\nmodel_digest: sha\n"
    "date: '{date}'\nsettings: {{threads: {threads}, poll: 3, seed: 3}}\n"
)
SOURCES = (
    of("engine", "e", "engine: llama.cpp\nsettings: {threads: 1, poll: 1, prio: 1, seed: 1}\n"),
    of("engine", "boxed", "engine: llama.cpp\nimage: x\n"),
    of("hardware", "h", "settings: {threads: 2, top_k: 2, batch_size: 2}\n"),
    of("hardware", "auto", "probe: true\n"),
    of("engine", "embedded", "engine: embedded\n"),
    of("engine", "llama.cpp", "engine: llama.cpp\n"),
    of("model", "m", "repo: a/b\nsettings: {threads: 3, top_k: 3, min_p: 0.3}\n"),
    of("workload", "w", "prompt_tokens: 9\nsettings: {threads: 4, min_p: 0.4, parallel: 4}\n"),
    of(
        "deployment",
        "d",
        "hardware: h\nmodel: m\nengine: e\ncontainer_engine: boxed\nworkload: w\n"
        "settings: {threads: 5, parallel: 5}\npinned: {seed: 7}\n",
    ),
    of("tuned", "t-old", TUNED.format(date="2026-01-01", threads=6)),
    of("tuned", "t-new", TUNED.format(date="2026-02-02", threads=7)),
)
LIBRARY = ProfileLibrary(SOURCES)


def resolved(*sets: str) -> Deployment:
    return resolve_deployment(LIBRARY, "d", sets=sets)


def values(deployment: Deployment) -> dict[str, object]:
    return {name: setting.value for name, setting in deployment.settings.items()}


def test_later_layers_win() -> None:
    assert values(resolved()) == {
        "batch_size": 2, "min_p": 0.4, "parallel": 5, "poll": 1, "prio": 1, "seed": 7,
        "threads": 5, "top_k": 3,
    }  # fmt: skip


def test_each_setting_knows_its_layer_and_line() -> None:
    settings = resolved("threads=9").settings

    assert {name: (setting.layer, str(setting.place)) for name, setting in settings.items()} == {
        "batch_size": ("hardware", "hardware-h.yaml:4"),
        "min_p": ("workload", "workload-w.yaml:5"),
        "parallel": ("deployment", "deployment-d.yaml:9"),
        "poll": ("engine", "engine-e.yaml:5"),
        "prio": ("engine", "engine-e.yaml:5"),
        "seed": ("pinned", "deployment-d.yaml:10"),
        "threads": ("--set", "--set:1"),
        "top_k": ("model", "model-m.yaml:5"),
    }


def test_a_tuned_profile_holds_only_where_it_was_measured() -> None:
    deployment = resolved()

    there = apply_tuned(deployment, fingerprint="host", build="b1", digest="sha")

    assert values(there)["threads"] == 7  # the newest of two
    assert there.tuned is not None
    assert there.settings["threads"].layer == "tuned"
    for here in (("other", "b1", "sha"), ("host", "b2", "sha"), ("host", "b1", "other")):
        same = apply_tuned(deployment, fingerprint=here[0], build=here[1], digest=here[2])
        assert same is deployment


def test_a_tuned_profile_yields_to_pinned_and_to_the_command_line() -> None:
    tuned = apply_tuned(resolved("poll=9"), fingerprint="host", build="b1", digest="sha")

    assert values(tuned)["poll"] == 9
    assert values(tuned)["seed"] == 7
    assert tuned.pinned == {"seed"}


def test_set_chooses_profiles_and_keys_of_the_deployment() -> None:
    deployment = resolved("engine=embedded", "port=9000", "api-key=true", "memory_limit=2 GiB")

    assert deployment.engine.name == "embedded"
    assert (deployment.port, deployment.api_key) == (9000, True)
    assert deployment.memory_limit == 2 * 1024**3


def test_an_empty_value_leaves_a_setting_to_the_engine() -> None:
    assert values(resolved("threads="))["threads"] is None


def test_the_runtime_chooses_between_the_engines() -> None:
    assert resolve_deployment(LIBRARY, "d").engine.name == "e"
    assert resolve_deployment(LIBRARY, "d", runtime="embedded").engine.name == "e"
    boxed = resolve_deployment(LIBRARY, "d", runtime="podman")
    assert (boxed.engine.name, boxed.runtime) == ("boxed", "podman")
    chosen = resolve_deployment(LIBRARY, "d", runtime="podman", sets=["engine=llama.cpp"])
    assert chosen.engine.name == "llama.cpp"


@pytest.mark.parametrize(
    ("word", "says", "hint"),
    [
        ("thraeds=1", "unknown setting", "`threads`"),
        ("threads=-3", "not between", ""),
        ("threads=1e99", "not a whole number", ""),
        ("port=99999", "above", ""),
        ("port=x", "not a whole number", ""),
        ("topology=rcp", "not one of", "`rpc`"),
        ("engine=embeded", "no engine is called", "`embedded`"),
        ("hosts=a", "unknown setting", ""),
        ("name=x", "unknown setting", ""),
        ("threads", "not `key=value`", ""),
        ("=3", "not `key=value`", ""),
    ],
)
def test_refuses_a_wrong_word(word: str, says: str, hint: str) -> None:
    with pytest.raises(UserError, match=says) as raised:
        resolved(word)

    assert (raised.value.where or "").startswith("--set")
    assert hint in (raised.value.fix or "")


def test_an_unknown_name_says_who_named_it_and_what_is_near() -> None:
    text = "hardware: h\nmodel: mm\nengine: e\n"
    library = ProfileLibrary([*SOURCES, of("deployment", "x", text)])

    with pytest.raises(UserError, match="no model is called `mm`") as raised:
        resolve_deployment(library, "x")
    assert raised.value.where == "deployment-x.yaml:5: model"
    with pytest.raises(UserError, match="no deployment is called `dd`") as unknown:
        resolve_deployment(library, "dd")
    assert "did you mean `d`?" in (unknown.value.fix or "")


def test_the_first_source_of_a_name_wins_and_the_others_are_not_read() -> None:
    mine = of("model", "m", "repo: mine/mine\n")
    broken = of("model", "m", "nonsense: true\n", "shipped")
    library = ProfileLibrary([mine, *SOURCES, broken])

    assert resolve_deployment(library, "d").model.repo == "mine/mine"


def test_a_broken_profile_harms_only_those_who_name_it() -> None:
    library = ProfileLibrary([of("model", "m", "nonsense: true\n"), *SOURCES])

    assert library.entries("model")
    with pytest.raises(BadProfile):
        resolve_deployment(library, "d")
    assert resolve_deployment(library, "d", sets=["model=x.gguf"]).model.path == "x.gguf"


def test_files_that_are_no_profiles_are_passed_over() -> None:
    others = [
        source("compose", "services: {a: {image: b}}\n"),
        source("broken", "a: ["),
        source("binary", "\x00\x01"),
        source("other", "kind: Deployment\nmetadata: {name: k8s}\n"),
    ]

    assert ProfileLibrary(others).entries() == ()


def test_a_flow_style_profile_is_found_too() -> None:
    flow = source("w2", "{kind: workload, version: 1, name: flow, prompt_tokens: 3}\n")

    assert [entry.name for entry in ProfileLibrary([flow]).entries()] == ["flow"]


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("models/foo-Q4_K_M.gguf", "foo-Q4_K_M"),
        ("/x/big-00001-of-00003.gguf", "big"),
        ("my model (1).GGUF", "my-model-1"),
        ("hf:unsloth/Qwen3-8B-GGUF:Q4_K_M", "Qwen3-8B-Q4_K_M"),
        ("hf:org/name", "name"),
    ],
)
def test_a_deployment_is_named_after_its_model(word: str, name: str) -> None:
    deployment = resolve_written(LIBRARY, deployment_of(word, taken=lambda _: False))

    assert is_model(word)
    assert deployment.name == name
    assert deployment.hardware.probe
    assert deployment.engine.engine == "embedded"


@pytest.mark.parametrize("word", ["hf:noslash", "hf:a/b:c:d", "hf:../../etc:x"])
def test_refuses_a_malformed_repository(word: str) -> None:
    with pytest.raises(UserError, match="names no repository"):
        deployment_of(word, taken=lambda _: False)


@pytest.mark.parametrize("word", ["report.gguf", "d.gguf"])
def test_a_model_does_not_take_the_name_of_another_deployment_or_a_command(word: str) -> None:
    written = deployment_of(word, taken=lambda name: LIBRARY.has("deployment", name))

    assert written.name == word.replace(".gguf", "-gguf")

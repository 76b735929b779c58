"""What changed in llama.cpp's words and their meaning, build by build."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.errors import CannotExpress, UserError
from fleet.facts.known_builds import build_facts
from support.deployments import WITH_780M, WITH_CUDA, launch, value_of

pytestmark = pytest.mark.pure
NO_THINKING = '{"enable_thinking": false, "thinking": false}'
KNOWN = ("2025-09-29", "2026-02-27", "b8672", "b9246", "b10142", "b10825", "b11549", "b11669")


@pytest.mark.parametrize("build", KNOWN)
def test_always_says_port_threads_slots_and_context(build: str) -> None:
    config = launch({}, build=build)

    assert value_of(config, "--port") == "8080"
    assert value_of(config, "-t") == "16"
    assert value_of(config, "-tb") == "16"
    assert value_of(config, "-np") == "1"
    assert value_of(config, "-c") == "8192"


@pytest.mark.parametrize(
    ("build", "mode", "words"),
    [
        ("b9093", "none", ["--no-mmap"]),
        ("b9093", "mlock", ["--no-mmap", "--mlock"]),
        ("2025-09-29", "mmap+mlock", ["--mlock"]),
        ("b9093", "mmap+mlock", ["--mmap", "--mlock"]),
        ("b9093", "auto", []),
        ("b10142", "mmap+mlock", ["-lm", "mlock"]),
        ("b10142", "mmap", ["-lm", "mmap"]),
        ("b10229", "mlock", ["-lm", "mlock"]),
        ("b10229", "auto", []),
        ("b10488", "auto", ["-lm", "auto"]),
        ("b10936", "mmap+mlock", ["-lm", "mmap+mlock"]),
        ("b11669", "dio", ["-lm", "dio"]),
    ],
)
def test_a_load_mode_means_the_same_in_every_build(build: str, mode: str, words: list[str]) -> None:
    argv = launch({"load_mode": mode}, build=build).argv

    said = [it for it in argv if it in {"--mmap", "--no-mmap", "--mlock", "-dio", "-lm"}]
    assert [*said, *([argv[argv.index("-lm") + 1]] if "-lm" in argv else [])] == words


@pytest.mark.parametrize(("build", "mode"), [("b10142", "mlock"), ("b10150", "mmap+mlock")])
def test_refuses_a_load_mode_whose_meaning_is_unclear(build: str, mode: str) -> None:
    with pytest.raises(CannotExpress, match="b10142"):
        launch({"load_mode": mode}, build=build)


def test_memory_of_the_gpu_that_is_the_hosts_own_is_not_mapped() -> None:
    assert "--no-mmap" in launch({}, build="b9093", host=WITH_780M).argv
    assert "-lm auto" in " ".join(launch({}, build="b11549", host=WITH_780M).argv)


def test_only_lock_modes_lift_the_memlock_limit() -> None:
    assert launch({"load_mode": "mlock"}, build="b11549").memlock_unlimited
    assert not launch({"load_mode": "mmap"}, build="b11549").memlock_unlimited


DRAFT = {"draft_model": "/srv/draft.gguf", "draft_max": 8}


@pytest.mark.parametrize(
    ("build", "kind", "most"),
    [
        ("b8672", None, "--draft-max"),
        ("b9093", None, "--spec-draft-n-max"),
        ("b9246", "draft-simple", "--spec-draft-n-max"),
        ("b11669", "draft-simple", "--spec-draft-n-max"),
    ],
)
def test_a_draft_model_is_really_used(build: str, kind: str | None, most: str) -> None:
    config = launch(DRAFT, build=build)

    assert value_of(config, "-md") == "/draft/draft.gguf"
    assert value_of(config, "--spec-type") == kind
    assert value_of(config, most) == "8"


def test_refuses_a_draft_where_the_word_for_it_changed() -> None:
    with pytest.raises(CannotExpress, match="--spec-type"):
        launch(DRAFT, build="b9200")


def test_kinds_were_written_with_underscores() -> None:
    old = launch({"speculation": "ngram-simple", "ngram_size_n": 8}, build="b8672")
    new = launch({"speculation": "ngram-simple", "ngram_size_n": 8}, build="b11549")

    assert value_of(old, "--spec-type") == "ngram_simple"
    assert value_of(old, "--spec-ngram-size-n") == "8"
    assert value_of(new, "--spec-type") == "ngram-simple"
    assert value_of(new, "--spec-ngram-simple-size-n") == "8"


def test_settings_of_a_kind_that_is_not_used_are_named() -> None:
    config = launch({"draft_max": 8}, build="b11549")

    assert [warning.code for warning in config.warnings] == ["unused-setting"]
    assert "--spec-draft-n-max" not in config.argv


def test_says_since_which_build_a_setting_can_be_said() -> None:
    with pytest.raises(CannotExpress, match="since b9388"):
        launch({"checkpoint_interval": 512}, build="b9300", architecture="gemma3-270m")


@pytest.mark.parametrize(
    ("build", "word"),
    [
        ("2025-09-29", "--swa-checkpoints"),
        ("b8672", "--ctx-checkpoints"),
        ("b11669", "--ctx-checkpoints"),
    ],
)
def test_checkpoints_have_the_name_of_the_build(build: str, word: str) -> None:
    assert value_of(launch({"swa_checkpoints": 8}, build=build), word) == "8"


@pytest.mark.parametrize(
    ("build", "word"),
    [("b8672", "--checkpoint-every-n-tokens"), ("b9388", "--checkpoint-min-step")],
)
def test_their_interval_too(build: str, word: str) -> None:
    assert value_of(launch({"checkpoint_interval": 512}, build=build), word) == "512"


@pytest.mark.parametrize(
    ("build", "level"), [("b9093", None), ("b9200", None), ("b9246", "4"), ("b11669", "4")]
)
def test_the_log_shows_the_cache_where_it_shows_no_prompts(build: str, level: str | None) -> None:
    assert value_of(launch({}, build=build), "-lv") == level


def test_warns_of_prompts_in_the_log() -> None:
    codes = [it.code for it in launch({"log_verbosity": 4}, build="b9093").warnings]

    assert codes == ["prompts-in-log"]


def test_calls_from_other_pages_are_closed_where_they_can_be() -> None:
    assert value_of(launch({}, build="b11549"), "--cors-origins") == "localhost"
    assert "--cors-origins" not in launch({}, build="b9093").argv


def test_the_engine_may_not_change_what_was_planned() -> None:
    assert value_of(launch({}, build="b11549"), "-fit") == "off"
    assert "-fit" not in launch({}, build="2025-11-29").argv
    wish = launch({"gpu_layers": "auto"}, build="b11549", host=WITH_CUDA)
    assert value_of(wish, "-fit") == "on"


def test_own_masks_for_prompt_threads_since_they_do_not_inherit() -> None:
    config = launch({"cpu_range": "0-7", "poll": 80, "cpu_strict": True, "prio": 2}, build="b11549")

    assert value_of(config, "-Crb") == "0-7"
    assert value_of(config, "--poll-batch") == "1"
    assert value_of(config, "--prio-batch") == "2"
    assert value_of(config, "--cpu-strict-batch") == "1"


@pytest.mark.parametrize(
    ("policy", "build", "words"),
    [
        ("off", "b11549", ["--reasoning", "off"]),
        ("on", "b8672", ["--reasoning", "on"]),
        (
            "off",
            "2026-01-13",
            ["--chat-template-kwargs", NO_THINKING],
        ),
    ],
)
def test_one_thinking_policy_in_every_build(policy: str, build: str, words: list[str]) -> None:
    assert value_of(launch({"reasoning": policy}, build=build), words[0]) == words[1]


def test_all_layers_are_a_number_before_they_were_a_word() -> None:
    assert value_of(launch({}, build="2025-11-29", host=WITH_CUDA), "-ngl") == "999"
    assert value_of(launch({}, build="b11549", host=WITH_CUDA), "-ngl") == "all"


def test_a_word_that_the_help_does_not_list_is_refused() -> None:
    build = build_facts("llama.cpp", "b11549")
    flag = replace(build.flags["-fa"], choices=("on", "off"))
    told = replace(build, flags={**build.flags, "-fa": flag, "--flash-attn": flag}, source="help")

    with pytest.raises(CannotExpress, match="on, off"):
        launch({"flash_attention": "auto"}, build=told)


@pytest.mark.parametrize(
    "settings",
    [
        {"cache_type_k": "q6_0"},
        {"split_mode": "graph"},
        {"mla_attention": 3},
        {"gpu_memory_utilization": 0.9},
    ],
)
def test_what_another_engine_knows_is_refused(settings: dict) -> None:
    with pytest.raises(CannotExpress):
        launch(settings, build="b11549")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--port", "1"), UserError),
        (("--api-key", "x"), UserError),
        (("--tools", "all"), UserError),
        (("--no-such-flag",), CannotExpress),
        (("--mlock",), CannotExpress),
    ],
)
def test_extra_arguments_are_checked(words: tuple[str, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        launch({}, build="b11549", extra_args=words)


def test_extra_arguments_stand_last() -> None:
    assert launch({}, build="b11549", extra_args=("--keep", "-1")).argv[-2:] == ("--keep", "-1")


def test_dangerous_settings_need_a_word_of_permission() -> None:
    with pytest.raises(UserError, match="dangerous"):
        launch({"props": True}, build="b11549")
    assert "--props" in launch({"props": True}, build="b11549", allow_dangerous=True).argv


def test_an_option_for_all_kinds_is_said_once() -> None:
    config = launch({"speculation": "ngram-simple,ngram-map-k", "ngram_size_n": 8}, build="b8672")

    assert value_of(config, "--spec-type") == "ngram_simple,ngram_map_k"
    assert config.argv.count("--spec-ngram-size-n") == 1

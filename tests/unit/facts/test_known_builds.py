"""The shipped table: known builds, builds between them, what changed when."""

from __future__ import annotations

import pytest

from fleet.errors import UserError
from fleet.facts.known_builds import build_facts, since_and_until

pytestmark = pytest.mark.pure


@pytest.mark.parametrize("name", ["b9093", "9093", 9093])
def test_takes_a_build_by_number(name: str | int) -> None:
    assert build_facts("llama.cpp", name).number == 9093


def test_takes_a_snapshot_by_date() -> None:
    build = build_facts("llama.cpp", "2025-09-29")

    assert "--swa-checkpoints" in build
    assert "--fit" not in build
    assert build.flags["--swa-checkpoints"].env == "LLAMA_ARG_SWA_CHECKPOINTS"


def test_between_two_builds_only_what_both_accept() -> None:
    between = build_facts("llama.cpp", "b9300")

    assert (between.after, between.before) == ("b9246", "b9388")
    assert "--checkpoint-every-n-tokens" not in between
    assert "--checkpoint-min-step" not in between
    assert "--ctx-size" in between
    assert between.flags["--verbosity"].env is None  # renamed there


def test_a_removed_stub_is_not_accepted() -> None:
    assert "--draft-max" in build_facts("llama.cpp", "b8672")
    assert "--draft-max" not in build_facts("llama.cpp", "b9093")


def test_a_build_newer_than_the_table_is_like_its_newest() -> None:
    newer = build_facts("llama.cpp", "b99999")

    assert newer.after == "b11669"
    assert newer.before is None


@pytest.mark.parametrize(
    ("names", "span"),
    [
        (("--no-mmap",), ("2025-09-29", "b10825")),
        (("-lm",), ("b10142", None)),
        (("--draft-max",), ("2025-09-29", "b8672")),
        (("--nothing",), (None, None)),
    ],
)
def test_says_since_and_until_when(names: tuple[str, ...], span: tuple) -> None:
    assert since_and_until(*names) == span


@pytest.mark.parametrize("name", ["b12", "9", "yesterday", "2024-01-01", "2026-06-01", "b-1", ""])
def test_refuses_what_it_cannot_place(name: str) -> None:
    with pytest.raises(UserError):
        build_facts("llama.cpp", name)


def test_an_old_vllm_reads_the_interval_from_a_variable() -> None:
    assert "--prefix-cache-retention-interval" in build_facts("vllm", "0.33.0")
    assert "--prefix-cache-retention-interval" not in build_facts("vllm", "0.29.0")


def test_a_number_below_the_numbered_builds_lies_somewhere_among_the_dates() -> None:
    early = build_facts("llama.cpp", "b7000")

    assert (early.after, early.before) == ("2025-09-29", "b8672")
    assert early.changed(202.60113, 202.60227) is None
    assert early.changed(8672, 9093) is False
    assert build_facts("llama.cpp", "b8672").changed(202.60113, 202.60227) is True

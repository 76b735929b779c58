"""The engine's own help, and what the shipped table says of the same build."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.errors import UserError
from fleet.facts.known_builds import build_facts, known_llama_cpp_builds
from fleet.facts.parse_help import parse_help, parse_version, with_number

RECORDED = Path(__file__).parents[2] / "recorded" / "server_help"


@pytest.mark.parametrize("build", ["b10434", "b11669"])
def test_reads_the_same_as_the_table_says(build: str) -> None:
    read = parse_help((RECORDED / f"{build}.txt").read_text())

    table = build_facts("llama.cpp", build)

    assert set(read.flags) == set(table.flags)
    for name, flag in read.flags.items():
        assert (flag.env, flag.removed) == (table.flags[name].env, table.flags[name].removed), name
        assert set(flag.negations) == set(table.flags[name].negations), name


@pytest.mark.parametrize("build", ["b10434", "b11669"])
def test_lists_the_values_that_an_option_takes(build: str) -> None:
    flags = parse_help((RECORDED / f"{build}.txt").read_text()).flags

    assert flags["-fa"].choices == ("on", "off", "auto")
    assert "mmap+mlock" in flags["--load-mode"].choices
    assert "draft-simple" in flags["--spec-type"].choices
    assert flags["--numa"].choices == ("distribute", "isolate", "numactl")
    assert "q8_0" in flags["-ctk"].choices
    assert flags["-c"].choices == ()


@pytest.mark.pure
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("version: 9093 (1a2b3c4)", (9093, None)),
        ("version: 0.7.0 (build 11669, commit Debian)\nbuilt with GNU", (11669, "0.7.0")),
        ("version: 0.1.0-dev (build 1, commit 7e4c0a9)", (None, "0.1.0-dev")),
        ("version: 0 (unknown)", (None, None)),
        ("0.33.0", (None, "0.33.0")),
        ("nothing", (None, None)),
    ],
)
def test_reads_both_forms_of_a_version(text: str, told: tuple) -> None:
    assert parse_version(text) == told


def test_takes_the_nearest_known_build_when_none_is_told() -> None:
    read = parse_help(
        (RECORDED / "b10434.txt").read_text(), "version: 0.1.0-dev (build 1, commit x)"
    )

    numbered = with_number(read, known_llama_cpp_builds())

    assert (numbered.number, numbered.inferred) == (10434, True)


@pytest.mark.pure
def test_reads_indented_options_and_removed_ones() -> None:
    text = """usage: server [options]

  -t,    --threads N              number of threads
  -mqkv,  --merge-qkv,            merge Q,K,V (default: 0)
         --no-mmap                do not memory-map model
--draft, --draft-max N                  the argument has been
                                        removed. use --spec-draft-n-max
                                        (env: LLAMA_ARG_DRAFT_MAX)
-kvo,  --kv-offload, -nkvo, --no-kv-offload
                                        whether to offload
                                        - this is no option
"""
    build = parse_help(text)

    assert "--merge-qkv" in build
    assert "--no-mmap" in build
    assert "--draft-max" not in build
    assert build.flags["--draft-max"].env == "LLAMA_ARG_DRAFT_MAX"
    assert build.flags["-kvo"].negations == ("-nkvo", "--no-kv-offload")


@pytest.mark.pure
def test_refuses_what_is_no_help() -> None:
    with pytest.raises(UserError, match="no help text"):
        parse_help("command not found")

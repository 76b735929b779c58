"""The reader and the rules on excerpts of every engine and year, and on bad input."""

# ruff: noqa: E501 - lines of a log are as long as they are
from __future__ import annotations

import gzip
import json
import random
import re
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from epyc_log import epyc_log
from variants import FIGURES, SENTENCES, VARIANTS, Variant

from fleet.diagnose.compare_runs import compare_runs
from fleet.diagnose.diagnosis import diagnose, diagnose_log
from fleet.diagnose.diagnosis_json import diagnosis_json
from fleet.diagnose.diagnosis_text import comparison_text, diagnosis_text
from fleet.diagnose.finding_table import TABLE
from fleet.diagnose.fix_overlay import fix_settings
from fleet.diagnose.log_rules import RULES
from fleet.diagnose.read_log import error_lines
from fleet.diagnose.read_log.lines import batch_of
from fleet.diagnose.read_log.reader import LogReader
from fleet.diagnose.task_rules import TaskTally
from fleet.errors import UserError
from fleet.profiles.settings_table import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.pure


def answer(log: str | bytes) -> dict[str, Any]:
    raw = log.encode() if isinstance(log, str) else log
    found: dict[str, Any] = json.loads(json.dumps(diagnosis_json(diagnose([raw]))))
    return found


def codes(log: str) -> list[str]:
    return [finding["code"] for finding in answer(log)["findings"]]


PREFIXES = (
    "Nov 12 10:00:07 box llama-a[77]: ", "chat-1  | ", "[57130] ", "2026-01-02T03:04:05.123Z ",
)  # fmt: skip
MORE_PREFIXES = (
    "[pod/llama-0/server] ", "llama.1.x7k2@node1    | ", "Nov 20 10:00:01.123456 host llama[1]: ",
    "Nov 20 10:00:01 ", "0|llama  | ", "[2025-11-20T10:00:01.123Z] ", "10:00:01 ", "stderr: ",
    "chat_1  | Nov 20 10:00:01 host llama[1]: ", "2025/11/20 10:00:01 ", "[   12.345678] ", "\t",
)  # fmt: skip
NOT_COMPARED = {"findings", "verdict", "notes", "generation"}


@pytest.mark.parametrize("prefix", [*PREFIXES, *MORE_PREFIXES])
def test_what_another_program_puts_in_front_changes_nothing(prefix: str) -> None:
    for variant in VARIANTS:
        if "compose" in variant.name:
            continue
        bare = answer(variant.log)
        found = answer("\n".join(prefix + line for line in variant.log.splitlines()))

        assert {one["code"] for one in found["findings"]} == {
            one["code"] for one in bare["findings"]
        }, variant.name
        for word in bare.keys() - NOT_COMPARED:
            assert found[word] == bare[word], (variant.name, word)


@pytest.mark.parametrize(
    "envelope",
    [
        lambda line: {"type": "log", "time": 1.25, "level": "I", "msg": line},
        lambda line: {"log": line + "\n", "stream": "stderr", "time": "2026-01-02T03:04:05Z"},
    ],
    ids=["log-jsonl", "docker"],
)
def test_a_line_in_json_says_what_it_says_alone(
    envelope: Callable[[str], dict[str, object]],
) -> None:
    for variant in VARIANTS:
        if "{" in variant.log or "vllm" in variant.name.lower():
            continue
        lines = variant.log.splitlines() * 2
        bare = answer("\n".join(lines))
        found = answer("\n".join(json.dumps(envelope(line)) for line in lines))

        assert {one["code"] for one in found["findings"]} == {
            one["code"] for one in bare["findings"]
        }, variant.name
        for word in bare.keys() - NOT_COMPARED:
            assert found[word] == bare[word], (variant.name, word)


def test_two_servers_whose_lines_alternate_are_kept_apart() -> None:
    def server(name: str, tokens: int) -> list[str]:
        lines = (
            "slot launch_slot_: id  0 | task 0 | processing task",
            "slot print_timing: id  0 | task 0 |",
            f"prompt eval time =    1000.00 ms /   {tokens} tokens (    1.00 ms per token,   {tokens}.00 tokens per second)",
            "       eval time =    1000.00 ms /    20 tokens (   50.00 ms per token,    20.00 tokens per second)",
            f"slot      release: id  0 | task 0 | stop processing: n_tokens = {tokens + 19}, truncated = 0",
        )
        return [name + line for line in lines]

    for names in (("a-1  | ", "b-1  | "), ("[5001] ", "[5002] "), PREFIXES_OF_UNITS):
        pairs = zip(server(names[0], 300), server(names[1], 700), strict=True)
        found = answer("\n".join(line for pair in pairs for line in pair))

        assert [(one["processed_tokens"], one["cached_tokens"]) for one in found["tasks"]] == [
            (300, 0),
            (700, 0),
        ]


def test_each_of_two_servers_has_a_clock_of_its_own() -> None:
    def question(server: str, minute: int, number: int) -> str:
        lines = (
            f"{minute}.00.000.000 I slot launch_slot_: id  0 | task {number} | processing task, is_child = 0",
            f"{minute}.02.000.000 I slot print_timing: id  0 | task {number} | prompt eval time =     500.00 ms /   100 tokens (    5.00 ms per token,   200.00 tokens per second)",
            f"{minute}.03.000.000 I slot print_timing: id  0 | task {number} |        eval time =    1000.00 ms /    50 tokens (   20.00 ms per token,    50.00 tokens per second)",
            f"{minute}.03.000.001 I slot      release: id  0 | task {number} | stop processing: n_tokens = {149 + number}, truncated = 0",
        )
        return "".join(f"[{server}] {line}\n" for line in lines)

    first, second = question("5001", 9, 0), question("5002", 2, 0)
    found = answer(first + second + question("5001", 10, 60) + question("5002", 3, 70))

    assert (found["starts"], found["task_count"]) == (1, 4)
    assert [one["cached_tokens"] for one in found["tasks"]] == [0, 0, 60, 70]
    assert answer(first + second + question("5001", 0, 0))["starts"] == 2


PREFIXES_OF_UNITS = ("Nov 12 10:00:07 box llama-a[77]: ", "Nov 12 10:00:07 box llama-b[78]: ")


def test_what_is_remembered_of_a_shape_changes_nothing() -> None:
    draw = random.Random(7)  # noqa: S311 - the same logs each time

    def other_figures(text: str) -> str:
        return re.sub("[1-9]", lambda _: str(draw.randrange(1, 10)), text)

    for number in range(60):
        some = draw.sample(VARIANTS, 4)
        fronts = (draw.choice(("", *PREFIXES)) for _ in some)
        text = "\n".join(
            front + line
            for front, one in zip(fronts, some, strict=True)
            for line in (one.log + "\n" + other_figures(one.log)).split("\n")
        )
        remembering, forgetting = (LogReader(TaskTally().add) for _ in range(2))
        remembering.feed(batch_of(text.encode()))
        for line in text.split("\n"):
            forgetting.forget()
            forgetting.feed(batch_of(line.encode()))

        first, second = (asdict(one.finish()) | {"line": 0} for one in (remembering, forgetting))
        assert first == second, number


def test_each_start_has_its_build_and_its_tasks() -> None:
    start = """\
build_info: b{build}-25eec6f32
llama_context: n_ctx         = {n_ctx}
slot launch_slot_: id  0 | task 0 | processing task
prompt eval time =    1000.00 ms /   {tokens} tokens (    1.00 ms per token,   {tokens}.00 tokens per second)
       eval time =    1000.00 ms /    20 tokens (   50.00 ms per token,    20.00 tokens per second)
slot      release: id  0 | task 0 | stop processing: n_tokens = {left}, truncated = 0
"""
    runs = ((8672, 4096, 300), (9093, 8192, 700), (9093, 8192, 500))

    found = answer(
        "".join(start.format(build=b, n_ctx=c, tokens=n, left=n + 19) for b, c, n in runs)
    )

    assert (found["starts"], found["build"], found["n_ctx"]) == (3, "b9093", 8192)
    assert [one["processed_tokens"] for one in found["tasks"]] == [300, 700, 500]


@pytest.mark.parametrize(("line", "findings", "trap"), SENTENCES, ids=lambda value: str(value)[:40])
def test_one_line_is_enough(line: str, findings: set[str], trap: str) -> None:
    said = set(codes(line))

    assert findings <= said
    assert trap not in said


@pytest.mark.parametrize(("line", "word", "value"), FIGURES, ids=lambda value: str(value)[:40])
def test_one_line_gives_its_figure(line: str, word: str, value: object) -> None:
    assert inner(answer(line), word) == value


def inner(found: Any, path: str) -> Any:
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_reads_each_engine_and_year(variant: Variant) -> None:
    found = answer(variant.log)

    said = {finding["code"] for finding in found["findings"]}
    assert variant.findings <= said
    assert not variant.traps & said
    assert {path: inner(found, path) for path in variant.figures} == variant.figures


def test_every_rule_has_a_row_and_every_row_a_rule() -> None:
    assert set(RULES) == set(TABLE)


def test_fixes_are_settings_that_profiles_know() -> None:
    named = {name for row in TABLE.values() for name, _ in row.settings}

    assert named <= set(SETTINGS)


def test_every_sentence_passes_the_quick_look() -> None:
    words = [one.literal.translate(error_lines._WORDS).split() for one in error_lines.TROUBLES]
    alone = [found for found in words if error_lines.TRIGGERS.isdisjoint(found)]

    assert [found[-2:] for found in alone] == [["kv", "cache"], ["rs", "cache"]]  # "failed to .."


def test_sentences_with_figures_are_told_from_others_of_their_shape() -> None:
    assert all(error_lines.depends_on_figures(literal) for literal in error_lines.WITH_FIGURES)
    assert codes("exited with code 136\nexited with code 137")[0] == "OOM_HOST"


@pytest.mark.parametrize(
    ("build", "says", "sets"),
    [
        ("build_info: b8672-25eec6f32", "is `--checkpoint-every-n-tokens` in b8672", True),
        ("build_info: b11549-25eec6f32", "is `--checkpoint-min-step` in b11549", True),
        ("build: 6123 (79c1160b0) with cc", "cannot be set in b6123", False),
        ("", "`--checkpoint-min-step` (since b9388) or `--checkpoint-every", True),
    ],
)
def test_the_interval_is_named_as_the_build_calls_it(build: str, says: str, sets: bool) -> None:
    log = """
slot get_availabl: id  0 | task -1 | selected slot by LCP similarity, sim_best = 0.900 (> 0.100 thold), f_keep = 0.600
slot launch_slot_: id  0 | task 69 | processing task
slot update_slots: id  0 | task 69 | new prompt, n_ctx_slot = 8192, n_keep = 0, task.n_tokens = 900
slot update_slots: id  0 | task 69 | n_past = 800, slot.prompt.tokens.size() = 1300, seq_id = 0, pos_min = 1299, n_swa = 1
slot update_slots: id  0 | task 69 | forcing full prompt re-processing due to lack of cache data
"""
    found = {one.code: one for one in diagnose([(build + log).encode()]).findings}

    interval = found["CHECKPOINT_INTERVAL_GT_PREFIX"]
    assert says in interval.fix
    assert ("checkpoint_interval" in dict(interval.settings)) is sets


def test_a_slow_epyc_is_told_in_the_order_of_remedies() -> None:
    found = answer(epyc_log())

    letters = [finding["priority"] for finding in found["findings"]]
    assert [letter for letter in dict.fromkeys(letters) if letter != "info"] == ["A", "B", "C", "D"]
    rows = [
        (t["task"], t["processed_tokens"], t["gen_tokens"], t["pp_tps"], t["tg_tps"])
        for t in found["tasks"]
    ]
    assert rows[1] == (1026, 857, 1024, 74.47, 15.21)
    assert rows[3] == (3034, 4865, 1024, 100.22, 14.22)
    assert len(found["notes"]) == 2
    assert all(note.startswith("task 2051:") for note in found["notes"])
    assert found["kv_type"] == {"k": "f16", "v": "f16", "mla": True}


def test_evidence_is_at_most_five_lines_that_stand_in_the_log() -> None:
    log = epyc_log()
    lines = log.splitlines()

    for finding in answer(log)["findings"]:
        assert len(finding["evidence"]) <= 5
        for line in finding["evidence"]:
            assert line["text"] in lines[line["line"] - 1]


# three conversations behind one primed prefix take turns in one slot (Gemma 3 270M, b11549)
PRIMED_CHATS = Path(__file__).with_name("primed_chats.log").read_text()


def test_a_checkpoint_thrown_away_that_nobody_missed_is_no_finding() -> None:
    levels = {one["code"]: one["level"] for one in answer(PRIMED_CHATS)["findings"]}

    assert PRIMED_CHATS.count("erased invalidated") == 5
    assert not levels.keys() & {"CHECKPOINTS_INVALIDATED", "CHECKPOINTS_CLUSTERED_AT_TAIL"}
    assert {levels["PREFIX_DIVERGES_LATE"], levels["PARTIAL_REUSE"]} == {"info"}


def test_a_checkpoint_thrown_away_costs_what_is_read_again() -> None:
    lost = PRIMED_CHATS.replace(
        "task 109 | cached n_tokens = 1136, memory_seq_rm [1136",
        "task 109 | cached n_tokens = 0, memory_seq_rm [0",
    ).replace("22601.32 ms /   235 tokens (   96.18", "22601.32 ms /  1371 tokens (   16.48")
    found = {one["code"]: one for one in answer(lost)["findings"]}

    erased = found["CHECKPOINTS_INVALIDATED"]
    assert erased["level"] == "high"
    assert erased["cost_s"] == pytest.approx(0.829 * 22.6, rel=0.01)  # what agreed, at its rate


def test_only_the_first_marker_of_a_task_is_a_hit() -> None:
    log = "\n".join(
        f"slot update_slots: id  0 | task 3 | n_tokens = {at}, memory_seq_rm [{at}, end)"
        for at in (0, 2048, 4096)
    )

    found = answer(f"slot launch_slot_: id  0 | task 3 | processing task\n{log}\n")

    assert found["cached_tokens"] == 0


def test_two_starts_in_one_file_are_two() -> None:
    start = (
        "0.01.000.000 I slot launch_slot_: id  0 | task 0 | processing task, is_child = 0\n"
        "0.09.000.000 I slot      release: id  0 | task 0 | stop processing: n_tokens = 50, truncated = 0\n"
    )

    found = answer(start + start)

    assert found["starts"] == 2
    assert [task["task"] for task in found["tasks"]] == [0, 0]


def test_more_than_ten_thousand_tasks_keep_both_ends_and_say_so() -> None:
    log = "".join(
        f"slot launch_slot_: id  0 | task {n} | processing task, is_child = 0\n"
        f"slot update_slots: id  0 | task {n} | n_tokens = 5, memory_seq_rm [5, end)\n"
        for n in range(10_500)
    )

    found = answer(log)

    assert found["task_count"] == 10_500
    assert [found["tasks"][0]["task"], found["tasks"][-1]["task"]] == [0, 10_499]
    assert len(found["tasks"]) == 2_000
    assert "first and last" in found["notes"][-1]


def test_unequal_runs_are_not_compared() -> None:
    one = diagnose([epyc_log().encode()])
    other = diagnose([epyc_log().replace(" 1024 runs", "  512 runs").encode()])

    comparison = compare_runs(one, other)

    assert not comparison.comparable
    assert "output tokens" in comparison_text(comparison)
    assert compare_runs(one, one).comparable


def test_the_fixes_name_each_setting_once() -> None:
    fixes = fix_settings(diagnose([epyc_log().encode()]).findings)

    assert fixes["cache_type_k"] == ("q8_0", "KV_F16")


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_other_encodings_are_read(encoding: str) -> None:
    log = ("# caf\u00e9\n" + epyc_log()).encode(encoding)

    assert answer(log)["task_count"] == 4


def test_gzip_is_read_even_when_it_is_cut() -> None:
    packed = gzip.compress(epyc_log().encode())

    assert answer(packed)["task_count"] == 4
    assert answer(packed[: len(packed) * 2 // 3])["lines"] > 0


@pytest.mark.parametrize("raw", [b"GGUF" + bytes(500), bytes(range(32)) * 40])
def test_a_binary_file_is_refused(raw: bytes) -> None:
    with pytest.raises(UserError, match="binary"):
        diagnose([raw])


@pytest.mark.parametrize("raw", [b"hello\nworld\n", b"\n\n"])
def test_a_text_that_is_no_log_is_refused(raw: bytes) -> None:
    with pytest.raises(UserError, match="no log"):
        diagnose_log([raw], "x.txt")


def test_damaged_gzip_is_refused() -> None:
    with pytest.raises(UserError, match="damaged"):
        diagnose([b"\x1f\x8b\x08\x00" + b"\xff" * 50])


def test_a_line_without_end_stays_small() -> None:
    chunks = (b"x" * (1 << 20) for _ in range(8))

    assert diagnose(chunks).reading.lines <= 8


ALL = "\n".join(variant.log for variant in VARIANTS) + epyc_log()


@settings(max_examples=200, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_mutated_logs_never_crash_the_reader(data: st.DataObject) -> None:
    with suppress(UserError):  # so spoiled that it is no text any more
        diagnosis_text(diagnose([mutated(ALL, data)]))


def mutated(log: str, data: st.DataObject) -> bytes:
    """Cut, repeat, swap and spoil pieces of a log."""
    raw = bytearray(log.encode())
    begin = data.draw(st.integers(0, len(raw) - 1))
    raw = raw[begin : begin + data.draw(st.integers(1, 6000))]
    for _ in range(data.draw(st.integers(0, 12))):
        at = data.draw(st.integers(0, len(raw)))
        piece = data.draw(st.one_of(st.binary(max_size=8), st.sampled_from(SPOILERS)))
        raw[at : at + data.draw(st.integers(0, 30))] = piece
    return bytes(raw).replace(b"\x1f\x8b", b"").lstrip(b"GGUF") or b"\n"


SPOILERS = (
    b" | task ", b" id  ", b"-1", b"99999999999999999999", b"nan", b"inf", b"\n", b"{", b"}",
    b'{"msg":', b'"timings":{"prompt_n":1}', b"0 / 0", b"= ", b"\x00", b"\xff\xfe", b"slot ",
    b"srv ", b"INFO [ f] ", b" | id_slot=0 id_task=1 p0=", b"[1] ", b"a  | ", b"vllm:x 1",
)  # fmt: skip

"""The page of a conversation run: what caching, speculation and priming brought."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleet.report.conversation_figures import cache_map, heat_maps, turn_curves
from fleet.report.page import (
    Bullets,
    Code,
    Exchange,
    Page,
    Section,
    Table,
    Text,
    Transcript,
)
from fleet.report.words import NONE, estimate, moment, number, percent
from fleet.sizes import ByteSize

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet.bench.summarise import Gain, Summary
    from fleet.bench.turn import Turn
    from fleet.report.page import Block


@dataclass(frozen=True, kw_only=True, slots=True)
class ConversationRun:
    """All that a results folder holds, read: `answers` by SHA-256, `servers` by condition."""

    run: Mapping[str, Any]
    turns: tuple[Turn, ...]
    summary: Summary
    servers: Mapping[str, Mapping[str, Any]]
    samples: tuple[Mapping[str, Any], ...]
    answers: Mapping[str, str]


def conversation_page(found: ConversationRun) -> Page:
    """Return the page; everything on it comes from `found`."""
    sections = (
        Section(title="What it brought", blocks=_gains(found)),
        Section(
            title="Totals",
            blocks=(_totals(found.summary), *_acceptance(found.summary), _conduct(found.summary)),
        ),
        Section(title="Where the time goes", blocks=heat_maps(found.summary)),
        Section(title="Turn by turn", blocks=turn_curves(found.summary)),
        Section(title="What was cached", blocks=cache_map(found.summary)),
        Section(title="Memory and load", blocks=(_memory(found),)),
        Section(title="Launches", blocks=_launches(found)),
        Section(title="Machine and build", blocks=(_machine(found),)),
        Section(title="Method and caveats", blocks=_method(found)),
        Section(title="Transcripts", blocks=_transcripts(found)),
    )
    run = found.run
    return Page(
        title=f"Conversations on {', '.join(run.get('deployments', ['?']))}",
        lead=_lead(found),
        facts=(
            ("Started", moment(run.get("started"))),
            ("Mode", str(run.get("mode", NONE))),
            ("Tokens of an answer", str(run.get("generate", NONE))),
            ("Repeats", str(found.summary.repeats)),
            ("Turns measured", str(len(found.turns))),
            ("fleet", str(run.get("fleet", NONE))),
        ),
        sections=tuple(section for section in sections if section.blocks),
    )


def _lead(found: ConversationRun) -> str:
    if not found.turns:
        return "No turn has been measured yet."
    caching = [g for g in found.summary.gains if g.pairs]
    if not caching:
        return "One condition was measured; there is nothing to compare it with."
    best = max(caching, key=lambda gain: gain.prefill_saved_s.value)
    saved = best.prefill_saved_s
    base = next(t for t in found.summary.totals if t.condition == best.baseline)
    proof = "one repeat, so without an interval"
    if saved.low is not None and saved.high is not None:
        doubt = "" if saved.low > 0 else "not proven, "
        proof = f"{doubt}95% interval {number(saved.low)} to {number(saved.high)} s"
    return (
        f"{best.condition} ({_meaning(found, best.condition)}) saves {number(saved.value)} of "
        f"{number(base.prefill_s)} s of prefill against {best.baseline} in one pass over "
        f"{len(found.summary.conversations)} conversations ({proof})."
    )


def _meaning(found: ConversationRun, condition: str) -> str:
    known = {c["name"]: str(c["meaning"]) for c in found.run.get("conditions", ())}
    return known.get(condition, condition)


def _gains(found: ConversationRun) -> tuple[Block, ...]:
    rows = tuple(
        (
            f"{g.condition} against {g.baseline}",
            estimate(g.prefill_saved_s),
            estimate(g.prefill, unit="x"),
            estimate(g.decode, unit="x"),
            estimate(g.wall, unit="x"),
            f"{g.same_answers} of {g.compared}",
            _parts(g),
        )
        for g in found.summary.gains
    )
    meanings = tuple(f"{c}: {_meaning(found, c)}" for c in found.summary.conditions)
    table = Table(
        caption="Seconds of prefill saved in one pass, and speed-ups (above 1 is faster), with "
        "95% intervals in brackets where there are repeats. Only turns that both have count.",
        columns=("conditions", "prefill saved, s>", "prefill>", "decode, a token>", "wall>",
                 "same answers>", "parts at turn"),
        rows=rows,
    )  # fmt: skip
    notes = (Bullets(items=found.summary.notes),) if found.summary.notes else ()
    return (Bullets(items=meanings), table, *notes)


def _parts(gain: Gain) -> str:
    listed = ", ".join(f"{talk} {turn}" for talk, turn in sorted(gain.parts_at.items()))
    return listed or "never"


def _totals(summary: Summary) -> Table:
    return Table(
        caption="One pass over all conversations. PP counts processed tokens only, TG the tokens "
        "after the first over decode time.",
        columns=("condition", "turns>", "processed>", "cached>", "reuse>", "prefill s>",
                 "decode s>", "wall s>", "PP tok/s>", "TG tok/s>", "TTFT ms, median>"),
        rows=tuple(
            (
                t.condition, str(t.turns), number(t.processed_tokens, 0),
                number(t.cached_tokens, 0), percent(t.reuse), number(t.prefill_s, 2),
                number(t.decode_s, 2), number(t.wall_s, 2), number(t.pp_tps), number(t.tg_tps),
                number(t.ttft_ms, 0),
            )
            for t in summary.totals
        ),
    )  # fmt: skip


def _conduct(summary: Summary) -> Table:
    return Table(
        caption="How the measuring went. Outside the server: wall time that is neither prefill "
        "nor decode, so client, HTTP, tokenizer, template.",
        columns=("condition", "repeats>", "cold starts>", "requests sent again>",
                 "outside the server>"),
        rows=tuple(
            (t.condition, str(t.repeats), str(t.cold), str(t.retries), percent(t.overhead, 2))
            for t in summary.totals
        ),
    )  # fmt: skip


def _acceptance(summary: Summary) -> tuple[Block, ...]:
    rows = tuple(
        (t.condition, t.conversation or "", str(t.draft_n), str(t.draft_accepted),
         percent(t.acceptance), number(t.tg_tps))
        for t in summary.by_conversation
        if t.draft_n
    )  # fmt: skip
    if not rows:
        return ()
    return (
        Table(
            caption="Speculation: proposed and accepted tokens",
            columns=("condition", "conversation", "proposed>", "accepted>", "acceptance>",
                     "TG tok/s>"),
            rows=rows,
        ),
    )  # fmt: skip


def _memory(found: ConversationRun) -> Table:
    rows = []
    for condition in found.summary.conditions:
        mine = [s for s in found.samples if s["condition"] == condition]
        memory = [s["memory_bytes"] for s in mine if s["memory_bytes"]]
        loads = sorted(s["load"] for s in mine)
        rows.append((
            condition,
            str(ByteSize(max(memory))) if memory else NONE,
            str(ByteSize(memory[-1])) if memory else NONE,
            number(loads[len(loads) // 2] if loads else None),
            number(loads[-1] if loads else None),
        ))  # fmt: skip
    return Table(
        caption="Resident memory of the server after a turn, and the machine's one-minute load",
        columns=("condition", "memory, largest>", "memory, last>", "load, median>",
                 "load, largest>"),
        rows=tuple(rows),
    )  # fmt: skip


def _launches(found: ConversationRun) -> tuple[Block, ...]:
    lines = {
        name: _launch_lines(record)
        for name, record in found.servers.items()
        if name in found.summary.conditions
    }
    if not lines:
        return (Text(text="No launch was recorded."),)
    everywhere = set.intersection(*(set(each) for each in lines.values()))
    return (
        Text(text="Lines that are not the same in all conditions are marked."),
        *(
            Code(
                title=f"{name}: {_meaning(found, name)}",
                lines=each,
                marked=frozenset(k for k, line in enumerate(each) if line not in everywhere),
            )
            for name, each in lines.items()
        ),
    )


def _launch_lines(record: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a launch as lines that can be compared: the program, its words, the requests'."""
    what = record["identity"]
    words: Sequence[str] = what.get("argv") or ()
    settings: Mapping[str, Any] = what.get("settings") or {}
    argv = [
        f"{word} {words[k + 1]}"
        if k + 1 < len(words) and not words[k + 1].startswith("-")
        else word
        for k, word in enumerate(words)
        if word.startswith("-") or k == 0
    ]
    return (
        f"{what.get('program') or what.get('engine')}",
        *(f"  {line}" for line in argv),
        *(f"  {key} = {value}" for key, value in sorted(settings.items()) if not argv),
        *(f"  env {key}={value}" for key, value in sorted(what.get("env", {}).items())),
        f"  request cache_prompt = {str(record.get('cache_prompt', True)).lower()}",
        f"  primed = {str(record.get('primed', False)).lower()}",
    )


def _machine(found: ConversationRun) -> Table:
    machine = found.run.get("machine", {})
    rows = [
        (key.removesuffix("_bytes"), _machine_value(key, value))
        for key, value in machine.items()
        if value
    ]
    for name in ("engine", "build", "context", "slots", "kv_types", "gpu_layers", "model"):
        seen = (s["identity"].get(name) for s in found.servers.values())
        values = {str(value) for value in seen if value is not None}
        rows.append((name.replace("_", " "), ", ".join(sorted(values)) or NONE))
    return Table(caption="Where it was measured", columns=("what", "value"), rows=tuple(rows))


def _machine_value(key: str, value: object) -> str:
    if key == "memory_bytes" and isinstance(value, int):
        return str(ByteSize(value))
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


_ORDER = (
    "Temperature 0 and one fixed seed. Each conversation and condition runs on a fresh server, "
    "conditions side by side, their order rotated."
)
_INTERVALS = (
    "Intervals are Student's t over the repeats of each conversation, conditions paired, with "
    "Welch's degrees of freedom; they say nothing about other machines, models, conversations."
)


def _method(found: ConversationRun) -> tuple[Block, ...]:
    replay = found.run.get("mode") == "replay"
    history = (
        "Replay: the first condition measured recorded the answers, and all conditions see these "
        "as history; every answer has the same number of tokens, so all do equal work."
        if replay
        else "Free: each condition feeds its own answers back, so that histories can part; the "
        "table says at which turn."
    )
    clients = sum(s.get("timed_by") == "client" for s in found.samples)
    timing = (
        f"{clients} turns were timed by the client, whose prefill includes queueing."
        if clients
        else "Prefill, decode and token counts are the server's own; TTFT and wall the client's."
    )
    return (
        Bullets(
            items=(
                history,
                _ORDER,
                timing,
                "Cold marks the first request of a fresh server. Cold turns are counted.",
                _INTERVALS,
            )
        ),
    )


def _transcripts(found: ConversationRun) -> tuple[Block, ...]:
    first = {
        (t.conversation, t.condition, t.turn): t.answer_sha256 for t in found.turns if t.repeat == 1
    }
    return tuple(
        Transcript(
            title=f"{talk['name']}: {talk['persona']} ({talk['language']})",
            system=talk["system"],
            columns=found.summary.conditions,
            exchanges=tuple(
                _exchange(found, first, talk["name"], number, said)
                for number, said in enumerate(talk["turns"], 1)
                if any((talk["name"], c, number) in first for c in found.summary.conditions)
            ),
        )
        for talk in found.run.get("conversations", ())
        if talk["name"] in found.summary.conversations
    )


def _exchange(
    found: ConversationRun,
    first: Mapping[tuple[str, str, int], str],
    talk: str,
    turn: int,
    said: str,
) -> Exchange:
    digests = [first.get((talk, c, turn)) for c in found.summary.conditions]
    shown: list[str | None] = []
    for place, digest in enumerate(digests):
        if digest is None:
            shown.append("(not measured)")
        elif place and digest == digests[0]:
            shown.append(None)
        else:
            shown.append(found.answers.get(digest, "(the text was not kept)"))
    return Exchange(said=said, answers=tuple(shown))

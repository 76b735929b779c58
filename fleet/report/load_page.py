"""The pages of a load run and of llama-bench."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleet.report.page import Bullets, Code, Page, Section, Table
from fleet.report.plots import points
from fleet.report.words import NONE, moment, number, percent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet.bench.load_summary import Answered, LoadSummary
    from fleet.bench.parse_llama_bench import RawRow
    from fleet.report.page import Figure

_METHOD = (
    "Throughput is generated tokens a second over the whole run, all users together.",
    "Queueing is the time to the first token less the prefill of that request.",
    "Sent late is how long a request waited for a free user, or for the client.",
    "Temperature 0 and a fixed seed: the same requests at the same times in every run.",
)


def load_page(run: Mapping[str, Any], asked: Sequence[Answered], summary: LoadSummary) -> Page:
    """Return the page of a load run."""
    shape = run.get("workload", {})
    way = f"Poisson, {run['rate']} a second" if run.get("rate") else f"{run.get('users')} at once"
    return Page(
        title=f"Load on {run.get('deployment', NONE)}",
        lead=f"{summary.throughput:.1f} tokens a second from {summary.requests} requests "
        f"({summary.failed} failed) in {summary.seconds:.1f} s; {way}.",
        facts=(
            ("Started", moment(run.get("started"))),
            ("Workload", str(shape.get("name", NONE))),
            ("Prompt tokens", str(shape.get("prompt_tokens", NONE))),
            ("Shared of them", str(shape.get("shared_prefix_tokens", NONE))),
            ("Generated tokens", str(shape.get("generated_tokens", NONE))),
            ("Reuse", percent(summary.reuse)),
            ("Machine", str(run.get("machine", {}).get("cpu") or NONE)),
        ),
        sections=(
            Section(title="What users waited for", blocks=(_waits(summary), _spread(asked))),
            Section(title="Failures", blocks=(_failures(asked),)),
            Section(title="Method and caveats", blocks=(Bullets(items=_METHOD),)),
        ),
    )


def raw_page(run: Mapping[str, Any], rows: Sequence[RawRow]) -> Page:
    """Return the page of a llama-bench run."""
    return Page(
        title=f"llama-bench on {run.get('deployment', NONE)}",
        lead=", ".join(f"{row.name} {row.mean:.1f} tok/s" for row in rows),
        facts=(("Started", moment(run.get("started"))),),
        sections=(
            Section(
                title="Tests",
                blocks=(
                    Table(
                        caption="One sequence, random tokens, no server in between",
                        columns=("test", "tok/s>", "spread>", "repetitions>", "build>"),
                        rows=tuple(
                            (r.name, number(r.mean, 2), number(r.spread, 2), str(len(r.samples)),
                             str(r.build or NONE))
                            for r in rows
                        ),
                    ),
                ),
            ),
            Section(
                title="Launch",
                blocks=(Code(title="Command", lines=(" ".join(run.get("argv", ())),)),),
            ),
        ),
    )  # fmt: skip


def _waits(summary: LoadSummary) -> Table:
    return Table(
        caption="Milliseconds, over all requests that were answered",
        columns=("what", "median>", "90%>", "99%>"),
        rows=tuple((name, *(number(each, 0) for each in values)) for name, values in summary.waits),
    )


def _spread(asked: Sequence[Answered]) -> Figure:
    good = [each for each in asked if each.error is None]
    return points(
        "waits",
        {
            "time to first token": [(each.sent_s, each.ttft_ms / 1000) for each in good],
            "end to end": [(each.sent_s, each.done_s - each.sent_s) for each in good],
        },
        x="sent, s after the start",
        y="s",
        caption="What each request waited for, by when it was sent.",
    )


def _failures(asked: Sequence[Answered]) -> Bullets:
    failed = tuple(f"request {each.number}: {each.error}" for each in asked if each.error)
    return Bullets(items=failed or ("none",))

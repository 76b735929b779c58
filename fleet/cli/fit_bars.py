"""The answer of `fleet fit` for people: one bar a device, the margin, what would fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from fleet.cli.output import console, notes
from fleet.sizes import ByteSize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.compiler.memory.advice import Advice
    from fleet.compiler.memory.fit import DeviceFit, Verdict
    from fleet.compiler.memory.plan_memory import MemoryPlan

_WIDTH = 60
# a letter beside the colour, for terminals and eyes without one
_PARTS = (
    ("weights", "W", "blue"), ("kv", "K", "green"), ("state", "S", "cyan"),
    ("compute", "C", "magenta"), ("overhead", "o", "yellow"),
)  # fmt: skip
_TIERS = {"file": "from the file", "record": "from a shipped record", "config": "from a config"}


def print_bars(plan: MemoryPlan, verdict: Verdict, advice: Sequence[Advice], where: str) -> None:
    """Print the plan, the verdict and the advice."""
    question = plan.question
    quant = question.model.weights.quant if question.model.weights else "weights not counted"
    head = f"{question.model.name} {quant}, {question.context} tokens, on {where}"
    console.print(f"{head}: {verdict.answer} ({_TIERS[plan.tier]})", markup=False)
    if plan.refused:
        console.print(f"the engine refuses this launch: {plan.refused}", markup=False)
        return
    for fitted in (*verdict.devices, verdict.host):
        console.print(_bar(fitted))
        console.print(_figures(fitted), markup=False)
    later = ByteSize(plan.checkpoints + plan.cache_ram)
    console.print(
        f"     once full: {ByteSize(plan.checkpoints)} of checkpoints and "
        f"{ByteSize(plan.cache_ram)} of past prompts, {later} more on the host"
        + (f" ({verdict.later})" if verdict.host.capacity is not None else ""),
        markup=False,
    )
    for each in advice:
        change = ", ".join(f"{key}={value}" for key, value in each.set.items())
        console.print(f"  {change}: {each.why}", markup=False)
    if verdict.answer == "no" and not advice:
        console.print("  no setting makes it fit: a smaller quantisation or more memory would")
    for text in plan.notes:
        notes.print(f"note: {text}", markup=False)


def _bar(fitted: DeviceFit) -> Text:
    share = fitted.share
    whole = max(fitted.capacity or 0, share.total, 1)
    bar = Text(f"{share.name:>4} ")
    drawn = 0
    for name, letter, colour in _PARTS:
        width = round(getattr(share, name) * _WIDTH / whole)
        bar.append(letter * width, style=colour)
        drawn += width
    bar.append("." * max(0, _WIDTH - drawn), style="dim")
    return bar


def _figures(fitted: DeviceFit) -> str:
    share = fitted.share
    sizes = ", ".join(
        f"{name} {ByteSize(getattr(share, name))}" for name, *_ in _PARTS if getattr(share, name)
    )
    if fitted.free is None:
        return f"     {sizes}, capacity not known"
    state = (
        f"free {ByteSize(fitted.free)}" if fitted.free >= 0 else f"short {ByteSize(-fitted.free)}"
    )
    return f"     {sizes}, {state} of {ByteSize(fitted.capacity or 0)}"

"""From which context length on speculation stops paying, out of what the trials measured.

A run keeps the generation rate of its requests by the length of their prompts, in steps of
powers of two. Compared are runs that differ in nothing but speculation; without such runs
those of the default, when it does not speculate.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING

from fleet.tune.run_figures import LENGTH
from fleet.tune.speculation_kinds import PARAMETER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet.tune.run_study import Trial
    from fleet.tune.search_space import Settings

OFF = "none"
Rates = dict[int, float]  # tokens a second by the least length of a prompt


def speculation_by_length(
    trials: Sequence[Trial], *, default: Settings, best: Settings
) -> str | None:
    """Say where the best's speculation pays; None when none was tried.

    Where the best does not speculate it is the one that was run most often.
    """
    tried = [one.settings for one in trials if one.settings.get(PARAMETER, OFF) != OFF]
    if not tried:
        return None
    on = best if best.get(PARAMETER, OFF) != OFF else max(tried, key=tried.count)
    what = f"speculation {on[PARAMETER]}"
    with_it, without = _rates(trials, on), _rates(trials, {**on, PARAMETER: OFF})
    against = "none, others as they are"
    if not without and default.get(PARAMETER) == OFF:
        without, against = _rates(trials, default), "the default"
    lengths = sorted(with_it.keys() & without.keys())
    if not lengths:
        return f"{what} by context length: not measured, no run without it is like it"
    if len(lengths) == 1:
        return (
            f"{what} by context length: not measured, all requests are of one length "
            f"({lengths[0]} to {2 * lengths[0] - 1} tokens)"
        )
    ratios = {length: with_it[length] / without[length] for length in lengths}
    told = ", ".join(f"{length}: {ratio - 1:+.1%}" for length, ratio in ratios.items())
    return f"{what} {_crossover(ratios)} (tokens of context, against {against}: {told})"


def _crossover(ratios: Mapping[int, float]) -> str:
    """Say from which length on no ratio is above 1."""
    paying = [length for length, ratio in ratios.items() if ratio > 1]
    span = f"{min(ratios)} to {2 * max(ratios) - 1} tokens"
    if not paying:
        return f"pays at no measured length, {span}"
    above = [length for length in ratios if length > max(paying)]
    if above:
        return f"stops paying from {above[0]} tokens of context on"
    if len(paying) == len(ratios):
        return f"pays at every measured length, {span}"
    least = min(length for length in paying if all(ratios[n] > 1 for n in ratios if n >= length))
    return f"pays only from {least} tokens of context on"


def _rates(trials: Sequence[Trial], settings: Settings) -> Rates:
    found: dict[int, list[float]] = defaultdict(list)
    for trial in trials:
        if trial.settings == settings:
            for name, rate in trial.outcome.figures.items():
                if name.startswith(LENGTH):
                    found[int(name.removeprefix(LENGTH))].append(rate)
    return {length: median(rates) for length, rates in found.items()}

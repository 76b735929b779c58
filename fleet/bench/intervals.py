"""Estimates with their 95% intervals, from repeats."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean, stdev, variance
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# two-sided 97.5% quantiles of Student's t for 1 to 30 degrees of freedom
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
_NORMAL = 1.960
_ENOUGH = 2  # repeats below which there is no spread to speak of


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """A figure and its 95% interval; None bounds when there was one repeat only."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def proven(self) -> bool:
        """Whether an interval exists."""
        return self.low is not None


def t_quantile(degrees: float) -> float:
    """Return the 97.5% quantile of Student's t; between whole degrees the wider one."""
    whole = int(degrees)
    return _T[max(whole, 1) - 1] if whole <= len(_T) else _NORMAL


def mean_of(values: Sequence[float]) -> Estimate:
    """Return the mean of independent repeats with its interval."""
    middle = fmean(values)
    if len(values) < _ENOUGH:
        return Estimate(value=middle)
    half = t_quantile(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return Estimate(value=middle, low=middle - half, high=middle + half)


def ratio_of(before: Sequence[float], after: Sequence[float]) -> Estimate | None:
    """Return before / after of paired repeats: the mean of logarithms, its interval.

    None when a time is zero or nothing is paired: there is no ratio then.
    """
    if not before or min(*before, *after) <= 0:
        return None
    logs = mean_of([math.log(x / y) for x, y in zip(before, after, strict=True)])
    if logs.low is None or logs.high is None:
        return Estimate(value=math.exp(logs.value))
    return Estimate(value=math.exp(logs.value), low=math.exp(logs.low), high=math.exp(logs.high))


def difference_of(before: Sequence[float], after: Sequence[float]) -> Estimate:
    """Return mean(after) - mean(before) of two unpaired samples, with Welch's interval."""
    gap = fmean(after) - fmean(before)
    if min(len(before), len(after)) < _ENOUGH:
        return Estimate(value=gap)
    parts = [variance(side) / len(side) for side in (before, after)]
    total = sum(parts)
    if total == 0:
        return Estimate(value=gap, low=gap, high=gap)
    degrees = total**2 / sum(
        part**2 / (len(side) - 1) for part, side in zip(parts, (before, after), strict=True)
    )
    half = t_quantile(degrees) * math.sqrt(total)
    return Estimate(value=gap, low=gap - half, high=gap + half)

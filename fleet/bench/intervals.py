"""Estimates with their 95% intervals, from repeats."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean, variance
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


def total_of(strata: Sequence[Sequence[float]]) -> Estimate:
    """Return the sum of the strata's means; each stratum holds repeats of its own.

    The interval comes from the spread within strata, with Welch's and Satterthwaite's
    degrees of freedom. A stratum of one value has no spread: then there is no interval.
    """
    value = sum(fmean(stratum) for stratum in strata)
    if not strata or min(len(stratum) for stratum in strata) < _ENOUGH:
        return Estimate(value=value)
    parts = [variance(stratum) / len(stratum) for stratum in strata]
    total = sum(parts)
    if total == 0:
        return Estimate(value=value, low=value, high=value)
    degrees = total**2 / sum(
        part**2 / (len(stratum) - 1) for part, stratum in zip(parts, strata, strict=True)
    )
    half = t_quantile(degrees) * math.sqrt(total)
    return Estimate(value=value, low=value - half, high=value + half)


def quotient_of(
    above: Sequence[Sequence[float]], below: Sequence[Sequence[float]]
) -> Estimate | None:
    """Return total(above) / total(below) of strata whose values are paired.

    The logarithm of the quotient is linear in small changes of each value, which gives the
    interval. None when a total is not above zero: there is no quotient then.
    """
    top, bottom = total_of(above).value, total_of(below).value
    if min(top, bottom) <= 0:
        return None
    spread = total_of([
        [x / top - y / bottom for x, y in zip(*pair, strict=True)]
        for pair in zip(above, below, strict=True)
    ])  # fmt: skip
    value = top / bottom
    if spread.low is None or spread.high is None:
        return Estimate(value=value)
    half = (spread.high - spread.low) / 2
    return Estimate(value=value, low=value * math.exp(-half), high=value * math.exp(half))


def difference_of(before: Sequence[float], after: Sequence[float]) -> Estimate:
    """Return mean(after) - mean(before) of two unpaired samples."""
    return total_of([after, [-value for value in before]])

"""Statistics of a ratio: runs of two settings, interleaved, on a machine that drifts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

ONE_SIDED_95 = 1.6449
TWO_SIDED_95 = 1.96
POWER_80 = 0.8416
HUBER = 2.0  # residuals beyond so many standard deviations are pulled in
ROUNDS = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Ratio:
    """A log ratio and its standard deviation; 0 means equal, 0.1 about 10% better."""

    log_ratio: float
    deviation: float

    @property
    def interval(self) -> tuple[float, float]:
        """Two-sided 95% interval of the ratio itself."""
        reach = TWO_SIDED_95 * self.deviation
        return math.exp(self.log_ratio - reach), math.exp(self.log_ratio + reach)


def lower(ratio: Ratio) -> float:
    """One-sided lower 95% bound of the log ratio."""
    return ratio.log_ratio - ONE_SIDED_95 * ratio.deviation


def upper(ratio: Ratio) -> float:
    """One-sided upper 95% bound of the log ratio."""
    return ratio.log_ratio + ONE_SIDED_95 * ratio.deviation


def paired_ratio(
    runs: Sequence[tuple[int, bool, float]], *, noise: float, drift: float
) -> Ratio | None:
    """Return candidate over default from runs `(when, is the candidate's, log value)`.

    Generalised least squares for the two levels under a random walk of `drift` a step and
    run-to-run `noise`, with Huber weights against bursts; None without a run of each. In
    A B B A order without outliers it is the mean of the pairs' log ratios.
    """
    ours = np.array([run[1] for run in runs], dtype=bool)
    if not ours.any() or ours.all():
        return None
    when = np.array([run[0] for run in runs], dtype=float)
    values = np.array([run[2] for run in runs])
    design = np.stack([np.ones(len(runs)), ours.astype(float)], axis=1)
    walk = drift**2 * np.minimum.outer(when - when.min(), when - when.min())
    inflation = np.ones(len(runs))
    levels, covariance = np.zeros(2), np.eye(2)
    for _ in range(ROUNDS):
        precision = np.linalg.inv(walk + np.diag(noise**2 * inflation))
        covariance = np.linalg.inv(design.T @ precision @ design)
        levels = covariance @ design.T @ precision @ values
        residual = np.abs(values - design @ levels) / math.hypot(noise, drift)
        inflation = np.maximum(1.0, residual / HUBER) ** 2
    return Ratio(log_ratio=float(levels[1]), deviation=math.sqrt(float(covariance[1, 1])))


def smallest_provable_gain(noise: float, pairs: float) -> float:
    """Return the gain that `pairs` pairs show with 80% power at the one-sided 95% level.

    `noise` is the run-to-run standard deviation in log value.
    """
    return math.expm1((ONE_SIDED_95 + POWER_80) * noise * math.sqrt(2 / max(pairs, 1.0)))


def robust_deviation(values: Sequence[float]) -> float:
    """Return 1.4826 times the median absolute deviation of log values, outliers ignored."""
    if len(values) < 2:  # noqa: PLR2004 - one value has no spread
        return 0.0
    array = np.array(values)
    return float(1.4826 * np.median(np.abs(array - np.median(array))))

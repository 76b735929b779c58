"""What is believed about a surface after some noisy runs: a Gaussian process in log values.

The logarithm of the measured value is taken as

    level + main effects + pairs and higher interactions + the cell's own + drift(t) + noise

- Effects multiply in the value (twice the speed, 10% off), so they add in its logarithm. The
  kernel is c^2 * (prod_d (1 + (a_d/c)^2 k_d) - 1): amplitude a_d of each parameter, pairs
  of size a_d*a_e/c. k_d is Matern 3/2 over the positions of ordered values, equality else.
- Drift of the machine is a random walk over the run's number, so that runs near in time are
  compared with each other, which is what interleaved pairs do by hand.
- Noise has heavy tails: each run's variance grows with how far it lies from what all others
  say of it (its leave-one-out residual), as in a Student t fit by reweighting.

Amplitudes, lengths and noise are not known either. A few particles, each a full set of them,
walk by Metropolis steps under the marginal likelihood and a wide prior; beliefs are averaged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fleet.tune.search_space import Cell, Param

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

PARTICLES = 8
STEPS = 2  # Metropolis steps of each particle after each run
TAIL = 4.0  # degrees of freedom of the noise
WIDEST = 400.0  # an outlier's variance is at most this many times the noise's
LEVEL_SD = 3.0
# log medians and spreads of the prior: amplitudes, lengths, interaction scale, own, noise, drift
AMPLITUDE, LENGTH, SCALE = (np.log(0.12), 1.0), (np.log(0.6), 0.7), (np.log(0.6), 0.7)
OWN, NOISE, DRIFT = (np.log(0.01), 1.0), (np.log(0.015), 0.9), (np.log(0.003), 0.9)


@dataclass(frozen=True, kw_only=True, slots=True)
class Belief:
    """Mean and covariance of the log value of some cells, one row for each particle."""

    mean: Floats  # (particles, cells)
    covariance: Floats  # (particles, cells, cells)


class SurfaceModel:
    """The runs so far and the particles; `add` one run at a time, then ask for beliefs."""

    def __init__(self, params: Sequence[Param], rng: np.random.Generator) -> None:
        """Start with particles drawn from the prior."""
        self._rng = rng
        self._dims = len(params)
        self._distances = [_distances(param) for param in params]
        medians = [AMPLITUDE[0]] * self._dims + [LENGTH[0]] * self._dims
        spreads = [AMPLITUDE[1]] * self._dims + [LENGTH[1]] * self._dims
        rest = (SCALE, OWN, NOISE, DRIFT)
        self._medians = np.array([*medians, *(pair[0] for pair in rest)])
        self._spreads = np.array([*spreads, *(pair[1] for pair in rest)])
        shape = (PARTICLES, len(self._medians))
        self._theta = self._medians + 0.5 * self._spreads * rng.standard_normal(shape)
        self._cells = np.zeros((0, self._dims), dtype=np.int64)
        self._times = np.zeros(0)
        self._values = np.zeros(0)
        self._inflation = np.ones((PARTICLES, 0))
        self._inverted: Floats | None = None

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self._values)

    def add(self, cell: Cell, time: float, log_value: float) -> None:
        """Take one run into account; `time` counts runs, failed ones too."""
        self._cells = np.vstack([self._cells, np.array([cell], dtype=np.int64)])
        self._times = np.append(self._times, time)
        self._values = np.append(self._values, log_value)
        self._inflation = np.hstack([self._inflation, np.ones((PARTICLES, 1))])
        for _ in range(STEPS):
            self._walk()
        self._reweigh()
        self._inverted = None

    @property
    def noise(self) -> float:
        """The run-to-run standard deviation in log value, over the particles' median."""
        return float(np.exp(np.median(self._theta[:, -2])))

    @property
    def drift(self) -> float:
        """The machine's drift from run to run, standard deviation in log value."""
        return float(np.exp(np.median(self._theta[:, -1])))

    def believe(self, cells: Ints) -> Belief:
        """Return the belief about `cells` with the machine as it was on average."""
        cross = self._kernel(self._theta, cells, self._cells) + LEVEL_SD**2
        inside = self._kernel(self._theta, cells, cells) + LEVEL_SD**2
        gain = cross @ self._inverse()
        centre = self._values.mean()
        mean = centre + gain @ (self._values - centre)
        return Belief(mean=mean, covariance=inside - gain @ cross.transpose(0, 2, 1))

    def spread(self, cells: Ints) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of `cells` (particles, cells), no covariances."""
        cross = self._kernel(self._theta, cells, self._cells) + LEVEL_SD**2
        gain = cross @ self._inverse()
        centre = self._values.mean()
        mean = centre + gain @ (self._values - centre)
        prior = self._prior_variance() + LEVEL_SD**2
        variance = prior[:, None] - np.einsum("pij,pij->pi", gain, cross)
        return mean, np.sqrt(np.maximum(variance, 1e-12))

    def _inverse(self) -> Floats:
        if self._inverted is None:
            self._inverted = np.linalg.inv(self._covariance(self._theta)).astype(np.float64)
        return self._inverted

    def _prior_variance(self) -> Floats:
        scale2 = np.exp(2 * self._theta[:, -4])
        main2 = np.exp(2 * self._theta[:, : self._dims]) / scale2[:, None]
        own = np.exp(2 * self._theta[:, -3])
        result: Floats = scale2 * (np.prod(1 + main2, axis=1) - 1) + own
        return result

    def _kernel(self, theta: Floats, left: Ints, right: Ints) -> Floats:
        """Covariance of effects and cells' own parts, without level, drift and noise."""
        scale2 = np.exp(2 * theta[:, -4])[:, None, None]
        product = np.ones((len(theta), len(left), len(right)))
        same = np.ones((len(left), len(right)), dtype=bool)
        for at, distances in enumerate(self._distances):
            amplitude2 = np.exp(2 * theta[:, at])[:, None, None] / scale2
            table = 1 + amplitude2 * _correlation(
                distances, np.exp(theta[:, self._dims + at])[:, None, None]
            )
            product *= table[:, left[:, at][:, None], right[:, at][None, :]]
            same &= left[:, at][:, None] == right[:, at][None, :]
        own = np.exp(2 * theta[:, -3])[:, None, None]
        kernel: Floats = scale2 * (product - 1) + own * same
        return kernel

    def _covariance(self, theta: Floats) -> Floats:
        """Covariance of the runs as measured."""
        drift2 = np.exp(2 * theta[:, -1])[:, None, None]
        # the walk is anchored at the middle of the study, which the level absorbs
        times = self._times - self._times.mean()
        walk = np.where(
            times[:, None] * times[None, :] > 0,
            np.minimum(np.abs(times)[:, None], np.abs(times)[None, :]),
            0.0,
        )
        noise = np.exp(2 * theta[:, -2])[:, None] * self._inflation
        kernel = self._kernel(theta, self._cells, self._cells)
        covariance: Floats = kernel + LEVEL_SD**2 + drift2 * walk
        index = np.arange(len(self._values))
        covariance[:, index, index] += noise + 1e-10
        return covariance

    def _walk(self) -> None:
        """One Metropolis step of every particle, in a random half of the coordinates."""
        shape = self._theta.shape
        step = 0.6 * self._spreads * self._rng.standard_normal(shape)
        step *= self._rng.random(shape) < 0.5  # noqa: PLR2004 - a half
        proposal = self._theta + step
        both = np.concatenate([self._theta, proposal])
        score = self._score(both)
        gain = score[PARTICLES:] - score[:PARTICLES]
        taken = np.log(self._rng.random(PARTICLES)) < gain
        self._theta = np.where(taken[:, None], proposal, self._theta)

    def _score(self, theta: Floats) -> Floats:
        """Log of marginal likelihood times prior."""
        twice = np.concatenate([self._inflation] * (len(theta) // PARTICLES))
        kept, self._inflation = self._inflation, twice
        covariance = self._covariance(theta)
        self._inflation = kept
        lower = np.linalg.cholesky(covariance)
        centred = self._values - self._values.mean()
        solved = np.linalg.solve(
            covariance, np.broadcast_to(centred, (len(theta), len(centred)))[..., None]
        )
        fit = -0.5 * np.einsum("i,pi->p", centred, solved[..., 0])
        size = -np.log(np.einsum("pii->pi", lower)).sum(axis=1)
        prior = -0.5 * (((theta - self._medians) / self._spreads) ** 2).sum(axis=1)
        result: Floats = fit + size + prior
        return result

    def _reweigh(self) -> None:
        """Let each run's variance follow its leave-one-out residual."""
        inverse = np.linalg.inv(self._covariance(self._theta))
        centred = self._values - self._values.mean()
        diagonal = np.einsum("pii->pi", inverse)
        noise2 = np.exp(2 * self._theta[:, -2])[:, None]
        residual = (inverse @ centred) / diagonal
        variance = np.maximum(1 / diagonal - noise2 * (self._inflation - 1), noise2)
        wanted = (TAIL + residual**2 / variance) / (TAIL + 1)
        self._inflation = np.clip(wanted, 0.8, WIDEST)


def _distances(param: Param) -> Floats:
    """Distances between the positions of an ordered parameter's values.

    For names without order, the identity with a minus sign.
    """
    if param.positions is None:
        return -np.eye(len(param.values))
    positions = np.array(param.positions)
    distances: Floats = np.abs(positions[:, None] - positions[None, :])
    return distances


def _correlation(distances: Floats, length: Floats) -> Floats:
    if distances.min() < 0:  # an identity matrix, negated: names without order
        return np.broadcast_to(-distances, (len(length), *distances.shape))
    scaled = np.sqrt(3.0) * distances / length
    result: Floats = (1 + scaled) * np.exp(-scaled)
    return result

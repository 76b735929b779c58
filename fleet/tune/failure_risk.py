"""How likely a cell fails, by what the failures so far have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

BLAMES = 6  # rounds in which failures find what explains them
INNOCENT = 1e-3  # chance that values which went well together once are to blame


def failure_risk(groups: Ints, good: Flags, barred: Flags, pool: Sequence[int]) -> Floats:
    """Return for each cell of `pool` 1 where it failed, else by the values it has in common.

    `groups` are those of all cells, `good` says which went well, `barred` which failed. Each
    failure is blamed on a value or a pair of values that never went well; what explains more
    failures takes the blame from the others.
    """
    if not barred.any():
        return np.zeros(len(pool))
    total = int(groups.max()) + 1
    cleared = np.zeros(total, dtype=bool)
    cleared[groups[:, good & ~barred]] = True
    failed = groups[:, barred]
    suspect = np.where(cleared, INNOCENT, 1.0)
    for _ in range(BLAMES):
        share = suspect[failed]
        share /= share.sum(axis=0)
        blame = np.bincount(failed.ravel(), weights=share.ravel(), minlength=total)
        suspect = np.where(cleared, INNOCENT, 1 - 0.5**blame)
    risk: Floats = 1 - np.prod(1 - suspect[groups[:, pool]], axis=0)
    risk[barred[pool]] = 1.0
    return risk


def value_groups(cells: Ints) -> Ints:
    """Return numbers for the values that a cell has, of each parameter and each pair of them.

    One row each, one column a cell; no number is used in two rows.
    """
    dims = range(cells.shape[1])
    rows: list[Ints] = []
    first = 0
    for columns in [*([at] for at in dims), *([a, b] for a in dims for b in range(a))]:
        _, row = np.unique(cells[:, columns], axis=0, return_inverse=True)
        rows.append(row.reshape(-1) + first)
        first = int(rows[-1].max()) + 1
    return np.array(rows)

"""What may be tried: parameters with their values, the default, and what is dear to change.

A *cell* is one combination, written as the index of each parameter's value. Values that are
numbers (or all read as numbers) keep their order: a model may then learn that 12 threads lie
between 8 and 16. Everything else is a set of names without order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from fleet.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

Value = str | int | float | bool | None
Cell = tuple[int, ...]
Settings = dict[str, Value]

WIDE = 3.0  # from this ratio of largest to smallest on, steps are read as ratios
MOST_CELLS = 20_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Param:
    """One parameter; `positions` (0 to 1, in order) only when its values are ordered."""

    name: str
    values: tuple[Value, ...]
    dear: bool = False
    positions: tuple[float, ...] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchSpace:
    """The parameters, where to start, and which way is better.

    `allowed` holds every cell that may be tried, the default first; it is the whole product
    unless a rule (quantised V needs flash attention, ubatch at most batch) leaves some out.
    """

    params: tuple[Param, ...]
    default: Cell
    allowed: tuple[Cell, ...]
    maximize: bool = True

    def settings(self, cell: Cell) -> Settings:
        """Return the values that the indexes of `cell` stand for."""
        return {
            param.name: param.values[index] for param, index in zip(self.params, cell, strict=True)
        }

    def cell(self, settings: Mapping[str, Value]) -> Cell | None:
        """Return the cell of `settings`, or None when a value is not in the space."""
        try:
            return tuple(_index(param.values, settings[param.name]) for param in self.params)
        except (KeyError, ValueError):
            return None

    def reloads(self, before: Cell | None, after: Cell) -> bool:
        """Whether going from one cell to the other changes a parameter that is dear."""
        if before is None:
            return True
        return any(
            param.dear and left != right
            for param, left, right in zip(self.params, before, after, strict=True)
        )


def make_space(
    params: Mapping[str, Sequence[Value]],
    default: Mapping[str, Value],
    *,
    dear: Sequence[str] = (),
    maximize: bool = True,
    allows: Callable[[Settings], bool] = lambda _: True,
) -> SearchSpace:
    """Build a space; raises `UserError` for an empty parameter or a default outside it."""
    made = tuple(_param(name, values, dear=name in dear) for name, values in params.items())
    start = tuple(_default_index(param, default) for param in made)
    space = SearchSpace(params=made, default=start, allowed=(start,), maximize=maximize)
    size = math.prod(len(param.values) for param in made)
    whole = product(*(range(len(param.values)) for param in made))
    cells: Iterable[Cell] = whole if size <= MOST_CELLS else _spread(made, start)
    others = (cell for cell in cells if cell != start and allows(space.settings(cell)))
    return SearchSpace(params=made, default=start, allowed=(start, *others), maximize=maximize)


def parse_space(raw: object, *, where: str) -> SearchSpace:
    """Read the JSON object of `tune external`; raises `UserError` naming the key at fault."""
    if not isinstance(raw, dict):
        raise UserError("a space is a JSON object", where=where, fix=_EXAMPLE)
    wrong = next(_mistakes(raw), None)
    if wrong is not None:
        raise UserError(wrong, where=where, fix=_EXAMPLE)
    try:
        return make_space(
            raw["params"],
            raw["default"],
            dear=raw.get("load", []),
            maximize=raw.get("maximize", True),
        )
    except UserError as error:
        raise UserError(error.message, where=where, fix=error.fix) from None


def _mistakes(raw: Mapping[str, object]) -> Iterator[str]:
    params, default, dear = raw.get("params"), raw.get("default"), raw.get("load", [])
    if not isinstance(params, dict) or not params:
        yield "`params` must name at least one parameter"
        return
    if not isinstance(default, dict):
        yield "`default` must give each parameter's value"
        return
    for name, values in params.items():
        if not isinstance(values, list) or not values or not all(map(_scalar, values)):
            yield f"`params.{name}` must be a list of values"
    if not isinstance(dear, list) or not all(name in params for name in dear):
        yield "`load` must be a list of names of `params`"
    if not isinstance(raw.get("maximize", True), bool):
        yield "`maximize` is true or false"
    yield from (f"`default.{name}` is no parameter" for name in default if name not in params)
    known = {"params", "default", "load", "maximize"}
    yield from (f"unknown key `{name}`" for name in raw if name not in known)


_EXAMPLE = (
    'for instance {"params": {"threads": [4, 8]}, "default": {"threads": 4}, '
    '"load": [], "maximize": true}'
)


def _scalar(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def _param(name: str, values: Sequence[Value], *, dear: bool) -> Param:
    if not values:
        raise UserError(f"parameter `{name}` has no values")
    kept = [value for at, value in enumerate(values) if not _known(value, values[:at])]
    numbers = _numbers(kept)
    if numbers is None or len(numbers) < 3:  # noqa: PLR2004 - two values have no order to learn
        return Param(name=name, values=tuple(kept), dear=dear)
    order = sorted(range(len(kept)), key=lambda at: numbers[at])
    ordered = [numbers[at] for at in order]
    return Param(
        name=name,
        values=tuple(kept[at] for at in order),
        dear=dear,
        positions=_positions(ordered),
    )


def _known(value: Value, before: Sequence[Value]) -> bool:
    return any(value == other and type(value) is type(other) for other in before)


def _numbers(values: Sequence[Value]) -> list[float] | None:
    """Return the values as numbers when all are, also when written as text."""
    numbers: list[float] = []
    for value in values:
        if isinstance(value, bool) or value is None:
            return None
        try:
            numbers.append(float(value))
        except ValueError:
            return None
    return numbers if all(map(math.isfinite, numbers)) else None


def _positions(ordered: Sequence[float]) -> tuple[float, ...]:
    """Place ordered numbers between 0 and 1, half by their rank and half by their size.

    Sizes are taken as logarithms when they span a wide range, and only between positive
    values; a value such as 0 or -1 (off, all) keeps its rank alone.
    """
    last = len(ordered) - 1
    ranks = [at / last for at in range(len(ordered))]
    if ordered[0] <= 0:
        return tuple(ranks)
    wide = ordered[-1] / ordered[0] >= WIDE
    sizes = [math.log(value) if wide else value for value in ordered]
    span = sizes[-1] - sizes[0]
    if span <= 0:
        return tuple(ranks)
    return tuple(
        (rank + (size - sizes[0]) / span) / 2 for rank, size in zip(ranks, sizes, strict=True)
    )


def _index(values: Sequence[Value], value: Value) -> int:
    for at, candidate in enumerate(values):
        if candidate == value and isinstance(candidate, bool) == isinstance(value, bool):
            return at
    raise ValueError(value)


def _default_index(param: Param, default: Mapping[str, Value]) -> int:
    if param.name not in default:
        raise UserError(f"`default` does not give `{param.name}`")
    try:
        return _index(param.values, default[param.name])
    except ValueError:
        raise UserError(
            f"the default `{default[param.name]}` of `{param.name}` is not among its values",
            fix=f"add it to `params.{param.name}`",
        ) from None


def _spread(params: Sequence[Param], start: Cell) -> list[Cell]:
    """Return `MOST_CELLS` cells of a space too large to list: near the default, then spread.

    All cells that differ in one or two parameters come first; the rest follow a fixed
    additive (Kronecker) sequence, which covers every parameter's values evenly.
    """
    found = dict.fromkeys([start, *_neighbours(params, start)])
    steps = [math.sqrt(prime) % 1 for prime in _primes(len(params))]
    at = 0
    while len(found) < MOST_CELLS and at < 4 * MOST_CELLS:
        at += 1
        found.setdefault(
            tuple(
                int((at * step) % 1 * len(param.values))
                for param, step in zip(params, steps, strict=True)
            )
        )
    return list(found)[:MOST_CELLS]


def _neighbours(params: Sequence[Param], start: Cell) -> list[Cell]:
    changes = [(at, index) for at, param in enumerate(params) for index in range(len(param.values))]
    once = [_with(start, change) for change in changes]
    return [*once, *(_with(cell, change) for cell in once for change in changes)]


def _with(cell: Cell, change: tuple[int, int]) -> Cell:
    at, index = change
    return (*cell[:at], index, *cell[at + 1 :])


def _primes(count: int) -> list[int]:
    found: list[int] = []
    number = 2
    while len(found) < count:
        if all(number % prime for prime in found):
            found.append(number)
        number += 1
    return found

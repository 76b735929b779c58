"""In which order the cells of a run are measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One conversation under one condition, once: all its turns on one fresh server."""

    deployment: str
    conversation: str
    condition: str
    repeat: int


def plan_order(
    *,
    deployments: Sequence[str],
    conversations: Sequence[str],
    conditions: Sequence[str],
    repeats: int,
) -> tuple[Cell, ...]:
    """Return every cell once, conditions side by side and each in every place in turn.

    A machine that grows warmer or busier in the course of a run would favour whatever is
    measured first. So the conditions of one conversation follow each other directly, and
    their order is rotated from one conversation and repeat to the next.
    """
    cells: list[Cell] = []
    for repeat in range(1, repeats + 1):
        for deployment in deployments:
            for place, conversation in enumerate(conversations):
                start = (place + repeat - 1) % len(conditions)
                cells.extend(
                    Cell(
                        deployment=deployment,
                        conversation=conversation,
                        condition=condition,
                        repeat=repeat,
                    )
                    for condition in (*conditions[start:], *conditions[:start])
                )
    return tuple(cells)

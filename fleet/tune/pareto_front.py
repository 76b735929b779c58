"""The trials that no other one equals or beats in both of two figures."""

from __future__ import annotations


def pareto_front(both: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points that no other one equals or beats in both, from left to right."""
    front: list[tuple[float, float]] = []
    for across, up in sorted(set(both), reverse=True):
        if not front or up > front[-1][1]:
            front.append((across, up))
    return front[::-1]

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.bench.order import plan_order

pytestmark = pytest.mark.pure

CONDITIONS = ("C0", "C1", "C2", "C3")


@given(talks=st.integers(1, 6), conditions=st.integers(1, 5), repeats=st.integers(1, 6))
def test_every_cell_comes_once_and_conditions_of_a_conversation_are_neighbours(
    talks: int, conditions: int, repeats: int
) -> None:
    names = [f"C{k}" for k in range(conditions)]
    cells = plan_order(
        deployments=("d",),
        conversations=[f"P{k}" for k in range(talks)],
        conditions=names,
        repeats=repeats,
    )

    assert len(cells) == len(set(cells)) == talks * conditions * repeats
    for start in range(0, len(cells), conditions):
        block = cells[start : start + conditions]
        assert len({(cell.conversation, cell.repeat) for cell in block}) == 1
        assert {cell.condition for cell in block} == set(names)


def test_each_condition_comes_first_in_turn() -> None:
    cells = plan_order(
        deployments=("d",), conversations=("P0", "P1", "P2", "P3"), conditions=CONDITIONS, repeats=1
    )

    assert [cell.condition for cell in cells[::4]] == list(CONDITIONS)

"""Rules of the search space."""

from __future__ import annotations

import pytest

from fleet.errors import UserError
from fleet.tune.search_space import MOST_CELLS, make_space, parse_space

pytestmark = pytest.mark.pure
SPACE = {
    "params": {"threads": [2, 4, 8], "fa": ["off", "on"]},
    "default": {"threads": 4, "fa": "off"},
    "load": ["fa"],
}


def test_the_default_comes_first_and_every_cell_once() -> None:
    space = parse_space(SPACE, where="s")

    assert space.settings(space.allowed[0]) == {"threads": 4, "fa": "off"}
    assert len(set(space.allowed)) == len(space.allowed) == 6


def test_numbers_written_as_text_keep_their_order_and_their_spelling() -> None:
    space = make_space({"n": ["16", "4", "8"]}, {"n": "8"})

    assert space.params[0].values == ("4", "8", "16")
    assert space.params[0].positions == pytest.approx((0.0, 0.5, 1.0))


def test_names_have_no_order() -> None:
    assert make_space({"n": ["a", "b", "c"]}, {"n": "a"}).params[0].positions is None


def test_true_is_not_one() -> None:
    space = make_space({"n": [1, True, False]}, {"n": True})

    assert space.settings(space.default) == {"n": True}
    assert len(space.allowed) == 3


def test_only_a_dear_change_reloads() -> None:
    space = parse_space(SPACE, where="s")
    start, threads, attention = (
        space.cell({"threads": t, "fa": f}) for t, f in ((4, "off"), (8, "off"), (4, "on"))
    )

    assert threads is not None
    assert attention is not None
    assert not space.reloads(start, threads)
    assert space.reloads(start, attention)


def test_a_rule_leaves_cells_out_but_never_the_default() -> None:
    space = make_space({"n": [1, 2, 3]}, {"n": 1}, allows=lambda s: s["n"] == 3)

    assert [space.settings(cell)["n"] for cell in space.allowed] == [1, 3]


def test_a_space_too_large_to_list_is_covered_near_the_default_and_spread() -> None:
    params = {f"p{at}": [*range(10)] for at in range(6)}
    space = make_space(params, dict.fromkeys(params, 5))

    assert len(space.allowed) == MOST_CELLS
    assert len({cell[0] for cell in space.allowed}) == 10


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"params": {}}, "params"),
        ({"params": {"threads": []}}, "threads"),
        ({"params": {"threads": [[1]]}}, "threads"),
        ({"default": {"threads": 5, "fa": "off"}}, "threads"),
        ({"default": {"threads": 4}}, "fa"),
        ({"default": 4}, "default"),
        ({"load": ["other"]}, "load"),
        ({"maximize": "yes"}, "maximize"),
        ({"paramz": {}}, "paramz"),
    ],
)
def test_a_wrong_space_is_refused_by_name(change: dict[str, object], names: str) -> None:
    with pytest.raises(UserError, match=names):
        parse_space({**SPACE, **change}, where="space.json")

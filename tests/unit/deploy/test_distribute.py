"""Who gets a model from here, and who from a host that has it."""

from __future__ import annotations

import pytest

from fleet.deploy.distribute import split

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(
    ("having", "lacking", "lender", "borrowers"),
    [
        ((), (), None, ()),
        ((), ("a",), None, ()),  # from here: nobody else has it
        ((), ("a", "b", "c"), "a", ("b", "c")),  # the first gets it from here, then lends it
        (("z",), ("a",), "z", ("a",)),
        (("y", "z"), ("a", "b"), "y", ("a", "b")),
        (("z",), (), "z", ()),
    ],
)
def test_one_host_lends_to_all_that_lack_the_model(
    having: tuple[str, ...],
    lacking: tuple[str, ...],
    lender: str | None,
    borrowers: tuple[str, ...],
) -> None:
    assert split(having, lacking) == (lender, borrowers)

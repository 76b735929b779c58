"""What commands say in words: true, and of the thing that was asked about."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.fleet_command import fleet

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _here(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)


def test_a_key_that_no_server_asks_for_is_called_so() -> None:
    made = fleet("key", "demo", "--rotate")

    assert made.code == 0
    assert "no server asks for it yet" in made.err
    assert "old key" not in made.err

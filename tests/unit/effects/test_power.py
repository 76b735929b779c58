"""Power out of counters of energy."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from fleet.effects.power import PowerMeter
from fleet.errors import OutsideError

if TYPE_CHECKING:
    from pathlib import Path


def package(root: Path, name: str, microjoules: int) -> Path:
    folder = root / name
    folder.mkdir(exist_ok=True)
    (folder / "energy_uj").write_text(f"{microjoules}\n")
    (folder / "max_energy_range_uj").write_text("100000000\n")
    return folder


def measured(root: Path, before: int, after: int) -> tuple[float, float]:
    """Return the watts and the joules a second that they should be."""
    package(root, "intel-rapl:0", before)
    package(root, "intel-rapl:0:0", 5)  # a part, which the package has counted
    meter = PowerMeter(rapl=root)
    began = time.monotonic()
    meter.start()
    package(root, "intel-rapl:0", after)
    package(root, "intel-rapl:0:0", 50_000_000)
    time.sleep(0.05)
    watts = meter.stop()
    return watts, (time.monotonic() - began) * watts


def test_packages_alone_are_counted(tmp_path: Path) -> None:
    _, joules = measured(tmp_path, 1_000_000, 3_000_000)

    assert joules == pytest.approx(2, rel=0.2)


def test_a_counter_that_began_again_is_put_right(tmp_path: Path) -> None:
    _, joules = measured(tmp_path, 99_000_000, 1_000_000)

    assert joules == pytest.approx(2, rel=0.2)


def test_a_machine_that_does_not_tell_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(OutsideError, match="cannot be read"):
        PowerMeter(rapl=tmp_path).check_readable()

"""What TERM and HUP do to a command."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from fleet.cli import main as program
from fleet.effects.termination import term_interrupts

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    kinds = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(kind, signal.SIG_DFL) for kind in kinds]
    yield
    for kind, handler in zip(kinds, before, strict=True):
        signal.signal(kind, handler)


def send(kind: signal.Signals) -> None:
    os.kill(os.getpid(), kind)
    time.sleep(0)  # the handler runs before the next line


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGHUP])
def test_every_command_is_interrupted_by_it(
    kind: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    def command(**_: Any) -> int:
        send(kind)
        return 0

    monkeypatch.setattr(program, "app", command)

    with pytest.raises(SystemExit) as ended:
        program.main(["list"])

    assert ended.value.code == 130
    assert signal.getsignal(kind) is signal.SIG_DFL


def test_nohup_outlives_its_terminal() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with term_interrupts():
        send(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN

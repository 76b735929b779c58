"""TERM ends a command as Ctrl-C does: what it started is ended, what it stopped starts again."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def term_interrupts() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise KeyboardInterrupt in the main thread while inside.

    One that is ignored stays so: `nohup` outlives its terminal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    both = (signal.SIGTERM, signal.SIGHUP)
    kinds = [kind for kind in both if signal.getsignal(kind) is not signal.SIG_IGN]
    before = [signal.signal(kind, _interrupt) for kind in kinds]
    try:
        yield
    finally:
        for kind, handler in zip(kinds, before, strict=True):
            signal.signal(kind, handler)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt

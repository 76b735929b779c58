"""`-v`: what the parts of fleet say of their doings goes to stderr."""

from __future__ import annotations

import logging


def turn_on(level: int) -> None:
    """Show the log of fleet itself (1), then of the libraries too (2), then all of it (3)."""
    logging.basicConfig(format="%(name)s: %(message)s", level=logging.WARNING)
    logging.getLogger("fleet").setLevel(logging.DEBUG)
    if level > 1:
        logging.getLogger().setLevel(logging.INFO if level == 2 else logging.DEBUG)  # noqa: PLR2004

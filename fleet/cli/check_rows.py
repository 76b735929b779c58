"""Print checks, and leave with 1 when one is not as wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from fleet.cli.output import note, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.observe.checks import Check

NOT_AS_WANTED = 1


def answer_checks(checks: Sequence[Check], *, as_json: bool, with_host: bool = False) -> None:
    """Print `checks` in the contract's shape or as a table, then exit with 0 or 1."""
    if as_json:
        print_json({"checks": [_json(check, with_host=with_host) for check in checks]})
    else:
        rows = [("ok" if each.ok else "NO", each.name, each.message) for each in checks]
        print_table(("", "check", "found"), rows)
        for each in checks:
            if not each.ok and each.fix:
                note(f"{each.name}: {each.fix}")
    raise typer.Exit(0 if all(check.ok for check in checks) else NOT_AS_WANTED)


def _json(check: Check, *, with_host: bool) -> dict[str, object]:
    answer: dict[str, object] = {
        "name": check.name, "ok": check.ok, "message": check.message, "fix": check.fix,
    }  # fmt: skip
    return {"host": check.host, **answer} if with_host else answer

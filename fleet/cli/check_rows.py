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
        several = with_host and len({each.host for each in checks}) > 1
        rows = [("ok" if each.ok else "NO", each.host, each.name, each.message) for each in checks]
        columns = ("", "host", "check", "found")
        shown = [0, 1, 2, 3] if several else [0, 2, 3]
        print_table([columns[n] for n in shown], [[row[n] for n in shown] for row in rows])
        for each in checks:
            if not each.ok and each.fix:
                note(f"{f'{each.host}: ' if several else ''}{each.name}: {each.fix}")
    raise typer.Exit(0 if all(check.ok for check in checks) else NOT_AS_WANTED)


def _json(check: Check, *, with_host: bool) -> dict[str, object]:
    answer: dict[str, object] = {
        "name": check.name, "ok": check.ok, "message": check.message, "fix": check.fix,
    }  # fmt: skip
    return {"host": check.host, **answer} if with_host else answer

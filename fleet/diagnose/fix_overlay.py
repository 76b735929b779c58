"""What the findings would change, as settings of a profile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.profiles.settings_table import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleet.diagnose.finding import Finding


def fix_settings(findings: Iterable[Finding]) -> dict[str, tuple[str | int | bool, str]]:
    """Return setting -> value and the finding that asks for it; the first finding wins."""
    chosen: dict[str, tuple[str | int | bool, str]] = {}
    for finding in findings:
        if finding.level == "info" and finding.priority == "info":
            continue
        for name, value in finding.settings:
            if name in SETTINGS:
                chosen.setdefault(name, (value, finding.code))
    return chosen


def fix_overlay(findings: Iterable[Finding], source: str) -> str:
    """Return YAML: a `settings:` map for a deployment, each line with its reason."""
    lines = [
        f"# what `fleet diagnose {source}` would change; try it, measure, keep what helps.",
        "# Put it into a deployment file, or pass the lines one by one with `--set`.",
    ]
    rows = [
        f"  {name}: {_yaml(value)}  # {code}"
        for name, (value, code) in fix_settings(findings).items()
    ]
    return "\n".join([*lines, "settings:" if rows else "settings: {}", *rows]) + "\n"


def _yaml(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)

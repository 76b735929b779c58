"""What the findings would change, as settings of a profile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.profiles.settings_table import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fleet.diagnose.finding import Finding
    from fleet.profiles.settings_table import SettingScalar


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
    """Return YAML: a `settings:` map for a deployment, each line with its finding."""
    return overlay(fix_settings(findings), f"what `fleet diagnose {source}` would change")


def overlay(settings: Mapping[str, tuple[SettingScalar, str]], what: str) -> str:
    """Return YAML: a `settings:` map for a deployment, each line with its reason."""
    lines = [
        f"# {what}; try it, measure, keep what helps.",
        "# Put it into a deployment file, or pass the lines one by one with `--set`.",
    ]
    rows = [f"  {name}: {_yaml(value)}  # {why}" for name, (value, why) in settings.items()]
    return "\n".join([*lines, "settings:" if rows else "settings: {}", *rows]) + "\n"


def _yaml(value: SettingScalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

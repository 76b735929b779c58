"""A `LaunchConfig` as JSON and back, for records, labels and generations."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from fleet.compiler.launch_config import Health, LaunchConfig, Mount, SecretFile, Warn
from fleet.errors import OutsideError
from fleet.sizes import ByteSize

PARTS = {"mounts": Mount, "secrets": SecretFile, "warnings": Warn}
PAIRS = ("env", "attributes", "settings")
SIZES = ("memory_limit", "shm_size")


def launch_to_json(launch: LaunchConfig) -> dict[str, Any]:
    """Return plain values that `json.dumps` takes."""
    return asdict(launch)


def launch_from_json(record: dict[str, Any], *, where: str) -> LaunchConfig:
    """Return the launch that was written; unknown keys of a newer fleet are left out.

    Raises `OutsideError` when the record is damaged.
    """
    known = {field.name for field in fields(LaunchConfig)}
    try:
        given = {key: value for key, value in record.items() if key in known}
        for key, part in PARTS.items():
            given[key] = tuple(part(**each) for each in given.get(key, ()))
        for key in PAIRS:
            given[key] = tuple((str(name), value) for name, value in given.get(key, ()))
        for key in SIZES:
            given[key] = ByteSize(given[key]) if given.get(key) is not None else None
        given["health"] = Health(**given.get("health", {}))
        plain = {key: tuple(value) for key, value in given.items() if isinstance(value, list)}
        return LaunchConfig(**{**given, **plain})
    except (TypeError, ValueError, AttributeError) as error:
        raise damaged(where, str(error)) from None


def damaged(where: str, why: str) -> OutsideError:
    """Return the error for a state file that does not say what fleet wrote."""
    fix = f"move it away (`mv {where} {where}.damaged`) and run `fleet up` again"
    return OutsideError(f"the state file is damaged: {why}", where=where, fix=fix)

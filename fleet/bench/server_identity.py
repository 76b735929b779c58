"""What a started server really is, and whether two starts may be averaged."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from fleet.errors import NotAsWanted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fleet.compiler.launch_config import LaunchConfig

_KV = re.compile(r"K \((\w+)\):.*V \((\w+)\):")
_LAYERS = re.compile(r"offloaded (\d+/\d+) layers")
_PORT_FLAGS = ("--port", "--api-key-file", "--slot-save-path", "--log-file")
SAME = ("build", "context", "slots", "kv_types", "gpu_layers")
# the settings that may move each of them, so that a condition that asks for it is not refused
MOVED_BY = {
    "build": (),
    "context": ("ctx_size", "parallel", "kv_unified"),
    "slots": ("parallel", "kv_unified"),
    "kv_types": ("cache_type_k", "cache_type_v"),
    "gpu_layers": ("gpu_layers", "cpu_moe_layers", "speculation", "draft_model"),
}


def identity(launch: LaunchConfig, props: Mapping[str, Any], log: Iterable[str]) -> dict[str, Any]:
    """Return what must not change between starts of one condition.

    The log says KV types and layers only at a high enough verbosity; None means not said.
    """
    kv_types, layers = None, None
    for line in log:
        if kv_types is None and (found := _KV.search(line)):
            kv_types = "/".join(found.groups())
        if layers is None and (found := _LAYERS.search(line)):
            layers = found[1]  # the first is the target model, a draft prints again
    default = props.get("default_generation_settings") or {}
    return {
        "engine": launch.engine,
        "build": props.get("build_info") or _text(launch.build),
        "context": default.get("n_ctx"),
        "slots": props.get("total_slots"),
        "kv_types": kv_types,
        "gpu_layers": layers,
        "settings": dict(launch.settings),
        "attributes": dict(launch.attributes),
        "argv": _without_ports(launch.argv),
        "env": dict(launch.env),
        "program": launch.program,
        "image": launch.image,
        "model": launch.model_path,
    }


def refuse_other_start(known: Mapping[str, Any], now: Mapping[str, Any], condition: str) -> None:
    """Raise `NotAsWanted` when a condition's server is not what it was at its first start."""
    names = (*SAME, "engine", "settings", "argv", "env", "image", "model")
    other = [n for n in names if known.get(n) != now.get(n) and not _unsaid(n, known, now)]
    if other:
        name = other[0]
        raise NotAsWanted(
            f"{condition} started with another {name}: {_shown(now.get(name))}, "
            f"before {_shown(known.get(name))}",
            where=condition,
            fix="turns of both must not be averaged; start a new run with `--out`",
        )


def refuse_other_conditions(
    identities: Mapping[str, Mapping[str, Any]],
    overrides: Mapping[str, Mapping[str, Any]],
) -> None:
    """Raise `NotAsWanted` when conditions differ in more than what was asked of them.

    `identities` and `overrides` are by condition, of one deployment.
    """
    names = list(identities)
    for first, second in pairwise(names):
        asked = {*overrides[first], *overrides[second]}
        for name in SAME:
            before, after = identities[first].get(name), identities[second].get(name)
            if before == after or None in {before, after} or asked & set(MOVED_BY[name]):
                continue
            raise NotAsWanted(
                f"{first} and {second} differ in {name}: {_shown(before)} and {_shown(after)}, "
                "which nobody asked for",
                where=second,
                fix="pin it in the deployment, or with `--set`, so that all conditions share it",
            )


def _unsaid(name: str, known: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    return name in {"kv_types", "gpu_layers"} and None in {known.get(name), now.get(name)}


def _without_ports(argv: Sequence[str]) -> list[str]:
    return [
        "..." if place and argv[place - 1] in _PORT_FLAGS else word
        for place, word in enumerate(argv)
    ]


def _text(build: object) -> str | None:
    return None if build is None else str(build)


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) < 200 else f"{text[:200]}..."  # noqa: PLR2004 - a line of text

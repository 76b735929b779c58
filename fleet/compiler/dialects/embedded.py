"""The embedded engine: the same settings as attributes of xllamacpp's `CommonParams`.

Dots lead into parts; words such as `q8_0` or `on` stand for members of the binding's enums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.compiler.dialects.llama_cpp_speculation import SPECULATION_SETTINGS
from fleet.compiler.dialects.spelling import Switch, Value, words_of
from fleet.errors import CannotExpress

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.compiler.dialects.spelling import Settings, Wish

Attributes = tuple[tuple[str, "str | int | float | bool | None"], ...]
_ALL_LAYERS = 999
_PRIORITIES: Mapping[object, str | int] = {
    -1: "low",
    0: "normal",
    1: "medium",
    2: "high",
    3: "realtime",
}
WORDS = words_of("embedded")
# the attribute, and the words or numbers that its values become
_MEMBERS: Mapping[str, tuple[str, Mapping[object, str | int]]] = {
    "flash_attention": ("flash_attn_type", {"on": "enabled", "off": "disabled", "auto": "auto"}),
    "numa": ("numa", {"off": "disabled"}),
    "load_mode": ("load_mode", {"dio": "direct_io"}),
    "prio": ("cpuparams.priority", _PRIORITIES),
    "prio_batch": ("cpuparams_batch.priority", _PRIORITIES),
    "gpu_layers": ("n_gpu_layers", {"all": _ALL_LAYERS, "auto": -1}),
    "draft_gpu_layers": ("speculative.draft.n_gpu_layers", {"all": _ALL_LAYERS, "auto": -1}),
    "reasoning": ("enable_reasoning", {"on": 1, "off": 0, "auto": -1}),
    "draft_sampling": ("speculative.draft.probabilistic", {"greedy": 0, "probabilistic": 1}),
    "seed": ("sampling.seed", {-1: 2**32 - 1}),
}
_NGRAM_PARTS = {"ngram_size_n": "size_n", "ngram_size_m": "size_m", "ngram_min_hits": "min_hits"}
_NGRAM_KINDS = ("ngram-simple", "ngram-map-k", "ngram-map-k4v")


def attributes(wish: Wish) -> Attributes:
    """Return the attributes that make the embedded engine do what `wish` says.

    Raises `CannotExpress` for a setting that its binding has no attribute for.
    """
    found: dict[str, str | int | float | bool | None] = {"model.path": wish.model_path}
    settings = _without_unused(wish.settings)
    for name, value in settings.items():
        found.update(_attribute(name, value, settings))
    if "cors_origins" not in wish.settings:
        found["cors_origins"] = "localhost"
        found["cors_credentials"] = False
    if wish.tls_files:
        found["ssl_file_cert"], found["ssl_file_key"] = wish.tls_files
    if wish.extra_args:
        fix = "use settings, or another engine"
        raise CannotExpress("the embedded engine has no arguments", where="extra_args", fix=fix)
    return tuple(found.items())


def _without_unused(settings: Settings) -> Settings:
    if str(settings.get("speculation", "none")) != "none":
        return settings
    return {name: value for name, value in settings.items() if name not in SPECULATION_SETTINGS}


def _attribute(
    name: str, value: str | float, settings: Settings
) -> dict[str, str | int | float | bool]:
    if name in _MEMBERS:
        path, words = _MEMBERS[name]
        return {path: words.get(value, value)}
    if name not in WORDS:
        fix = f"leave `{name}` out, or use the runtime `podman`"
        raise CannotExpress("the embedded engine cannot set it", where=name, fix=fix)
    match WORDS[name]:
        case Value((path,)):
            return {path: value}
        case Switch(_, (path,)):
            return {path: not value}
        case _:
            return _special(name, value, settings)


def _special(
    name: str, value: str | float, settings: Settings
) -> dict[str, str | int | float | bool]:
    if name in _NGRAM_PARTS:
        kinds = str(settings.get("speculation", "")).split(",")
        parts = [kind.replace("-", "_") for kind in _NGRAM_KINDS if kind in kinds]
        return {f"speculative.{part}.{_NGRAM_PARTS[name]}": value for part in parts}
    if name == "timeout":
        return {"timeout_read": value, "timeout_write": value}
    if name == "rope_scale":
        return {"rope_freq_scale": 1 / float(value)}
    if name == "moe_cache":
        return {"moe_cache_size": int(value) * 2**20}
    return {}

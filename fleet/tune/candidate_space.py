"""Which settings are worth trying on this host, with this model, for this metric.

Order and bounds follow what is known of the field: generating is bound by memory bandwidth,
so threads near the physical cores and speculation matter to TG; reading prompts computes, so
batch sizes and its own thread count matter to PP; slots and checkpoints matter to those who
wait. Every other setting stays as the deployment has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fleet.errors import UserError
from fleet.tune.search_space import Settings, Value, make_space
from fleet.tune.speculation_kinds import PARAMETER, governed, one_value, speculation_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet.compiler.launch_config import LaunchConfig
    from fleet.facts.build_facts import BuildFacts
    from fleet.facts.host_facts import HostFacts
    from fleet.facts.model_facts import ModelFacts
    from fleet.profiles.kinds import WorkloadProfile
    from fleet.tune.search_space import SearchSpace

Metric = Literal["tg", "pp", "ttft", "e2e", "throughput", "pareto"]
METRICS: tuple[Metric, ...] = ("tg", "pp", "ttft", "e2e", "throughput", "pareto")

# which groups of settings can move which metric
_GROUPS: Mapping[Metric, tuple[str, ...]] = {
    "tg": ("threads", "attention", "speculation", "experts"),
    "pp": ("threads_batch", "batches", "attention", "experts"),
    "ttft": ("threads_batch", "batches", "attention", "slots", "checkpoints"),
    "e2e": ("threads", "threads_batch", "batches", "attention", "speculation", "experts"),
    "throughput": (
        "threads",
        "threads_batch",
        "batches",
        "attention",
        "slots",
        "checkpoints",
        "experts",
    ),
    "pareto": ("threads", "threads_batch", "batches", "attention", "experts"),
}
# the engine's own values, where the launch leaves a setting to it
_ENGINE: Mapping[str, Value] = {
    "batch_size": 2048, "ubatch_size": 512, "flash_attention": "auto", "cache_type_k": "f16",
    "cache_type_v": "f16", "swa_full": False,
}  # fmt: skip
_BATCHES = (256, 512, 1024, 2048, 4096)
_UBATCHES = (64, 128, 256, 512, 1024, 2048)
_KV_TYPES = ("f16", "q8_0", "q4_0")
_INTERVAL_FLAGS = (
    "--checkpoint-min-step", "--checkpoint-every-n-tokens", "--ctx-checkpoints-interval",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Ground:
    """All that the space depends on: the launch as it is now, host, model, build, workload."""

    launch: LaunchConfig
    host: HostFacts
    build: BuildFacts
    model: ModelFacts | None
    workload: WorkloadProfile | None
    pinned: frozenset[str]
    lossy: bool = False

    def now(self, setting: str) -> Value:
        """Return the setting's value in the launch, else the engine's own where known."""
        settings = dict(self.launch.settings)
        if setting == PARAMETER:
            return one_value(settings)
        value = settings.get(setting)
        return _ENGINE.get(setting) if value is None else value


@dataclass(frozen=True, kw_only=True, slots=True)
class CandidateSpace:
    """The space, and the settings that would be in it were they not pinned."""

    space: SearchSpace
    left_out: tuple[str, ...]


def candidate_space(metric: Metric, ground: Ground) -> CandidateSpace:
    """Return what `tune` searches. Raises `UserError` when pins leave nothing to search."""
    wanted: dict[str, list[Value]] = {}
    for group in _GROUPS[metric]:
        wanted |= _GROUP_VALUES[group](ground)
    if ground.lossy:
        wanted |= {"cache_type_k": [*_KV_TYPES], "cache_type_v": [*_KV_TYPES]}
    pinned = ground.pinned | ({PARAMETER} if ground.pinned & governed() else set())
    left_out = tuple(sorted(name for name in wanted if name in pinned))
    params = {
        name: _with_now(values, ground.now(name))
        for name, values in wanted.items()
        if name not in pinned
    }
    params = {name: values for name, values in params.items() if len(values) > 1}
    if not params:
        pins = f" ({', '.join(left_out)} pinned)" if left_out else ""
        raise UserError(f"no setting is left to search for `{metric}`{pins}", fix="remove a pin")
    default = {name: ground.now(name) for name in params}
    space = make_space(params, default, dear=tuple(params), allows=lambda s: _possible(s, ground))
    return CandidateSpace(space=space, left_out=left_out)


def _possible(settings: Settings, ground: Ground) -> bool:
    """Whether engine rules allow the combination; what memory allows is asked before a start."""

    def of(name: str) -> Value:
        return settings.get(name, ground.now(name))

    batch, ubatch = of("batch_size"), of("ubatch_size")
    if isinstance(batch, int) and isinstance(ubatch, int) and ubatch > batch:
        return False
    quantised = of("cache_type_v") not in ("f32", "f16", "bf16", None)
    mla = ground.model is not None and ground.model.is_mla
    if mla and of("cache_type_k") != of("cache_type_v"):
        return False
    return not (quantised and of("flash_attention") == "off")


def _with_now(values: Sequence[Value], now: Value) -> list[Value]:
    kept = [*values] if now in values else [now, *values]
    return list(dict.fromkeys(kept))


def _thread_counts(ground: Ground) -> list[Value]:
    """Return counts near the physical cores: half, three quarters, one less, all, hyper-threads."""
    cores, most = max(ground.host.cores, 1), max(len(ground.host.cpus), 1)
    counts = {cores // 2, cores * 3 // 4, cores - 1, cores, most}
    nodes = len(ground.host.numa_nodes)
    if nodes > 1:
        counts.add(cores // nodes)
    return [*sorted(count for count in counts if 1 <= count <= most)]


def _threads(ground: Ground) -> dict[str, list[Value]]:
    return {"threads": _thread_counts(ground)}


def _threads_batch(ground: Ground) -> dict[str, list[Value]]:
    return {"threads_batch": _thread_counts(ground)}


def _batches(ground: Ground) -> dict[str, list[Value]]:
    context = ground.now("ctx_size")
    most = context if isinstance(context, int) and context > 0 else _BATCHES[-1]
    return {
        "batch_size": [size for size in _BATCHES if size <= most],
        "ubatch_size": [size for size in _UBATCHES if size <= most],
    }


def _attention(ground: Ground) -> dict[str, list[Value]]:
    # on a CPU `auto` is on: only off is news
    auto_is_on = ground.now("flash_attention") == "auto" and not ground.host.gpus
    return {"flash_attention": ["off"] if auto_is_on else ["on", "off"]}


def _speculation(ground: Ground) -> dict[str, list[Value]]:
    """Return off, n-gram kinds, and the draft's lengths as values of one parameter."""
    mtp = ground.model is not None and ground.model.nextn_layers > 0
    values = speculation_values(
        ground.build, draft=ground.now("draft_model") is not None, mtp=mtp
    )  # fmt: skip
    return {PARAMETER: values} if len(values) > 1 else {}


def _experts(ground: Ground) -> dict[str, list[Value]]:
    """Return how many layers keep their experts on the CPU, around what the launch has."""
    model = ground.model
    if not ground.host.gpus or model is None or not model.n_expert:
        return {}
    now = ground.now("cpu_moe_layers")
    middle = now if isinstance(now, int) and not isinstance(now, bool) else 0
    step = max(model.n_layer // 16, 1)
    near = (middle + step * by for by in (-4, -2, -1, 0, 1, 2))
    return {"cpu_moe_layers": [count for count in near if 0 <= count <= model.n_layer]}


def _slots(ground: Ground) -> dict[str, list[Value]]:
    """Return numbers of slots around the users; one user needs no second one."""
    users = ground.workload.users if ground.workload else 1
    return {"parallel": [*sorted({1, users, 2 * users})]} if users > 1 else {}


def _checkpoints(ground: Ground) -> dict[str, list[Value]]:
    """Return checkpoint settings, for models whose cache cannot be cut at any token.

    What they take of memory is in the plan that is asked before a candidate starts.
    """
    model, workload = ground.model, ground.workload
    if model is None or workload is None or not workload.shared_prefix_tokens:
        return {}
    if not (model.n_swa or model.is_recurrent or model.is_hybrid):
        return {}
    values: dict[str, list[Value]] = {"swa_full": [False, True]} if model.n_swa else {}
    if _knows(ground.build, "--ctx-checkpoints", "--swa-checkpoints"):
        values["swa_checkpoints"] = [4, 32]
    if _knows(ground.build, *_INTERVAL_FLAGS):
        values["checkpoint_interval"] = [256, 1024, 4096]
    return values


def _knows(build: BuildFacts, *flags: str) -> bool:
    return any(flag in build for flag in flags)


_GROUP_VALUES = {
    "threads": _threads,
    "threads_batch": _threads_batch,
    "batches": _batches,
    "attention": _attention,
    "speculation": _speculation,
    "experts": _experts,
    "slots": _slots,
    "checkpoints": _checkpoints,
}

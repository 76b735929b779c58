"""What must hold between settings, the model and the host, before anything is started.

The engine refuses most of these at start, after minutes of loading; some it ignores. Rules
and their builds are llama.cpp's (`src/llama-context.cpp`, `tools/server`).
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from fleet.compiler.complete_settings import names_template
from fleet.compiler.dialects import llama_cpp, vllm
from fleet.compiler.dialects.llama_cpp_speculation import kinds_of_speculation
from fleet.compiler.launch_config import Warn
from fleet.compiler.planned_context import longest_context, padded, planned_slot_context
from fleet.errors import UserError
from fleet.facts.ggml_types import WHOLE_TYPES
from fleet.profiles.settings_table import IK_KV_TYPES, SETTINGS
from fleet.sizes import MIB

if TYPE_CHECKING:
    from fleet.compiler.dialects.spelling import Settings
    from fleet.facts.build_facts import BuildFacts
    from fleet.facts.host_facts import HostFacts
    from fleet.facts.model_facts import ModelFacts
    from fleet.profiles.kinds import Deployment
    from fleet.sizes import ByteSize

_BLOCK = 32  # values of one quantized block
_SAME_TYPES = (10189, 10229)
# pairs for which official CUDA images have a flash-attention kernel
CUDA_PAIRS = frozenset({("f16", "f16"), ("bf16", "bf16"), ("q8_0", "q8_0"), ("q4_0", "q4_0")})
_DRAFTLESS = frozenset({"draft-mtp"})


def check_deployment(deployment: Deployment) -> None:
    """Refuse a public address without a key, and dangerous extra arguments."""
    if not _is_loopback(deployment.bind) and not deployment.api_key:
        message = f"`{deployment.bind}` is reached from elsewhere and no API key is asked for"
        fix = "write `api_key: true`, or bind to 127.0.0.1"
        raise UserError(message, where=str(deployment.place), fix=fix)
    if deployment.extra_args and not deployment.extra_args[0].startswith("-"):
        message = f"`{deployment.extra_args[0]}` is no option"
        raise UserError(message, where="extra_args", fix="begin with an option, such as `--prio`")
    dangerous = llama_cpp.DANGEROUS_OPTIONS | vllm.DANGEROUS_OPTIONS
    for word in deployment.extra_args:
        if word.partition("=")[0] in dangerous and not deployment.allow_dangerous:
            fix = "write `allow_dangerous: true` if you mean it"
            raise UserError("the option is dangerous", where=f"extra_args {word}", fix=fix)


def _is_loopback(address: str) -> bool:
    """Whether `address` is reached from this machine alone."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return False


def check_settings(
    settings: Settings,
    *,
    build: BuildFacts,
    model: ModelFacts | None,
    host: HostFacts,
    trained: int | None,
    memory_limit: ByteSize | None,
    allow_dangerous: bool,
) -> tuple[Warn, ...]:
    """Return warnings. Raises `UserError` that names the setting and what would do instead."""
    _check_dangerous(settings, allow_dangerous=allow_dangerous)
    if build.engine == "vllm":
        _check_context(settings, trained, build)
        return ()
    _check_cache_types(settings, build, model)
    _check_cuda_pair(settings, build, host)
    _check_context(settings, trained, build)
    _check_speculation(settings, model)
    if settings.get("split_mode") == "tensor" and settings.get("flash_attention") == "off":
        raise _wrong("split_mode", "`tensor` needs flash attention", "set `flash_attention: on`")
    if settings.get("jinja") is True and names_template(settings):
        message = "a template by name is read only with jinja off"
        raise _wrong("chat_template", message, "set `jinja: false`, or leave it out")
    _check_cache_ram(settings, memory_limit)
    return tuple(_warnings(settings, model))


def _wrong(where: str, message: str, fix: str) -> UserError:
    return UserError(message, where=where, fix=fix)


def _check_dangerous(settings: Settings, *, allow_dangerous: bool) -> None:
    for name, value in settings.items():
        if SETTINGS[name].dangerous and value and not allow_dangerous:
            message = f"is dangerous: {SETTINGS[name].meaning}"
            raise _wrong(name, message, "write `allow_dangerous: true` if you mean it")


def _check_cache_types(settings: Settings, build: BuildFacts, model: ModelFacts | None) -> None:
    k, v = _types(settings)
    attention = settings.get("flash_attention", "auto")
    if v not in WHOLE_TYPES and attention == "off":
        message = f"a V cache of `{v}` needs flash attention"
        raise _wrong("cache_type_v", message, "set `flash_attention: on`, or `cache_type_v: f16`")
    if model is None:
        return
    must_agree = build.engine != "ik_llama.cpp" and build.changed(*_SAME_TYPES) is not False
    if model.v_is_part_of_k and must_agree and k != v:
        message = f"{model.arch} takes one type for K and V, not `{k}` and `{v}`"
        raise _wrong("cache_type_v", message, f"set both to `{k}`")
    for name, kind, size in (("k", k, model.head_dim_k), ("v", v, model.head_dim_v)):
        if kind not in WHOLE_TYPES and size % _BLOCK and attention != "off":
            message = f"blocks of {_BLOCK} values do not divide the head size {size}"
            raise _wrong(f"cache_type_{name}", message, f"set `cache_type_{name}: f16`")


def _types(settings: Settings) -> tuple[str, str]:
    return str(settings.get("cache_type_k", "f16")), str(settings.get("cache_type_v", "f16"))


def _check_cuda_pair(settings: Settings, build: BuildFacts, host: HostFacts) -> None:
    on_cuda = any(gpu.backend == "cuda" for gpu in host.gpus) and settings.get("gpu_layers") != 0
    if not on_cuda or build.engine == "ik_llama.cpp" or settings.get("flash_attention") == "off":
        return
    pair = _types(settings)
    if pair not in CUDA_PAIRS and not set(pair) & set(IK_KV_TYPES):
        message = f"CUDA has no compiled kernel for `{pair[0]}` with `{pair[1]}`"
        fix = "use f16, bf16, q8_0 or q4_0, the same for both"
        raise _wrong("cache_type_k", message, fix)


def _check_context(settings: Settings, trained: int | None, build: BuildFacts) -> None:
    slot = planned_slot_context(settings) or 0
    if settings.get("kv_unified"):
        slot //= int(settings.get("parallel", 1))
    longest = longest_context(settings, trained, build)
    # padding alone may go past a trained context that is no multiple of it
    if trained is None or longest is None or slot <= padded(longest):
        return
    bound = f"the {longest} it was trained for or can be stretched to"
    message = f"{slot} tokens a slot are more than {bound}"
    fix = f"at most {longest} for each slot"
    if build.engine not in {"llama.cpp", "embedded"} or "rope_scaling" not in settings:
        fix += ", or `rope_scaling: yarn` with `rope_scale` (llama.cpp: since b10809)"
    raise _wrong("ctx_size", message, fix)


def _check_speculation(settings: Settings, model: ModelFacts | None) -> None:
    kinds = kinds_of_speculation(settings.get("speculation"))
    drafts = [kind for kind in kinds if kind.startswith("draft-")]
    for kind in drafts:
        if "draft_model" in settings:
            continue
        if kind not in _DRAFTLESS:
            raise _wrong("speculation", f"`{kind}` needs a draft model", "set `draft_model`")
        if model is not None and not model.nextn_layers:
            message = f"{model.name} has no layers that predict several tokens"
            raise _wrong("speculation", message, "use `ngram-mod`, or a draft model")
    low, high = settings.get("draft_min"), settings.get("draft_max")
    if low is not None and high is not None and float(low) > float(high):
        raise _wrong("draft_min", f"{low} is above `draft_max` {high}", "swap them")


def _check_cache_ram(settings: Settings, memory_limit: ByteSize | None) -> None:
    asked = int(settings.get("cache_ram", 0))
    if memory_limit is not None and asked * MIB >= memory_limit:
        message = f"{asked} MiB do not go into the memory limit of {memory_limit}"
        raise _wrong("cache_ram", message, "give a smaller `cache_ram`, or raise `memory_limit`")


def _warnings(settings: Settings, model: ModelFacts | None) -> list[Warn]:
    found: list[Warn] = []
    if int(settings.get("ubatch_size", 0)) > int(settings.get("batch_size", 2048)):
        message = "`ubatch_size` above `batch_size` is cut to it"
        found.append(Warn(code="ubatch-clamped", message=message))
    if model is None:
        return found
    has_checkpoints = (
        (model.n_swa and not settings.get("swa_full")) or model.is_recurrent or model.is_hybrid
    )
    stuck = has_checkpoints or model.arch == "deepseek4"
    for name in ("cache_reuse", "context_shift"):
        if settings.get(name) and stuck:
            message = f"`{name}` does nothing: this cache cannot be shifted"
            found.append(Warn(code="cannot-shift", message=message))
    if "checkpoint_interval" in settings and not has_checkpoints:
        message = "`checkpoint_interval` does nothing: this cache keeps every token"
        found.append(Warn(code="no-checkpoints", message=message))
    if (
        model.arch == "deepseek4"
        and settings.get("kv_unified")
        and settings.get("parallel", 1) != 1
    ):
        message = "each slot of this model has a whole cache, also in one pool"
        found.append(Warn(code="whole-cache-each", message=message))
    return found

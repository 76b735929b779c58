"""The grammar of `FUNCTION: TEXT` lines: devices, layers, context, caches, buffers.

One table from the function's name to the rows that look at its text; names changed with
every reorganisation of llama.cpp, the texts much less.
"""

# ruff: noqa: D401 - the first words say which line, event or state is meant
from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fleet.diagnose.read_log.log_reading import Kv
from fleet.diagnose.read_log.rows import row

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fleet.diagnose.read_log.log_reading import LogReading
    from fleet.diagnose.read_log.rows import Row

_SELF_SIZE = r"[Kk][Vv] self size\s*=\s*(?=[\d.]+ Mi?B)"
_TYPES = (
    r"(\d+\.?\d*)(?=(?:.*?\(\s*(\d+) cells)?)(?=(?:.*?c\^KV \((\w+)\))?)"
    r"(?=(?:.*?\bK(?:\^R|-only)? \((\w+)\):\s*(\d+\.?\d*))?)"
    r"(?=(?:.*?\bV \((\w+)\):\s*(\d+\.?\d*))?)"
)
_DEVICE = re.compile(r"\b(?:CUDA|ROCm|Vulkan|SYCL|Metal|MTL|CANN|RPC)\d*\b")
_STATISTICS = re.compile(r"statistics\s+([\w-]+):")
SWITCH = {
    "1": True, "enabled": True, "on": True, "true": True,
    "0": False, "disabled": False, "off": False, "false": False,
}  # fmt: skip
NO_GPU = "failed to initialize|no CUDA-capable|no ROCm"
MAIN_SAYS = (
    "HTTP server", "server is listening", "model loaded", "loading model", "couldn't bind",
    "exiting due to",
)  # fmt: skip


def _event(name: str) -> Callable[..., str]:
    return lambda *_: name


def _offload(reading: LogReading, some: str, of: str) -> str:
    """`offloaded a/b layers to GPU`: the first of a start is the target, not the draft."""
    reading.loads += 1
    if reading.loads > 1:
        return "draft-layers"
    reading.gpu_layers = f"{some}/{of}"
    if int(some) == 0:
        return "no-layers"
    return "some-layers" if int(some) < int(of) else "all-layers"


def device(reading: LogReading, text: str) -> None:
    """Any line that names an accelerator's buffer or lists it."""
    reading.gpus.update(name.rstrip("0123456789") for name in _DEVICE.findall(text))


def _buffers(reading: LogReading, text: str) -> None:
    if "buffer size" in text:
        device(reading, text)


def _kv_buffer(reading: LogReading, name: str, mib: str) -> str:
    """`llama_kv_cache: CUDA0 KV buffer size = ..`."""
    context = _context(reading)
    context.buffers[name] = context.buffers.get(name, 0) + float(mib)
    return "kv-buffer"


def _kv_size(  # noqa: PLR0913, PLR0917 - as they are printed
    reading: LogReading, mib: str, cells: str, latent: str, k: str, k_mib: str, v: str, v_mib: str
) -> str:
    """`llama_kv_cache: size = ..`; `KV self size` of earlier builds."""
    number = int(cells or 0)
    context = _context(reading)
    again = context.cells == number > 0 and not reading.swa  # a window's cache can be as large
    if context.mib and (again or context.loads != reading.loads):
        context = Kv()  # a draft's, whose start is left out of this log
        reading.kvs.append(context)
    context.cells, context.loads = number, reading.loads
    context.mib += float(mib)
    if latent:
        context.k = context.v = latent
        context.mla = True
    elif k:
        context.k, context.v = k, v or k
        context.k_mib += float(k_mib)
        context.v_mib += float(v_mib or 0)
        context.mla = bool(v) and float(v_mib) == 0 < float(k_mib)
    reading.plain_kv = True
    return "kv-size"


def _context(reading: LogReading) -> Kv:
    if not reading.kvs:
        reading.kvs.append(Kv())
    return reading.kvs[-1]


def _recurrent(reading: LogReading, mib: str = "") -> str:
    """`llama_memory_recurrent: size = ..` and `RS buffer size`."""
    if mib:
        reading.rs_mib = float(mib)
    reading.hybrid = True
    return "recurrent"


def _window(reading: LogReading, _text: str) -> None:
    """`llama_kv_cache_iswa: ..`: the model has a sliding window."""
    reading.swa = True


def _new_context(reading: LogReading) -> str:
    """`constructing llama_context`."""
    reading.kvs.append(Kv())
    return "context"


def _n_ctx(reading: LogReading, tokens: str) -> str:
    if reading.n_ctx is None or reading.loads < 2:  # noqa: PLR2004
        reading.n_ctx = int(tokens)
    return "context"


def _flash(reading: LogReading, word: str = "enabled") -> str:
    """`flash_attn = 1`, `Flash Attention enabled`, `... not supported, set to disabled`."""
    state = SWITCH.get(word.lower())
    if state is None:
        return "context"
    reading.flash_attn = state
    return "fa-on" if state else "fa-off"


def _retried(reading: LogReading) -> str:
    if reading.oom is not None:
        reading.oom.retried = True
    return "oom-retry"


def _splits(reading: LogReading, many: str, alone: str) -> str:
    """`graph splits = n`, `splits = n`, `graph splits = n (with bs=512), m (with bs=1)`."""
    reading.graph_splits = int(alone or many)
    return "splits"


def _metadata(reading: LogReading, arch: str) -> None:
    """`arch = deepseek2`, `general.architecture str = deepseek2`."""
    reading.arch = reading.arch or arch


def _gpu_found(reading: LogReading, text: str) -> None:
    """`ggml_cuda_init: found 1 CUDA devices`."""
    if re.search(NO_GPU, text):
        return
    device(reading, text)
    if "found" in text.lower() and " 0 " not in text:
        reading.gpus.add("GPU")


def _main(reading: LogReading, text: str) -> None:
    """`main: ..`, the words of 2025; newer builds say the same as `srv`."""
    if text.startswith(MAIN_SAYS):
        reading.marks.update(("gen2", "started"))


def _drafting(reading: LogReading, name: str) -> str:
    """Which implementation drafts."""
    reading.spec_type = name
    return "spec-on"


def statistics(reading: LogReading, text: str) -> str | None:
    """`statistics draft-mtp: #calls(b,g,a) = ..`."""
    if found := _STATISTICS.match(text):
        reading.spec_type = reading.spec_type or found[1].replace("_", "-")
        return "spec-on"
    return None


_BUFFER = (r"(\S+) KV buffer size =\s*(\d+\.?\d*)", _kv_buffer)
_SPLITS = (
    ("retrying without pipeline", _retried),
    (r"splits\s*=\s*(\d+)(?:\s*\(with bs=\d+\), (\d+))?", _splits),
)
_OFFLOAD = row(
    (r"offloaded (\d+)/(\d+) layers", _offload),
    ("overrid.*CPU|CPU.*overrid", _event("experts-on-cpu")),
    once=_buffers,
)
_KV = row(
    _BUFFER,
    (_SELF_SIZE + _TYPES, _kv_size),
    (r"\bsize =\s*(?=[\d.]+ MiB \()" + _TYPES, _kv_size),
    once=_buffers,
)
_ISWA = row(once=_window)
_RECURRENT = row(
    (r"size =\s*(\d+\.?\d*) MiB \(.*R \(", _recurrent),
    _BUFFER,
    (_SELF_SIZE + _TYPES, _kv_size),
    ("", _recurrent),
)
_CONTEXT = row(
    (_SELF_SIZE + _TYPES, _kv_size),
    _BUFFER,
    ("constructing", _new_context),
    (r"flash_attn\s*=\s*(\w+)", _flash),
    *_SPLITS,
    (r"\bn_ctx\s*=\s*(-?\d+)", _n_ctx),
    once=_buffers,
)
SPECULATION = row(
    ("no implementations specified", _event("spec-none")),
    (r"(?:implementation|speculative type) '([\w-]+)'", _drafting),
)
_RESERVED = row(*_SPLITS, once=_buffers)
_RESOLVED = row((r"lash.*(disabled)", _flash), ("lash", _flash))
_META = row((r"arch(?:itecture)?\s*(?:str)?\s*=\s*(\w+)", _metadata))
_GPU = row((NO_GPU, _event("cuda-init-failed")), once=_gpu_found)
TABLE: Mapping[str, Row] = {
    "main": row(once=_main),
    "load_tensors": _OFFLOAD,
    "llm_load_tensors": _OFFLOAD,
    "llama_model_load_from_file_impl": _GPU,
    "llama_kv_cache": _KV,
    "llama_kv_cache_init": _KV,
    "llama_kv_cache_unified": _KV,
    "llama_kv_cache_iswa": _ISWA,
    "llama_kv_cache_unified_iswa": _ISWA,
    "llama_kv_cache_recurrent": _RECURRENT,
    "llama_memory_recurrent": _RECURRENT,
    "llama_model_load_internal": _OFFLOAD,
    "llama_context": _CONTEXT,
    "llama_init_from_file": _CONTEXT,
    "llama_new_context_with_model": _CONTEXT,
    "llama_init_from_model": _CONTEXT,
    "sched_reserve": _RESERVED,
    "graph_reserve": _RESERVED,
    "resolve_fused_ops": _RESOLVED,
    "print_info": _META,
    "llm_load_print_meta": _META,
    "llama_model_loader": _META,
    "ggml_cuda_init": _GPU,
    "ggml_vulkan": _GPU,
    "ggml_metal_init": _GPU,
    "ggml_metal_device_init": _GPU,
}

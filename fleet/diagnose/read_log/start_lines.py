"""The grammar of `FUNCTION: TEXT` lines: devices, layers, context, caches, buffers.

One table from the function's name to the readers that look at its text; names changed with
every reorganisation of llama.cpp, the texts much less.
"""

# ruff: noqa: D401 - the first words say which line, event or state is meant
from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fleet.diagnose.read_log.log_reading import Kv

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fleet.diagnose.read_log.log_reading import LogReading

    Reader = Callable[[LogReading, str], str | None]

_OFFLOADED = re.compile(r"offloaded (\d+)/(\d+) layers")
_SELF_SIZE = re.compile(r"[Kk][Vv] self size\s*=\s*(\d+\.?\d*) (?:MiB|MB)")
_SIZE = re.compile(r"\bsize =\s*(\d+\.?\d*) MiB \(")
_CELLS = re.compile(r"\(\s*(\d+) cells")
_K = re.compile(r"\bK(?:\^R|-only)? \((\w+)\):\s*(\d+\.?\d*)")
_V = re.compile(r"\bV \((\w+)\):\s*(\d+\.?\d*)")
_LATENT = re.compile(r"c\^KV \((\w+)\)")
_BUFFER = re.compile(r"(\S+) (?:KV|RS) buffer size =\s*(\d+\.?\d*)")
_RS = re.compile(r"size =\s*(\d+\.?\d*) MiB \(.*R \(")
_NUMBER = re.compile(r"(\w+)\s*=\s*(-?\d+)")
_SPLITS = re.compile(r"splits\s*=\s*(\d+)(?:\s*\(with bs=\d+\), (\d+))?")
_ARCH = re.compile(r"arch(?:itecture)?\s*(?:str)?\s*=\s*(\w+)")
_DEVICE = re.compile(r"\b(?:CUDA|ROCm|Vulkan|SYCL|Metal|MTL|CANN|RPC)\d*\b")
_FLASH = re.compile(r"flash_attn\s*=\s*(\w+)")
_SPEC = re.compile(r"implementation '([\w-]+)'|speculative type '([\w-]+)'")
_STATISTICS = re.compile(r"statistics\s+([\w-]+):")
ON = {"1": True, "enabled": True, "on": True, "true": True}
OFF = {"0": False, "disabled": False, "off": False, "false": False}


def offload(reading: LogReading, text: str) -> str | None:
    """`offloaded a/b layers to GPU`: the first of a start is the target, not the draft."""
    found = _OFFLOADED.search(text)
    if not found:
        return _buffers(reading, text)
    reading.loads += 1
    if reading.loads == 1:
        reading.gpu_layers = f"{found[1]}/{found[2]}"
        if int(found[1]) == 0:
            return "no-layers"
        return "some-layers" if int(found[1]) < int(found[2]) else "all-layers"
    return "draft-layers"


def _buffers(reading: LogReading, text: str) -> str | None:
    if "buffer size" in text:
        device(reading, text)
    if "overrid" in text and "CPU" in text:
        return "experts-on-cpu"
    return None


def device(reading: LogReading, text: str) -> None:
    """Any line that names an accelerator's buffer or lists it."""
    reading.gpus.update(name.rstrip("0123456789") for name in _DEVICE.findall(text))


def kv_cache(reading: LogReading, text: str) -> str | None:
    """`llama_kv_cache: size = ..` and its buffers; `KV self size` of earlier builds."""
    if "buffer size" in text and (found := _BUFFER.search(text)):
        device(reading, found[1])
        context = _context(reading)
        context.buffers[found[1]] = context.buffers.get(found[1], 0) + float(found[2])
        return "kv-buffer"
    if "failed to allocate" in text:
        return "kv-failed"
    found = _SELF_SIZE.search(text) or _SIZE.search(text)
    if not found:
        return None
    cells = int(told[1]) if (told := _CELLS.search(text)) else 0
    context = _context(reading)
    again = context.cells == cells > 0 and not reading.swa  # a window's cache can be as large
    if context.mib and (again or context.loads != reading.loads):
        context = Kv()  # a draft's, whose start is left out of this log
        reading.kvs.append(context)
    context.cells, context.loads = cells, reading.loads
    context.mib += float(found[1])
    _types(context, text)
    reading.plain_kv = True
    return "kv-size"


def _types(context: Kv, text: str) -> None:
    if latent := _LATENT.search(text):
        context.k = context.v = latent[1]
        context.mla = True
        return
    k, v = _K.search(text), _V.search(text)
    if k:
        context.k = k[1]
        context.v = v[1] if v else k[1]
        context.k_mib += float(k[2])
        context.v_mib += float(v[2]) if v else 0.0
        context.mla = v is not None and float(v[2]) == 0 < float(k[2])


def _context(reading: LogReading) -> Kv:
    if not reading.kvs:
        reading.kvs.append(Kv())
    return reading.kvs[-1]


def recurrent(reading: LogReading, text: str) -> str | None:
    """`llama_memory_recurrent: size = ..` and `RS buffer size`."""
    if found := _RS.search(text):
        reading.rs_mib = float(found[1])
    elif "KV buffer" in text or "self size" in text:
        return kv_cache(reading, text)
    reading.hybrid = True
    return "recurrent"


def window(reading: LogReading, _text: str) -> str | None:
    """`llama_kv_cache_iswa: ..`: the model has a sliding window."""
    reading.swa = True
    return None


def context(reading: LogReading, text: str) -> str | None:  # noqa: PLR0911 - one a shape
    """The dump of a context's parameters, one a line; and all that older builds said here."""
    if "self size" in text or "KV buffer" in text:
        return kv_cache(reading, text)
    if "buffer size" in text:
        device(reading, text)
        return None
    if text.startswith("constructing"):
        reading.kvs.append(Kv())
        return "context"
    if found := _FLASH.search(text):
        return _flash(reading, found[1].lower())
    if "splits" in text:
        return splits(reading, text)
    if found := _NUMBER.match(text):
        return _number(reading, found[1], int(found[2]))
    return None


def _number(reading: LogReading, name: str, value: int) -> str | None:
    if name == "n_ctx":
        if reading.n_ctx is None or reading.loads < 2:  # noqa: PLR2004
            reading.n_ctx = value
    elif name == "mla_attn":
        reading.mla_attn = value
    else:
        return None
    return "context"


def _flash(reading: LogReading, word: str) -> str:
    state = {**ON, **OFF}.get(word)
    if state is None:
        return "context"
    reading.flash_attn = state
    return "fa-on" if state else "fa-off"


def splits(reading: LogReading, text: str) -> str | None:
    """`graph splits = n`, `splits = n`, `graph splits = n (with bs=512), m (with bs=1)`."""
    if "retrying without pipeline" in text:
        if reading.oom is not None:
            reading.oom.retried = True
        return "oom-retry"
    if "buffer size" in text:
        device(reading, text)
        return None
    found = _SPLITS.search(text)
    if not found:
        return None
    reading.graph_splits = int(found[2] or found[1])
    return "splits"


def resolved(reading: LogReading, text: str) -> str | None:
    """`Flash Attention enabled`, `... not supported, set to disabled`."""
    if "lash" not in text:
        return None
    return _flash(reading, "disabled" if "disabled" in text else "enabled")


def metadata(reading: LogReading, text: str) -> None:
    """`arch = deepseek2`, `general.architecture str = deepseek2`."""
    if reading.arch is None and (found := _ARCH.search(text)):
        reading.arch = found[1]


def gpu_found(reading: LogReading, text: str) -> str | None:
    """`ggml_cuda_init: found 1 CUDA devices`, and why it did not."""
    if "failed to initialize" in text or "no CUDA-capable" in text or "no ROCm" in text:
        return "cuda-init-failed"
    device(reading, text)
    if "found" in text.lower() and " 0 " not in text:
        reading.gpus.add("GPU")
    return None


def speculation(reading: LogReading, text: str) -> str | None:
    """Which implementation drafts, or that none does."""
    if "no implementations specified" in text:
        return "spec-none"
    if found := _SPEC.search(text):
        reading.spec_type = found[1] or found[2]
        return "spec-on"
    return None


MAIN_SAYS = (
    "HTTP server", "server is listening", "model loaded", "loading model", "couldn't bind",
    "exiting due to",
)  # fmt: skip


def main_function(reading: LogReading, text: str) -> None:
    """`main: ..`, the words of 2025; newer builds say the same as `srv`."""
    if text.startswith(MAIN_SAYS):
        reading.marks.update(("gen2", "started"))


def statistics(reading: LogReading, text: str) -> str | None:
    """`statistics draft-mtp: #calls(b,g,a) = ..`."""
    if found := _STATISTICS.match(text):
        reading.spec_type = reading.spec_type or found[1].replace("_", "-")
        return "spec-on"
    return None


TABLE: Mapping[str, Reader] = {
    "main": main_function,
    "load_tensors": offload,
    "llm_load_tensors": offload,
    "llama_model_load_from_file_impl": gpu_found,
    "llama_kv_cache": kv_cache,
    "llama_kv_cache_init": kv_cache,
    "llama_kv_cache_unified": kv_cache,
    "llama_kv_cache_iswa": window,
    "llama_kv_cache_unified_iswa": window,
    "llama_kv_cache_recurrent": recurrent,
    "llama_memory_recurrent": recurrent,
    "llama_model_load_internal": offload,
    "llama_context": context,
    "llama_init_from_file": context,
    "llama_new_context_with_model": context,
    "llama_init_from_model": context,
    "sched_reserve": splits,
    "graph_reserve": splits,
    "resolve_fused_ops": resolved,
    "print_info": metadata,
    "llm_load_print_meta": metadata,
    "llama_model_loader": metadata,
    "ggml_cuda_init": gpu_found,
    "ggml_vulkan": gpu_found,
    "ggml_metal_init": gpu_found,
    "ggml_metal_device_init": gpu_found,
}

"""Sentences that mean trouble wherever they stand: a literal to look for, then what it is.

The literal is found first because that is fast; the pattern then takes the figures.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from fleet.diagnose.read_log.lines import SHAPE
from fleet.diagnose.read_log.log_reading import Crash, Oom

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleet.diagnose.read_log.log_reading import LogReading

MIB = 1024 * 1024
_ALLOCATING = re.compile(r"allocating (\d+\.?\d*) MiB on device (\d+)")
_BYTES = re.compile(r"(?:of size|size =|buffer of size) ?(\d+)")
_BUFFER = re.compile(r"failed to allocate ([A-Za-z_]+?)(\d*) buffer of size (\d+)")
_TRIED = re.compile(r"Tried to allocate (\d+\.?\d*) (GiB|MiB)(?:\. GPU (\d+))?")
_WHERE = re.compile(r"([\w.+-]+\.(?:c|cc|cpp|cu|cuh|h|hpp|m|mm|comp)):(\d+):")
_ABORT = re.compile(r"\S+\.(?:c|cc|cpp|cu|cuh|h|hpp|m|mm):\d+: \S")  # what GGML_ABORT prints
_CUDA = re.compile(r"(?:CUDA|ROCm|HIP|MUSA) error: (.+?)\s*$")
_SHELL_KILLED = re.compile(r"^Killed\s*$|\d Killed\s{2,}")
_ARGUMENT = re.compile(r"(?:invalid|unknown) argument: (\S+)")
_OLD_SPEC = re.compile(r"unknown speculative type: (?:draft|eagle3|ngram_\w+)\s*$")
REMOVED = re.compile(
    r"^(?:--no-mmap|--mmap|--mlock|-dio|-ndio|--(?:no-)?direct-io|--draft(?:-n|-max|-min|-n-min)?"
    r"|-cpent|--checkpoint-every-n-tokens|-cd|--ctx-size-draft|--spec(?:-draft)?-replace"
    r"|--spec-ngram-(?:size-[nm]|min-hits)|--verbose-prompt|-mv|--hf-repo-v|--tts-\S+|--clear-idle"
    r"|--defrag-thold|-dt|--no-context-shift-legacy|-gan|-gaw|--grp-attn-[nw]|--system-prompt-file"
    r"|-spf|--log-disable-legacy|--infill)$"
)  # the options that builds of 2023 to 2026 dropped


class Trouble(NamedTuple):
    """A sentence and its event; `read` takes the figures and may name another event."""

    literal: str
    event: str
    read: Callable[[LogReading, str], str | None] | None = None

    def take(self, reading: LogReading, text: str) -> str | None:
        """Take the figures of a sentence that was found; return the event that it is."""
        return self.read(reading, text) if self.read else self.event


def _oom(reading: LogReading) -> Oom:
    if reading.oom is None or reading.oom.retried:
        reading.oom = Oom()
    return reading.oom


def _allocation(reading: LogReading, text: str) -> str:
    found = _ALLOCATING.search(text)
    if found:
        reading.oom = Oom(mib=float(found[1]), device=int(found[2]))
    return "oom"


def _device_allocation(reading: LogReading, text: str) -> str:
    found = _BYTES.search(text)
    reading.oom = Oom(mib=round(int(found[1]) / MIB, 2) if found else None)
    return "oom"


def _named_buffer(reading: LogReading, text: str) -> str:
    oom = _oom(reading)
    found = _BUFFER.search(text)
    if found and oom.mib is None:
        oom.mib = round(int(found[3]) / MIB, 2)
    if found and found[2] and oom.device is None:
        oom.device = int(found[2])
    if "gallocr" in text:
        oom.stage = oom.stage or "compute"
    return "oom-host" if found and found[1].startswith("CPU") else "oom"


def _stage(stage: str, event: str = "oom") -> Callable[[LogReading, str], str]:
    def read(reading: LogReading, _text: str) -> str:
        _oom(reading).stage = stage
        return event

    return read


def _old_wording(event: str) -> Callable[[LogReading, str], str]:
    def read(reading: LogReading, _text: str) -> str:
        reading.marks.add("gen2")
        return event

    return read


def _forced(event: str) -> Callable[[LogReading, str], str]:
    def read(reading: LogReading, _text: str) -> str:
        reading.checkpoints.forced_full += 1
        return event

    return read


def _retry(reading: LogReading, _text: str) -> str:
    _oom(reading).retried = True
    return "oom-retry"


def _torch(reading: LogReading, text: str) -> str:
    found = _TRIED.search(text)
    reading.vllm.seen = True  # PyTorch's own words
    oom = _oom(reading)
    if found:
        oom.mib = float(found[1]) * (1024 if found[2] == "GiB" else 1)
        oom.device = int(found[3]) if found[3] else None
    oom.stage = oom.stage or ("compute" if "started" in reading.marks else "model")
    return "oom"


def _crash_place(reading: LogReading, text: str) -> str:
    crash = reading.crash = reading.crash or Crash()
    if found := _WHERE.search(text):
        crash.file, crash.line = found[1], int(found[2])
    return "crash"


def _device_error(reading: LogReading, text: str) -> str | None:
    if "out of memory" in text:
        _oom(reading).stage = "compute"
        reading.saw("oom", reading.line, text)
    if _WHERE.search(text):
        return _crash_place(reading, text)
    found = _CUDA.search(text)
    crash = reading.crash = reading.crash or Crash()
    crash.error = found[1] if found else None
    return "crash"


def _killed(_reading: LogReading, text: str) -> str | None:
    """Take what a shell says of a process that the kernel ended, not the word in a sentence."""
    return "oom-host" if _SHELL_KILLED.search(text) else None


def _argument(_reading: LogReading, text: str) -> str:
    if "has been removed" in text:
        return "removed-argument"
    if _OLD_SPEC.search(text):
        return "removed-argument"
    found = _ARGUMENT.search(text)
    return "removed-argument" if found and REMOVED.match(found[1]) else "unknown-argument"


def _restore_failed(reading: LogReading, text: str) -> str:
    if _ABORT.match(text):
        reading.saw(_crash_place(reading, text), reading.line, text)
    return "restore-failed"


def _some_buffer(reading: LogReading, text: str) -> str | None:
    if "pinned" in text:
        return "pinned-failed"
    return _named_buffer(reading, text) if "buffer of size" in text else None


FORCED = (
    Trouble("no checkpoint before divergence", "none-usable", _forced("none-usable")),
    Trouble("support partial KV reuse", "forced-full", _forced("forced-full")),
    Trouble("forcing full prompt", "forced-full", _forced("forced-full")),
)
TROUBLES = (
    Trouble("cudaMalloc failed: out of memory", "oom", _allocation),
    Trouble("Device memory allocation of size", "oom", _device_allocation),
    Trouble("ErrorOutOfDeviceMemory", "oom"),
    Trouble("retrying without pipeline parallelism", "oom-retry", _retry),
    Trouble("buffer for kv cache", "oom", _stage("kv")),
    Trouble("buffer for rs cache", "oom", _stage("kv")),
    Trouble("failed for self-attention cache", "oom", _stage("kv")),
    Trouble("failed to allocate compute", "oom", _stage("compute")),
    Trouble("failed to allocate buffer of size", "oom-host"),
    Trouble("failed to allocate buffer, size", "oom", _device_allocation),
    Trouble("unable to allocate CPU", "oom-host"),
    Trouble("unable to allocate", "oom", _stage("model")),
    Trouble("failed to allocate CPU buffer", "oom-host"),
    Trouble("failed to allocate", "alloc", _some_buffer),
    Trouble("insufficient memory (attempted", "oom-host"),
    Trouble("std::bad_alloc", "oom-host"),
    Trouble("Out of memory: Kill", "oom-host"),
    Trouble("oom-kill", "oom-host"),
    Trouble("oom_reaper", "oom-host"),
    Trouble("OOMKilled", "oom-host"),
    Trouble("exited with status 137", "oom-host"),
    Trouble("exited with code 137", "oom-host"),
    Trouble("status=9/KILL", "oom-host"),
    Trouble("A process of this unit has been killed by the OOM killer", "oom-host"),
    Trouble("Killed", "oom-host", _killed),
    Trouble("Insufficient Memory (", "oom", _stage("compute")),
    Trouble("CUDA out of memory", "oom", _torch),
    Trouble("HIP out of memory", "oom", _torch),
    Trouble("GGML_ASSERT", "crash", _crash_place),
    Trouble("does not support K-shift", "crash", _crash_place),
    Trouble("CUDA error", "crash", _device_error),
    Trouble("ROCm error", "crash", _device_error),
    Trouble("HIP error", "crash", _device_error),
    Trouble("ErrorDeviceLost", "crash"),
    Trouble("device lost on", "crash"),
    Trouble("Segmentation fault", "crash"),
    Trouble("Illegal instruction", "crash"),
    Trouble("Bus error", "crash"),
    Trouble("status=11/SEGV", "crash"),
    Trouble("exited with code 139", "crash"),
    Trouble("exited with status 139", "crash"),
    Trouble("terminate called", "crash"),
    Trouble("terminating due to uncaught", "crash"),
    Trouble("Aborted", "aborted"),
    Trouble("status=6/ABRT", "aborted"),
    Trouble("exited with code 134", "aborted"),
    Trouble("exited with status 134", "aborted"),
    Trouble("Remote RPC server crashed", "crash"),
    Trouble("GGML_ABORT", "crash", _crash_place),
    Trouble("fatal error", "crash", _crash_place),
    Trouble("illegal memory access", "crash"),
    Trouble("EngineDeadError", "crash"),
    Trouble("EngineCore encountered a fatal error", "crash"),
    Trouble("has no device code compatible", "cuda-init-failed"),
    Trouble("no kernel image is available", "cuda-init-failed"),
    Trouble("failed to initialize CUDA", "cuda-init-failed"),
    Trouble("CUDA driver version is insufficient", "cuda-init-failed"),
    Trouble("no CUDA-capable device", "cuda-init-failed"),
    Trouble("No CUDA GPUs are available", "cuda-init-failed"),
    Trouble("couldn't bind", "port-in-use"),
    Trouble("ddress already in use", "port-in-use"),
    Trouble("failed to open GGUF file", "model-missing"),
    Trouble("error loading model: failed to open", "model-missing"),
    Trouble("gguf_init_from_file: failed to open", "model-missing"),
    Trouble("failed to load GGUF split", "model-missing"),
    Trouble("llama_model_loader: failed to open", "model-missing"),
    Trouble("argument has been removed", "removed-argument"),
    Trouble("error while handling argument", "unknown-argument", _argument),
    Trouble("nvalid argument: ", "unknown-argument", _argument),
    Trouble("nknown argument: ", "unknown-argument", _argument),
    Trouble("rror: unrecognized arguments", "unknown-argument"),
    Trouble("the request exceeds the available", "ctx-exceeded", _old_wording("ctx-exceeded")),
    Trouble("exceeds the available context size", "ctx-exceeded"),
    Trouble("too big compared to KV size", "ctx-exceeded"),
    Trouble("larger than the max context size", "ctx-exceeded"),
    Trouble("exceed_context_size_error", "ctx-exceeded"),
    Trouble("Context size has been exceeded", "ctx-exceeded"),
    Trouble("context size exceeded", "ctx-exceeded"),
    Trouble("maximum context length is", "ctx-exceeded"),
    Trouble("is longer than the maximum model length", "ctx-exceeded"),
    Trouble("retrying with smaller batch size, i = ", "kv-full", _old_wording("kv-full")),
    Trouble("failed to find free space in the KV cache", "kv-full"),
    Trouble("failed to find a memory slot", "kv-full"),
    Trouble("could not find a KV slot", "kv-full"),
    Trouble("failed to find KV cache slot", "kv-full"),
    Trouble("KV cache is full", "kv-full"),
    Trouble("purging slot", "slot-purged"),
    Trouble("requires flash_attn", "kv-needs-fa"),
    Trouble("quantized V cache", "kv-needs-fa"),
    Trouble("pinned memory", "pinned-failed"),
    Trouble("numa_balancing is enabled", "numa-balancing"),
    Trouble("umactl: balancing", "numa-balancing"),
    Trouble("cache_reuse is not supported by multimodal", "reuse-off-mmproj"),
    Trouble("failed to restore context checkpoint", "restore-failed"),
    Trouble("failed to restore SWA checkpoint", "restore-failed"),
    Trouble("checkpoint restore failed", "restore-failed"),
    Trouble("checkpoint restore buffer mismatch", "restore-failed"),
    Trouble("checkpoint size mismatch", "restore-failed", _restore_failed),
    Trouble("restore position mismatch", "restore-failed"),
    *FORCED,
    Trouble("no usable GPU found", "no-gpu"),
    Trouble("not compiled with GPU offload", "no-gpu"),
    Trouble("overriden to CPU", "experts-on-cpu"),
    Trouble("overridden to CPU", "experts-on-cpu"),
    Trouble("is not a valid model identifier", "model-missing"),
    Trouble("context shift", "context-shift"),
    Trouble("Flash Attention was auto, set to disabled", "fa-off"),
    Trouble("flash_attn is not compatible", "fa-off"),
    Trouble("flash_attn requires", "fa-off"),
    Trouble("no implementations specified for speculative", "spec-none"),
    Trouble("Common part does not match fully", "mismatch"),
    Trouble("exceeds the cache limit", "state-over-limit"),
    Trouble("exceeds cache size limit", "state-over-limit"),
)


# every literal above holds one of these words; most lines hold none and need no closer look
_SAID = """
    failed error errors erroroutofdevicememory errordevicelost memory kill killed oom oom_reaper
    oomkilled exited bad_alloc insufficient unable ggml_assert ggml_abort aborted segmentation
    terminate fatal illegal crashed lost enginedeaderror k driver compatible kernel capable bind
    already open argument arguments exceeds exceed_context_size_error exceeded maximum longer larger
    big retrying full purging requires quantized pinned numa_balancing balancing multimodal restore
    mismatch divergence partial forcing usable compiled overriden overridden identifier shift flash
    segv abrt instruction bus terminating gpus
    implementations common find could cpp cu c cc cuh h hpp m mm
"""
TRIGGERS = frozenset(_SAID.split())
_WORDS = str.maketrans(
    dict.fromkeys(":;,.()[]{}'\"-/=<>|!?\t", " ")
    | {character: character.lower() for character in map(chr, range(65, 91))}
)


ABORT = Trouble("", "crash", _crash_place)
# sentences with figures of their own: lines that differ in figures alone can differ in these
WITH_FIGURES = tuple(
    literal.encode().translate(SHAPE) for literal, *_ in TROUBLES if any(map(str.isdigit, literal))
)


def find_trouble(text: str) -> Trouble | None:
    """Return the first sentence found in `text`, or None."""
    if TRIGGERS.isdisjoint(text.translate(_WORDS).split()):
        return None
    for trouble in TROUBLES:
        if trouble.literal in text:
            return trouble
    return ABORT if _ABORT.match(text) else None


def depends_on_figures(shape: bytes) -> bool:
    """Whether lines of this shape can be different sentences: an exit's status or code."""
    told = b"status" in shape or b"code" in shape
    return told and any(literal in shape for literal in WITH_FIGURES)

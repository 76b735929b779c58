"""Name the cause of a start that failed, from the engine's last lines and its exit; pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

LOOK_BACK = 400  # lines
KILLED = 137
ABORTED = 134
ILLEGAL_INSTRUCTION = 132
SEGMENTATION = 139


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Why a server did not start or died: a stable word, a sentence, a remedy, the line."""

    cause: str
    message: str
    fix: str
    line: str = ""


class _Rule(NamedTuple):
    cause: str
    pattern: re.Pattern[str]
    message: str
    fix: str


def _rule(cause: str, pattern: str, message: str, fix: str) -> _Rule:
    return _Rule(cause, re.compile(pattern, re.IGNORECASE), message, fix)


# first match wins: the engine says the cause first and then that it gave up
_RULES = (
    _rule("port-in-use", r"couldn't bind (?:HTTP|to) server socket|address already in use",
          "the port is in use", "choose another `port:`, or end what listens there"),
    _rule("file-missing", r"(?: E |error:|failed).*No such file or directory",
          "a file is missing", "check the model's path and that it is mounted"),
    _rule("no-permission", r"failed to open GGUF file.*Permission denied|permission denied",
          "a file cannot be read", "check the owner and mode of the model and its folders"),
    _rule("corrupt-gguf", r"invalid magic|not within the file bounds|model is corrupted|"
          r"key not found in model|failed to load GGUF split|failed to read tensor|"
          r"tensor '.*' has invalid|gguf_init_from_file\w*: failed to",
          "the model file is corrupt or truncated", "fetch it again and compare its SHA-256"),
    _rule("unsupported-architecture", r"unknown model architecture|unknown pre-tokenizer",
          "this build does not know the model's architecture", "use a newer engine build"),
    _rule("out-of-memory", r"out of memory|failed to allocate|unable to allocate|"
          r"insufficient memory|ErrorOutOfDeviceMemory|cudaMalloc failed|std::bad_alloc|"
          r"device memory allocation",
          "not enough memory", "lower `ctx_size`, quantize the KV cache, or offload fewer layers"),
    _rule("cache-types", r"does not support different K .* and V|requires flash_attn|"
          r"V cache quantization requires|block size \d+ does not divide",
          "the model refuses these cache types", "set `cache_type_k` and `cache_type_v` alike"),
    _rule("draft", r"draft (?:model )?vocab|vocabs are not compatible",
          "the draft model has another vocabulary", "choose a draft of the same family"),
    _rule("argument", r"invalid argument:|unknown argument:|error while handling argument|"
          r"error while handling environment variable|invalid value|the argument has been removed|"
          r"not a directory:|invalid device:|unknown buffer type",
          "the engine refuses an argument", "`fleet compile` shows the launch"),
    _rule("no-kernel", r"no kernel image is available|has no device code compatible",
          "the image has no kernels for this GPU", "use an image built for its architecture"),
    _rule("rpc", r"Failed to connect to .*:\d+|RPC handshake failed|RPC server version mismatch",
          "an RPC worker does not answer or is another build", "start it first; same build"),
    _rule("assertion", r"GGML_ASSERT\(|GGML_ABORT|terminate called after throwing",
          "the engine stopped itself", "it is a bug or a setting that this build cannot do"),
    _rule("not-installed", r"xllamacpp is not installed|exec: \"?[\w/.-]+\"?: (?:executable file )?"
          r"not found|No module named",
          "the engine is not installed there", "`pip install 'fleet[demo]'`, or another image"),
)  # fmt: skip

_EXITS = {
    KILLED: ("killed", "it was killed, most likely for want of memory",
             "see `dmesg`; lower `ctx_size` or raise the memory limit"),
    ABORTED: ("aborted", "the engine aborted", "the log's last lines tell where"),
    ILLEGAL_INSTRUCTION: ("illegal-instruction", "the engine needs instructions this CPU lacks",
                          "use a build for this CPU"),
    SEGMENTATION: ("crashed", "the engine crashed", "the log's last lines tell where"),
}  # fmt: skip


def classify(lines: Sequence[str], exit_code: int | None) -> Failure:
    """Return the most telling cause; `unknown` carries the last line that reads as an error."""
    last = lines[-LOOK_BACK:]
    for rule in _RULES:
        line = next((line for line in last if rule.pattern.search(line)), None)
        if line is not None:
            return Failure(cause=rule.cause, message=rule.message, fix=rule.fix, line=line.strip())
    if exit_code in _EXITS:
        cause, message, fix = _EXITS[exit_code]
        return Failure(cause=cause, message=message, fix=fix, line=_last_error(last))
    code = f" (exit code {exit_code})" if exit_code is not None else ""
    message = f"the server ended{code} without naming a cause"
    return Failure(
        cause="unknown",
        message=message,
        fix="read the log, it is named above",
        line=_last_error(last),
    )


def _last_error(lines: Sequence[str]) -> str:
    telling = [line for line in lines if re.search(r" E |error|fail", line, re.IGNORECASE)]
    return (telling or [line for line in lines if line.strip()] or [""])[-1].strip()

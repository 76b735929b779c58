"""What a real engine prints of its memory while it starts; it is ended once that is said."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_EMBEDDED = """
import json, os, sys
import xllamacpp as x
o = json.loads(sys.argv[1])
p = x.CommonParams()
p.model.path, p.verbosity, p.port, p.hostnames = o["model"], 4, o["port"], ["127.0.0.1"]
p.n_ctx, p.n_parallel, p.n_ubatch = o["c"], o["np"], o["ub"]
p.n_batch = o.get("b") or max(2048, o["ub"])
p.kv_unified, p.swa_full, p.warmup = bool(o["kvu"]), bool(o["swa_full"]), False
kinds = {"f16": "F16", "q8_0": "Q8_0", "q4_0": "Q4_0", "bf16": "BF16"}
p.cache_type_k = getattr(x.ggml_type, "GGML_TYPE_" + kinds[o["ctk"]])
p.cache_type_v = getattr(x.ggml_type, "GGML_TYPE_" + kinds[o["ctv"]])
flash = "ENABLED" if o["fa"] else "DISABLED"
p.flash_attn_type = getattr(x.llama_flash_attn_type, "LLAMA_FLASH_ATTN_TYPE_" + flash)
p.no_extra_bufts = not o["repack"]
x.Server(p)
os._exit(0)
"""
DEFAULTS = {"c": 4096, "np": 1, "ub": 512, "kvu": 0, "swa_full": 0, "ctk": "f16", "ctv": "f16",
            "fa": 1, "repack": 0}  # fmt: skip
_END = "=== end of one start ===\n"
_ONE = f"""
: > /tmp/log; /usr/bin/llama-server "$@" > /tmp/log 2>&1 < /dev/null & pid=$!
while kill -0 $pid 2> /dev/null && ! grep -q "compute buffer size" /tmp/log; do sleep 0.05; done
kill -9 $pid 2> /dev/null; wait $pid 2> /dev/null; cat /tmp/log; printf "{_END[:-1]}\\n"
"""


def embedded_lines(model: Path, flags: Mapping[str, object], port: int = 39731) -> list[str]:
    """Return the log of the embedded engine up to its compute buffer."""
    asked = json.dumps({**DEFAULTS, **flags, "model": str(model), "port": port})
    return _until_reserved([sys.executable, "-c", _EMBEDDED, asked])


def server_lines(
    program: Sequence[str], model: str, flags: Mapping[str, object], port: int = 39732
) -> list[str]:
    """Return the log of a llama-server program up to its compute buffer."""
    return _until_reserved([*program, *_words(model, flags, port)])


def image_lines(
    image: str, folder: Path, asked: Sequence[tuple[str, Mapping[str, object]]]
) -> list[list[str]]:
    """Return the log of each (model in `folder`, flags), all started in one container.

    A container for each would take seconds, and killing `podman run` leaves its server alive.
    """
    launches = [shlex.join(_words(f"/models/{model}", flags, 39733)) for model, flags in asked]
    script = f"one() {{ {_ONE} }}\n" + "\n".join(f"one {words}" for words in launches)
    words = [
        "podman", "run", "--rm", "--interactive", "--network", "none",
        "--volume", f"{folder}:/models:ro", "--entrypoint", "/bin/sh", image,
    ]  # fmt: skip
    done = subprocess.run(
        words, input=script, capture_output=True, text=True, errors="replace", check=True
    )
    return [part.splitlines(keepends=True) for part in done.stdout.split(_END)[:-1]]


def _words(model: str, flags: Mapping[str, object], port: int) -> list[str]:
    f = {**DEFAULTS, **flags}
    return [
        "-m", model, "-lv", "4", "--port", str(port), "--no-warmup",
        "-c", str(f["c"]), "-np", str(f["np"]), "-ub", str(f["ub"]), "-ctk", str(f["ctk"]),
        "-b", str(f.get("b") or max(2048, int(str(f["ub"])))),
        "-ctv", str(f["ctv"]), "-fa", "on" if f["fa"] else "off", "-fit", "off",
        *(["-kvu"] if f["kvu"] else []), *(["--swa-full"] if f["swa_full"] else []),
        *([] if f["repack"] else ["--no-repack"]),
    ]  # fmt: skip


def _until_reserved(words: Sequence[str]) -> list[str]:
    lines: list[str] = []
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if "compute buffer size" in line:
                break
        process.kill()
    return lines

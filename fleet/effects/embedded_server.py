"""The process that is an embedded server: `python -m fleet.effects.embedded_server ORDER.json`.

It holds the engine (xllamacpp's HTTP server) and nothing else. TERM ends it at once, also
while it loads and while a request is open: the engine's own clean-up waits for requests.
"""

from __future__ import annotations

import enum
import json
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

from fleet.effects.files import write_atomically
from fleet.effects.processes import identity

try:
    import xllamacpp
except ImportError:
    xllamacpp = None

LOOK_AT_LOG_S = 1.0
LOG_DRAINS_S = 0.1  # the engine writes its log in a thread, a little later
# the parent of the engine's process: small, and there to say afterwards how it ended
WATCH = """
import os, sys
code = os.waitstatus_to_exitcode(os.waitpid(int(sys.argv[1]), 0)[1])
code = code if code >= 0 else 128 - code
try:
    open(sys.argv[2], "w").write(str(code))
except OSError:
    pass
sys.exit(code)
"""
WORDS = {"ON": "ENABLED", "TRUE": "ENABLED", "OFF": "DISABLED", "FALSE": "DISABLED"}


class CannotSet(Exception):
    """The engine has no such attribute, or not that value."""


def main(order_file: str) -> None:
    """Start what the order says and serve until TERM."""
    order = json.loads(Path(order_file).read_text())
    _be_watched(order["exit_file"])
    _sign_in(order, order_file)
    threading.Thread(target=_bound_log, args=(order,), daemon=True).start()
    if order["cpus"]:
        os.sched_setaffinity(0, order["cpus"])
    if xllamacpp is None:
        _give_up("xllamacpp is not installed: `pip install 'fleet[demo]'`")
    try:
        params = engine_params(order["attributes"])
        if order["api_key_file"]:
            params.api_keys = Path(order["api_key_file"]).read_text().split()
    except (CannotSet, OSError) as error:
        _give_up(str(error))
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        # the cause stands above, in the engine's own lines
        _give_up(str(error))
    signal.signal(signal.SIGTERM, _leave)
    while server is not None:
        signal.pause()


def engine_params(attributes: dict[str, Any]) -> Any:  # noqa: ANN401 - xllamacpp is untyped
    """Return `CommonParams` with `attributes` set; dots go into parts. Raises `CannotSet`."""
    params = xllamacpp.CommonParams()
    for path, value in attributes.items():
        *parts, last = path.split(".")
        owner = params
        try:
            for part in parts:
                owner = getattr(owner, part)
            setattr(owner, last, _as_kind_of(getattr(owner, last), value))
        except (AttributeError, TypeError, ValueError) as error:
            message = f"invalid argument: the embedded engine cannot set `{path}` to {value!r}"
            raise CannotSet(f"{message}: {error}") from None
    return params


def _as_kind_of(current: object, value: Any) -> object:  # noqa: ANN401 - JSON
    """Return `value` as the engine's binding wants it: an enum's member, a list, a set."""
    if isinstance(current, enum.Enum):
        return _member(type(current), value)
    if isinstance(current, list | set):
        words: list[Any] = value.split(",") if isinstance(value, str) else list(value)
        kind = type(next(iter(current), ""))
        if issubclass(kind, enum.Enum):
            words = [_member(kind, word) for word in words]
        elif issubclass(kind, float):
            words = [float(word) for word in words]
        return type(current)(words)
    return float(value) if isinstance(current, float) else value


def _member(kind: type[enum.Enum], value: int | str) -> enum.Enum:
    """Find `q8_0` as GGML_TYPE_Q8_0, `on` as ..._ENABLED, a number as itself."""
    if isinstance(value, int) and not isinstance(value, bool):
        return kind(value)
    word = str(value).upper().replace("-", "_").replace("+", "_")
    for wanted in (word, WORDS.get(word, word)):
        for member in kind:
            if member.name == wanted or member.name.endswith(f"_{wanted}"):
                return member
    raise ValueError(f"not one of {', '.join(member.name for member in kind)}")


def _be_watched(exit_file: str) -> None:
    """Go on as a child of a process that writes our exit code to `exit_file`."""
    child = os.fork()
    if child:
        words = (sys.executable, "-I", "-S", "-c", WATCH, str(child), exit_file)
        os.execv(sys.executable, words)  # noqa: S606 - no shell is wanted


def _sign_in(order: dict[str, Any], order_file: str) -> None:
    me = identity(os.getpid(), order_file)
    started = me.started if me else 0.0
    signed = {"pid": os.getpid(), "started": started, "digest": order["digest"]}
    write_atomically(order["process_file"], json.dumps(signed))


def _bound_log(order: dict[str, Any]) -> None:
    """Keep the log below its bound: the older half moves to `.1` when it is reached.

    The engine writes to the descriptor itself, opened for appending, so that the file can be
    cut while it writes; lines written between copy and cut are lost.
    """
    log, most = Path(order["log"]), order["log_bytes"] // 2
    pause = threading.Event()
    while not pause.wait(LOOK_AT_LOG_S):
        try:
            if log.stat().st_size > most:
                shutil.copyfile(log, log.with_name(f"{log.name}.1"))
                os.truncate(log, 0)
        except OSError:
            # a full disk must not end the server
            continue


def _leave(*_: object) -> None:
    time.sleep(LOG_DRAINS_S)
    os._exit(0)


def _give_up(message: str) -> NoReturn:
    print(f"0.00.000.000 E {message}", file=sys.stderr, flush=True)  # noqa: T201 - the log
    # the engine writes its log in a thread: a hard exit would lose the lines that tell why
    sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1])

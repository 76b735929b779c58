"""Bring a model's files to hosts: resumed, checked, under temporary names, one copy at a time.

On the host a file `m.gguf` has a stamp `m.gguf.sha256` with size, time and digest; while the
first two hold, the file is neither read nor copied again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet.deploy.copy_between_hosts import borrow
from fleet.effects.files import read_text, sha256, write_atomically
from fleet.errors import OutsideError
from fleet.sizes import MIB, ByteSize

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fleet.deploy.bring_up import Progress
    from fleet.deploy.copy_between_hosts import Loan
    from fleet.deploy.look_at_host import HostSight
    from fleet.deploy.rim import Rim
    from fleet.effects.ssh import SshCommands

SPARE = 256 * MIB  # left free on the host's disk
HOLDS = 75  # exit codes of the scripts below
FULL = 28
# a lock per model and host; the kernel frees it when the connection ends
RECEIVE = """
set -e
mkdir -p "$1"; cd "$1"
exec 9>.lock; flock -n 9 || exit 75
have=$(stat -Lc %s "$2.partial" 2>/dev/null || echo 0)
[ "$have" -eq "$3" ] || exit 74
free=$(df -Pk . | awk 'END {print $4}')
[ "$free" -gt "$4" ] || exit 28
cat >> "$2.partial"
"""
FINISH = """
set -e
cd "$1"
exec 9>.lock; flock -n 9 || exit 75
found=$(sha256sum "$2" | cut -d' ' -f1)
[ "$found" = "$4" ] || { echo "$found"; exit 65; }
[ "$2" = "$3" ] || mv "$2" "$3"
stat -Lc "%s %Y $found" "$3" > "$3.sha256.partial"
mv "$3.sha256.partial" "$3.sha256"
"""
# of the nearest folder that exists, in KiB
FREE = """
d=$1; while [ ! -d "$d" ]; do d=$(dirname "$d"); done
df -Pk "$d" | awk 'END {print $4}'
"""
HAVE = 'stat -Lc %s "$1/$2.partial" 2>/dev/null || echo 0'


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelCopy:
    """One file to be on a host: from `source` here to `folder`/`name` there."""

    source: Path
    name: str
    size: int
    digest: str


def copies_of(files: Sequence[Path], *, rim: Rim, progress: Progress) -> tuple[ModelCopy, ...]:
    """Return the files with their digests, which are remembered by size and time."""
    return tuple(
        ModelCopy(
            source=file,
            name=file.name,
            size=file.stat().st_size,
            digest=digest_of(file, rim=rim, progress=progress),
        )
        for file in files
    )


def digest_of(file: Path, *, rim: Rim, progress: Progress) -> str:
    """Return the file's SHA-256; read only when its size or time is new."""
    stat, store = file.stat(), rim.folders.state / "digests.json"
    stamp = [stat.st_size, stat.st_mtime_ns]
    known = _remembered(store).get(str(file))
    if known and known[:2] == stamp:
        return str(known[2])
    progress(f"checking {file.name}")
    digest = sha256(file)
    write_atomically(store, json.dumps({**_remembered(store), str(file): [*stamp, digest]}))
    return digest


def missing_on(sight: HostSight, copies: Sequence[ModelCopy]) -> tuple[ModelCopy, ...]:
    """Return the files that the host lacks or cannot vouch for."""
    return tuple(
        copy
        for copy in copies
        if sight.verified.get(f"{sight.folder}/{copy.name}") != copy.digest
        or sight.sizes.get(f"{sight.folder}/{copy.name}") != copy.size
    )


def bring_model(
    commands: SshCommands,
    sight: HostSight,
    copies: Sequence[ModelCopy],
    *,
    progress: Progress,
    loan: Loan | None = None,
) -> None:
    """Copy what the host lacks, all files or an error; a right file there is only checked.

    It is fetched from the host that lends it, and from here where that does not succeed.
    Raises `OutsideError` (disk, lock, digest), `HostUnreachable`.
    """
    wanted = missing_on(sight, copies)
    there = [copy for copy in wanted if sight.sizes.get(f"{sight.folder}/{copy.name}") == copy.size]
    right = set()
    for copy in there:
        progress(f"{sight.name}: checking {copy.name}")
        if _run(commands, sight, FINISH, copy.name, copy.name, copy.digest, allowed=65):
            right.add(copy.name)
    rest = [copy for copy in wanted if copy.name not in right]
    _check_disk(commands, sight, rest)
    for copy in rest:
        if loan is None or not _borrowed(commands, sight, copy, loan, progress):
            _send(commands, sight, copy, progress)


def _borrowed(
    commands: SshCommands, sight: HostSight, copy: ModelCopy, loan: Loan, progress: Progress
) -> bool:
    progress(f"{sight.name}: {copy.name} from {loan.lender}")
    if not borrow(commands, loan, sight.folder, copy.name):
        return False
    _finish(commands, sight, copy, progress)
    return True


def _check_disk(commands: SshCommands, sight: HostSight, copies: Sequence[ModelCopy]) -> None:
    """Refuse before the first byte is sent what cannot lie there whole."""
    if not copies:
        return
    partial = sum(_have(commands, sight, copy) for copy in copies)
    needed = sum(copy.size for copy in copies) - partial
    told = commands.run(("sh", "-c", FREE, "sh", sight.folder)).checked()
    free = int(told.stdout.strip() or 0) * 1024
    if needed + SPARE > free:
        raise _full(sight, needed, free)


def _send(commands: SshCommands, sight: HostSight, copy: ModelCopy, progress: Progress) -> None:
    have = _have(commands, sight, copy)
    if have > copy.size:
        commands.run(("rm", "-f", f"{sight.folder}/{copy.name}.partial"))
        have = 0
    with copy.source.open("rb") as file:
        file.seek(have)
        words = ("sh", "-c", RECEIVE, "sh", sight.folder, copy.name, str(have))
        left = (copy.size - have) // 1024
        told = commands.send(
            (*words, str(left)), file,
            on_bytes=lambda sent: progress(
                f"{sight.name}: {copy.name} {(have + sent) * 100 // max(1, copy.size)} %"
            ),
        )  # fmt: skip
    if told.code == HOLDS:
        raise _held(sight, copy)
    if told.code == FULL or "No space left" in told.stdout:
        raise _full(sight, copy.size - have, 0)
    if not told.ok:
        last = told.stdout.strip().splitlines()[-1:] or [f"code {told.code}"]
        raise OutsideError(f"copying {copy.name} failed: {last[0]}", where=sight.name)
    _finish(commands, sight, copy, progress)


def _finish(commands: SshCommands, sight: HostSight, copy: ModelCopy, progress: Progress) -> None:
    """Check the digest of what arrived and give it its name. Raises `OutsideError`."""
    progress(f"{sight.name}: checking {copy.name}")
    partial = f"{copy.name}.partial"
    if not _run(commands, sight, FINISH, partial, copy.name, copy.digest, allowed=65):
        commands.run(("rm", "-f", f"{sight.folder}/{partial}"))
        message = f"{copy.name} arrived damaged and was removed"
        raise OutsideError(message, where=sight.name, fix="run the command again")


def _run(commands: SshCommands, sight: HostSight, script: str, *words: str, allowed: int) -> bool:
    told = commands.run(("sh", "-c", script, "sh", sight.folder, *words))
    if told.code == HOLDS:
        raise OutsideError(
            f"another copy of {words[1]} is on its way to it", where=sight.name,
            fix="wait until it has ended",
        )  # fmt: skip
    if told.code != allowed:
        told.checked()
    return told.ok


def _have(commands: SshCommands, sight: HostSight, copy: ModelCopy) -> int:
    told = commands.run(("sh", "-c", HAVE, "sh", sight.folder, copy.name))
    return int(told.stdout.strip() or 0)


def _held(sight: HostSight, copy: ModelCopy) -> OutsideError:
    message = f"another copy of {copy.name} is on its way to it"
    return OutsideError(message, where=sight.name, fix="wait until it has ended")


def _full(sight: HostSight, needed: int, free: int) -> OutsideError:
    message = f"its disk is full: the model needs {ByteSize(needed)}, {ByteSize(free)} are free"
    fix = f"free some space for {sight.folder}, or set `models_dir` to a larger disk"
    return OutsideError(message, where=sight.name, fix=fix)


def _remembered(store: Path) -> dict[str, list[object]]:
    try:
        found = json.loads(read_text(store))
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}

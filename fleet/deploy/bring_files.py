"""Bring files to a host: resumed, checked, under temporary names, one copy at a time.

On the host a file `m.gguf` has a stamp `m.gguf.sha256` with size, time and digest; while the
first two hold, the file is neither read nor copied again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet.deploy.copy_between_hosts import borrow
from fleet.deploy.file_digests import digest_of
from fleet.deploy.host_files import SNAPSHOT
from fleet.errors import OutsideError
from fleet.sizes import MIB, ByteSize

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fleet.deploy.bring_up import Progress
    from fleet.deploy.copy_between_hosts import Loan
    from fleet.deploy.host_files import HostFile
    from fleet.deploy.look_at_host import HostSight
    from fleet.deploy.rim import Rim
    from fleet.effects.commands import CommandResult
    from fleet.effects.ssh import SshCommands

SPARE = 256 * MIB  # left free on the host's disk
# A sender that lost its power or its network never says so: after this silence the host gives
# the file free again. SSH here gives up earlier (`effects/ssh.ALIVE`).
SILENCE_S = 30
WAIT_S = 45  # so who comes while a dead copy still holds the file waits for less than this
TRIES = 4
# exit codes of the scripts below
FULL, WRONG, CHANGED, HELD, SILENT = 28, 65, 74, 75, 76
# a lock per folder of a model and host; the kernel frees it when its process ends
RECEIVE = f"""
import errno, fcntl, os, select, sys, time
path, start, silence, wait = sys.argv[1], *map(float, sys.argv[2:])
os.makedirs(os.path.dirname(path), exist_ok=True)
lock, until = open(os.path.dirname(path) + "/.lock", "a"), time.monotonic() + wait
while True:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        break
    except BlockingIOError:
        time.sleep(0.2)
    if time.monotonic() > until:
        sys.exit({HELD})
with open(path + ".partial", "ab", buffering=0) as file:
    if file.tell() != start:
        sys.exit({CHANGED})
    while True:
        if not select.select([0], [], [], silence)[0]:
            sys.exit({SILENT})
        block = os.read(0, 1 << 20)
        if not block:
            break
        try:
            while block:
                block = block[file.write(block):]
        except OSError as error:
            sys.exit({FULL} if error.errno in (errno.ENOSPC, errno.EDQUOT) else str(error))
"""
# words: the file to check, the name it gets, its digest, seconds to wait for the lock
FINISH = f"""
set -e
cd "$(dirname "$1")"
exec 9>>.lock; flock -w "$4" 9 || exit {HELD}
[ -f "$1" ] || exit {CHANGED}
found=$(sha256sum < "$1" | cut -d' ' -f1)
[ "$found" = "$3" ] || exit {WRONG}
[ "$1" = "$2" ] || mv "$1" "$2"
stat -Lc "%s %Y $found" "$2" > "$2.sha256.partial"
mv "$2.sha256.partial" "$2.sha256"
"""
# of each file of a folder: its size, digest and name; digests are remembered as stamps
LIST = """
cd "$1" || exit 1
find . -name '.?*' -prune -o -type f ! -name '*.sha256' ! -name '*.partial' -print | cut -c3- |
while read -r f; do
  now=$(stat -Lc "%s %Y" "$f")
  case "$(cat "$f.sha256" 2>/dev/null)" in
    "$now "*) ;;
    *) echo "$now $(sha256sum < "$f" | cut -d' ' -f1)" > "$f.sha256.partial"
       mv "$f.sha256.partial" "$f.sha256" ;;
  esac
  read -r size _ digest < "$f.sha256" && echo "$size $digest $f"
done
"""
# free KiB of the nearest folder that exists, then each file's size and its partial copy's
STATE = """
d=$1; while [ ! -d "$d" ]; do d=$(dirname "$d"); done
df -Pk "$d" | awk 'END {print $4}'
for f in "$@"; do
  echo "$(stat -Lc %s "$f" 2>/dev/null || echo 0) $(stat -Lc %s "$f.partial" 2>/dev/null || echo 0)"
done
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileCopy:
    """One file to be on hosts: from `source` here to `place` there (see `HostSight.at`).

    Without a `source` only another host has it.
    """

    source: Path | None
    place: str
    size: int
    digest: str

    @property
    def name(self) -> str:
        """The file's own name."""
        return self.place.rpartition("/")[2]


def copies_of(files: Sequence[HostFile], *, rim: Rim, progress: Progress) -> tuple[FileCopy, ...]:
    """Return what of the files is here, with digests, which are remembered by size and time."""
    return tuple(
        FileCopy(
            source=file.source,
            place=file.place,
            size=file.source.stat().st_size,
            digest=digest_of(file.source, rim=rim, progress=progress),
        )
        for file in files
        if file.source is not None
    )


def copies_in(commands: SshCommands, folder: str, place: str) -> tuple[FileCopy, ...]:
    """Return all files of a host's folder, to be at the same `place` of others.

    What makes a folder a model comes last, so that no half of one is taken for it.
    Raises `OutsideError`.
    """
    told = commands.run(("sh", "-c", LIST, "sh", folder)).checked()
    found = [line.split(" ", 2) for line in told.stdout.splitlines()]
    found.sort(key=lambda each: each[2] == SNAPSHOT)
    return tuple(
        FileCopy(source=None, place=f"{place}/{name}", size=int(size), digest=digest)
        for size, digest, name in found
    )


def missing_on(sight: HostSight, copies: Sequence[FileCopy]) -> tuple[FileCopy, ...]:
    """Return the files that the host lacks or cannot vouch for."""
    return tuple(
        copy
        for copy in copies
        if sight.verified.get(sight.at(copy.place)) != copy.digest
        or sight.sizes.get(sight.at(copy.place)) != copy.size
    )


def bring_files(
    commands: SshCommands,
    sight: HostSight,
    copies: Sequence[FileCopy],
    *,
    progress: Progress,
    loan: Loan | None = None,
) -> None:
    """Copy what the host lacks, all files or an error; a right file there is only checked.

    It is fetched from the host that lends it, and from here where that does not succeed.
    Raises `OutsideError` (disk, lock, digest), `HostUnreachable`.
    """
    work = _Arrival(commands=commands, sight=sight, progress=progress, loan=loan)
    rest = [copy for copy in missing_on(sight, copies) if not work.is_right_already(copy)]
    if rest:
        work.check_disk(rest)
    for copy in rest:
        work.bring(copy)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Arrival:
    """Files on their way to one host."""

    commands: SshCommands
    sight: HostSight
    progress: Progress
    loan: Loan | None

    def is_right_already(self, copy: FileCopy) -> bool:
        """Whether a file of the right size has the right content too; it is read there."""
        path = self.sight.at(copy.place)
        return self.sight.sizes.get(path) == copy.size and self._finish(copy, path) == 0

    def check_disk(self, copies: Sequence[FileCopy]) -> None:
        """Refuse before the first byte is sent what cannot lie there whole."""
        free, sizes = self._state(copies)
        needed = sum(copy.size for copy in copies) - sum(partial for _, partial in sizes)
        if needed + SPARE > free:
            raise self._full(needed, free)

    def bring(self, copy: FileCopy) -> None:
        """Bring one file; what another copy did meanwhile is taken into account."""
        path = self.sight.at(copy.place)
        for number in range(TRIES):
            _, [(size, partial)] = self._state([copy])
            looked = number == 0 and path in self.sight.sizes
            if size == copy.size and not looked and self._finish(copy, path) == 0:
                return
            arrived = self._borrow(copy) or self._send(copy, partial)
            if arrived and self._finish(copy, f"{path}.partial") == 0:
                return
        raise self._held(copy)

    def _borrow(self, copy: FileCopy) -> bool:
        if self.loan is None or copy.place not in self.loan.places:
            return False
        self.progress(f"{self.sight.name}: {copy.name} from {self.loan.lender}")
        return borrow(self.commands, self.loan, copy.place, self.sight.at(copy.place))

    def _send(self, copy: FileCopy, partial: int) -> bool:
        """Send from here what is missing; False when another copy came in between."""
        if copy.source is None:
            message = f"{copy.name} did not arrive from the host that has it"
            raise OutsideError(message, where=self.sight.name, fix="run the command again")
        path, name = self.sight.at(copy.place), f"{self.sight.name}: {copy.name}"
        if partial > copy.size:
            self.commands.run(("rm", "-f", f"{path}.partial"))
            partial = 0
        with copy.source.open("rb") as file:
            file.seek(partial)
            told = self.commands.send(
                receive_words(path, partial), file,
                on_bytes=lambda sent: self.progress(
                    f"{name} {(partial + sent) * 100 // max(1, copy.size)} %"
                ),
            )  # fmt: skip
        self._raise_for(told, copy)
        return told.ok

    def _finish(self, copy: FileCopy, path: str) -> int:
        """Check what lies at `path` and give it its name; return 0, `WRONG` or `CHANGED`.

        A wrong partial file is removed. Raises `OutsideError`.
        """
        self.progress(f"{self.sight.name}: checking {copy.name}")
        final = self.sight.at(copy.place)
        words = ("sh", "-c", FINISH, "sh", path, final, copy.digest, str(WAIT_S))
        told = self.commands.run(words)
        if told.code == WRONG and path != final:
            self.commands.run(("rm", "-f", path))
            message = f"{copy.name} arrived damaged and was removed"
            raise OutsideError(message, where=self.sight.name, fix="run the command again")
        self._raise_for(told, copy)
        return told.code

    def _state(self, copies: Sequence[FileCopy]) -> tuple[int, list[tuple[int, int]]]:
        """Return the free bytes, and of each file the sizes of it and of its partial copy."""
        paths = [self.sight.at(copy.place) for copy in copies]
        told = self.commands.run(("sh", "-c", STATE, "sh", *paths)).checked()
        free, *rest = told.stdout.split()
        sizes = [int(each) for each in rest]
        return int(free) * 1024, list(zip(sizes[::2], sizes[1::2], strict=True))

    def _raise_for(self, told: CommandResult, copy: FileCopy) -> None:
        if told.code in {0, WRONG, CHANGED}:
            return
        if told.code == HELD:
            raise self._held(copy)
        if told.code == FULL or "No space left" in told.stdout:
            raise self._full(copy.size, 0)
        last = told.stdout.strip().splitlines()[-1:] or [f"code {told.code}"]
        said = f"nothing came for {SILENCE_S} s" if told.code == SILENT else last[0]
        message = f"copying {copy.name} failed: {said}"
        raise OutsideError(message, where=self.sight.name, fix="run the command again")

    def _held(self, copy: FileCopy) -> OutsideError:
        message = f"another copy of {copy.name} is on its way to it"
        return OutsideError(message, where=self.sight.name, fix="wait until it has ended")

    def _full(self, needed: int, free: int) -> OutsideError:
        message = f"its disk is full: {ByteSize(needed)} are needed, {ByteSize(free)} are free"
        fix = f"free some space for {self.sight.folder}, or set `models_dir` to a larger disk"
        return OutsideError(message, where=self.sight.name, fix=fix)


def receive_words(path: str, start: int, *, silence_s: float = SILENCE_S) -> tuple[str, ...]:
    """Return the program that appends its input to `path`'s partial file from byte `start`.

    It ends, and frees the file for others, when nothing comes for `silence_s`.
    """
    return ("python3", "-c", RECEIVE, path, str(start), str(silence_s), str(WAIT_S))

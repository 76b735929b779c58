"""Run commands on a host over SSH: one shared connection a host, keys checked, clear errors."""

from __future__ import annotations

import base64
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self, TypeVar

from fleet.effects.causes import Cause, cause_of
from fleet.effects.commands import TIMED_OUT, CommandResult, LocalCommands
from fleet.effects.machine import free_port
from fleet.effects.spoken_process import SpokenProcess, spoken_process
from fleet.errors import FleetError, HostUnreachable, OutsideError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    from fleet.effects.commands import Commands

SSH_FAILED = 255
CONNECT_S = 10
BLOCK = 2**20
# a dead peer is noticed after 3 * 5 s of silence
ALIVE = ("ServerAliveInterval=5", "ServerAliveCountMax=3")

T = TypeVar("T")
Key = TypeVar("Key")


@dataclass(frozen=True, kw_only=True, slots=True)
class SshTarget:
    """A host as ssh is told it; the user's own ssh configuration holds for the rest."""

    name: str
    address: str
    user: str | None = None
    port: int = 22
    key_file: str | None = None

    @property
    def login(self) -> str:
        """`user@address`, or the address alone."""
        return f"{self.user}@{self.address}" if self.user else self.address


# in this order: the first that ssh said wins
CAUSES = (
    Cause("HOST IDENTIFICATION HAS CHANGED",
          "its host key is not the one pinned before: it was rebuilt, or somebody is in between",
          "compare the key on the host itself; if it is right: "
          "`ssh-keygen -R {address} -f {known}`"),
    Cause("Host key verification failed", "its host key is not known",
          "`ssh {login}` once and compare the key it shows"),
    Cause("Permission denied", "it refuses the key",
          "`ssh-copy-id {login}`, or name another `user` or `key_file` for this host"),
    Cause("Connection refused", "nothing answers SSH on port {port}",
          "start sshd there, or set the host's `port`"),
    Cause("Could not resolve", "its name has no address", "check the host's `address`"),
    Cause("timed out", "no answer within the time-out",
          "is it switched on, and the network there? `ping {address}`"),
    Cause("No route to host", "no route to it", "is it switched on, and the network there?"),
    Cause("Network is unreachable", "no route to it", "is the network of this machine up?"),
    Cause("no such identity", "the key file is missing", "check the host's `key_file`"),
    Cause("", "the SSH connection was lost", "run the command again; it goes on from there"),
)  # fmt: skip


@dataclass(kw_only=True)
class SshSession:
    """The connections of one run; leaving the context ends them all.

    `known_hosts` is fleet's own file, where a key seen first is pinned; keys in the user's
    file count too. With `ask_first_use` set, a new key is shown to it and pinned on True.
    """

    known_hosts: Path
    ask_first_use: Callable[[str, str], bool] | None = None
    note: Callable[[str], None] | None = None
    local: Commands = field(default_factory=LocalCommands)
    _forwards: dict[tuple[str, str, int], int] = field(default_factory=dict, init=False)
    _streams: list[subprocess.Popen[str]] = field(default_factory=list, init=False)

    def __enter__(self) -> Self:
        """Make the folder of the control sockets: short, for their paths are limited."""
        if shutil.which("ssh") is None:
            raise OutsideError("ssh is not installed", fix="`apt-get install openssh-client`")
        self._folder = Path(tempfile.mkdtemp(prefix="fleet-ssh-"))
        self.known_hosts.parent.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End every shared connection of this run and what streams over it, and no other."""
        for process in list(self._streams):  # their readers may be threads that nobody joins
            process.terminate()
        for path in sorted(self._folder.glob("*")):
            words = ["ssh", "-F", "none", "-o", f"ControlPath={path}", "-O", "exit", "fleet"]
            with suppress(OSError):
                self.local.run(words, timeout_s=5.0)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def control_path(self) -> str:
        """The pattern of the control sockets, for Ansible to share the connections."""
        return f"{self._folder}/%C"

    def options(self) -> tuple[str, ...]:
        """Return the `-o` settings that ssh and Ansible are both given."""
        user_file = Path.home() / ".ssh" / "known_hosts"
        return (
            "BatchMode=yes",
            "ControlMaster=auto",
            f"ControlPath={self.control_path}",
            "ControlPersist=300",
            f"ConnectTimeout={CONNECT_S}",
            f"StrictHostKeyChecking={'yes' if self.ask_first_use else 'accept-new'}",
            f'UserKnownHostsFile="{self.known_hosts}" "{user_file}"',
            *ALIVE,
        )

    def words(self, target: SshTarget, *more: str) -> tuple[str, ...]:
        """Return the ssh command line up to and including the host."""
        options = [word for option in self.options() for word in ("-o", option)]
        port = ["-p", str(target.port)] if target.port != 22 else []  # noqa: PLR2004 - ssh's own
        key = ["-i", str(Path(target.key_file).expanduser())] if target.key_file else []
        return ("ssh", *options, *port, *key, *more, target.login)

    def commands(self, target: SshTarget) -> SshCommands:
        """Return the host as a place where commands run; a new host key is asked for first."""
        self.pin(target)
        return SshCommands(target=target, session=self)

    def forward(self, target: SshTarget, address: str, port: int) -> int:
        """Forward a free local port to `address:port` as the host sees it; return the port.

        It lasts as long as the session. Raises `HostUnreachable`.
        """
        known = self._forwards.get((target.name, address, port))
        if known is not None:
            return known
        self.commands(target).run(("true",))  # the shared connection must stand
        here = free_port()
        there = f"[{address}]" if ":" in address else address
        words = self.words(target, "-O", "forward", "-L", f"127.0.0.1:{here}:{there}:{port}")
        self.local.run(words, timeout_s=CONNECT_S).checked()
        self._forwards[target.name, address, port] = here
        return here

    def pin(self, target: SshTarget) -> None:
        """Ask about a host key that is not known and pin it. Raises `HostUnreachable`."""
        if self.ask_first_use is None:
            return
        name = _known_name(target)
        known = self.local.run(("ssh-keygen", "-F", name, "-f", str(self.known_hosts)))
        if known.ok or self.local.run(("ssh-keygen", "-F", name)).ok:
            return
        scan = ("ssh-keyscan", "-T", str(CONNECT_S), "-p", str(target.port), target.address)
        keys = self.local.run(scan, timeout_s=2 * CONNECT_S).stdout
        if not keys.strip():
            return  # ssh itself will say why it cannot reach the host
        shown = self.local.run(("ssh-keygen", "-l", "-f", "-"), stdin=keys).stdout.strip()
        if not self.ask_first_use(target.name, shown):
            raise HostUnreachable("its host key was not accepted", where=target.name)
        with self.known_hosts.open("a") as file:
            file.write(keys)


@dataclass(frozen=True, kw_only=True)
class SshCommands:
    """Commands on one host; the same seam as `LocalCommands`."""

    target: SshTarget
    session: SshSession

    def _words(self, argv: Sequence[str]) -> tuple[str, ...]:
        return (*self.session.words(self.target), "--", shlex.join(argv))

    def run(
        self, argv: Sequence[str], *, stdin: str | None = None, timeout_s: float | None = None
    ) -> CommandResult:
        """Run `argv` on the host. Raises `HostUnreachable` when SSH itself fails."""
        done = self.session.local.run(self._words(argv), stdin=stdin, timeout_s=timeout_s)
        if done.code == SSH_FAILED:
            raise unreachable(self.target, done.stderr, self.session.known_hosts)
        if done.code == TIMED_OUT:
            message = f"no answer within {timeout_s} s to `{argv[0]}`"
            raise HostUnreachable(message, where=self.target.name, fix="is the host overloaded?")
        return CommandResult(
            argv=tuple(argv), code=done.code, stdout=done.stdout, stderr=done.stderr
        )

    def read_range(self, path: str, offset: int, size: int) -> bytes:
        """Return up to `size` bytes of a file on the host from `offset`. Raises `OutsideError`."""
        script = 'tail -c +"$2" "$1" | head -c "$3" | base64'
        words = ("sh", "-c", script, "sh", path, str(offset + 1), str(size))
        return base64.b64decode(self.run(words).checked().stdout)

    def send(
        self,
        argv: Sequence[str],
        source: IO[bytes],
        *,
        on_bytes: Callable[[int], None] | None = None,
    ) -> CommandResult:
        """Run `argv` with `source` as its input; `on_bytes` is told how much was sent.

        Raises `HostUnreachable` when SSH itself fails.
        """
        with tempfile.TemporaryFile() as said, subprocess.Popen(
            self._words(argv), stdin=subprocess.PIPE, stdout=said, stderr=subprocess.STDOUT
        ) as process:  # fmt: skip
            sent = 0
            with suppress(BrokenPipeError), process.stdin or source as sink:
                while block := source.read(BLOCK):
                    sink.write(block)
                    sent += len(block)
                    if on_bytes is not None:
                        on_bytes(sent)
            code = process.wait()
            said.seek(0)
            text = said.read().decode(errors="replace")
        if code == SSH_FAILED:
            raise unreachable(self.target, text, self.session.known_hosts)
        return CommandResult(argv=tuple(argv), code=code, stdout=text, stderr=text)

    def spoken(self, argv: Sequence[str]) -> AbstractContextManager[SpokenProcess]:
        """Start `argv` on the host and speak to it in lines; it ends on leaving."""
        return spoken_process(self._words(argv))

    def stream(self, argv: Sequence[str]) -> Iterator[str]:
        """Yield the lines of a command's output until it ends or the caller stops.

        Its input stays open for as long: a command that should end with us reads it to its end.
        """
        with subprocess.Popen(
            self._words(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, errors="replace",
        ) as process:  # fmt: skip
            self.session._streams.append(process)  # noqa: SLF001 - same file
            try:
                for line in process.stdout or ():
                    yield line.rstrip("\n")
            finally:
                self.session._streams.remove(process)  # noqa: SLF001 - same file
                process.terminate()


def unreachable(target: SshTarget, said: str, known_hosts: Path) -> HostUnreachable:
    """Return the error that names the cause ssh gave, for one host."""
    cause = cause_of(said, CAUSES) or CAUSES[-1]
    fields = {
        "login": target.login, "port": target.port, "known": known_hosts,
        "address": _known_name(target),
    }  # fmt: skip
    return HostUnreachable(
        cause.message.format(**fields), where=target.name, fix=cause.fix.format(**fields)
    )


def on_each(
    keys: Iterable[Key], act: Callable[[Key], T], *, forks: int = 10
) -> dict[Key, T | FleetError]:
    """Do `act` for each key at once, `forks` at a time; a failure is a value of the result."""

    def outcome(key: Key) -> T | FleetError:
        try:
            return act(key)
        except FleetError as error:
            return error

    wanted = list(keys)
    with ThreadPoolExecutor(max_workers=max(1, min(forks, len(wanted)))) as pool:
        return dict(zip(wanted, pool.map(outcome, wanted), strict=True))


def _known_name(target: SshTarget) -> str:
    """Return the host as known_hosts files call it."""
    return target.address if target.port == 22 else f"[{target.address}]:{target.port}"  # noqa: PLR2004 - ssh's own


def ask_on_terminal() -> Callable[[str, str], bool] | None:
    """Return the question about a new host key; None without a terminal, where it is pinned."""
    return _ask if sys.stdin.isatty() and sys.stderr.isatty() else None


def _ask(host: str, shown: str) -> bool:
    sys.stderr.write(f"{host} is not known yet. Its keys are:\n{shown}\npin them? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}

"""Hosts in network namespaces: real addresses, sshd, podman storage, on one machine.

Each host has two interfaces, `eth0` for SSH and `fab0` as the fabric, its own `/root`,
container storage and host name. Everything it runs is found by its network namespace and
ended by process id; an interrupted run is cleaned up by the next one.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

from support.cache import Missing, cache_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

PROGRAMS = ("ip", "nsenter", "unshare", "sshd", "ssh", "ssh-keygen", "podman")
NETWORKS = range(1, 250)
READY_S = 60.0  # a bound for what never comes, on a machine with other work too
CONNECT_S = 20


@dataclass(kw_only=True, slots=True)
class NetHost:
    """One host; `address` is reached from here, `fabric` by the other hosts too."""

    name: str
    address: str
    fabric: str
    folder: Path
    namespace: str
    links: tuple[str, str]
    key_file: Path
    known_hosts: Path
    variables: Mapping[str, str]
    has_images: bool = True
    sshd: subprocess.Popen[bytes] | None = None

    def power_on(self) -> None:
        """Start sshd in the host's namespaces and wait until it answers."""
        words = ["nsenter", f"--net=/run/netns/{self.namespace}", "unshare", "-m", "-u"]
        with (self.folder / "sshd.log").open("ab") as log:
            self.sshd = subprocess.Popen(
                [*words, "sh", "-ec", _boot_script(self)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        deadline = time.monotonic() + READY_S
        while self.run("true").returncode != 0:
            if time.monotonic() > deadline:
                raise RuntimeError(f"sshd of {self.name}: {(self.folder / 'sshd.log').read_text()}")
            time.sleep(0.05)

    def power_off(self) -> None:
        """End every process of the host at once, as a power cut does."""
        deadline = time.monotonic() + READY_S
        # again and again: what forks while it is looked at is seen by the next look
        while left := self.processes():
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if self.sshd is not None:
                self.sshd.poll()  # a child that is not waited for stays in the list
            if time.monotonic() > deadline:
                raise RuntimeError(f"processes of {self.name} do not end: {left}")
            time.sleep(0.02)
        if self.sshd is not None:
            self.sshd.wait()
        self._forget_containers()

    def _forget_containers(self) -> None:
        """Clear what a reboot clears in the network: rules and bridges of dead containers."""
        inside = ["nsenter", f"--net=/run/netns/{self.namespace}"]
        for words in (
            ["iptables", "--wait", "20", "-t", "nat", "-F"],
            ["iptables", "--wait", "20", "-F"],
            ["ip", "link", "delete", "podman0"],
        ):
            with suppress(Missing):
                _checked([*inside, *words])

    def cut(self) -> None:
        """Take the host off the network; its processes go on."""
        _ip(f"link set {self.links[0]} down")

    def connect(self) -> None:
        """Put the host back on the network."""
        _ip(f"link set {self.links[0]} up")

    def run(self, command: str, *, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a shell command on the host over SSH, as a person would."""
        words = ["ssh", *self.ssh_options(), f"root@{self.address}", command]
        return subprocess.run(words, input=stdin, capture_output=True, text=True, check=False)

    def ssh_options(self) -> list[str]:
        """Return ssh's options for this host, without any shared connection."""
        return [
            "-F", "none", "-i", str(self.key_file), "-o", "BatchMode=yes",
            "-o", f"UserKnownHostsFile={self.known_hosts}", "-o", "ControlPath=none",
            "-o", f"ConnectTimeout={CONNECT_S}",
        ]  # fmt: skip

    def processes(self) -> list[int]:
        """Return the ids of the host's processes and all that descend from them."""
        wanted = Path(f"/run/netns/{self.namespace}").stat().st_ino
        parents: dict[int, int] = {}
        members = set()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with suppress(OSError, ValueError):
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                if stat[0] == "Z":
                    continue
                parents[int(entry.name)] = int(stat[1])
                if (entry / "ns/net").stat().st_ino == wanted:
                    members.add(int(entry.name))
        grown = True
        while grown:
            more = {pid for pid, parent in parents.items() if parent in members} - members
            members |= more
            grown = bool(more)
        return sorted(members - {os.getpid()})

    def remove(self) -> None:
        """End the host, its namespace, its mounts and its files."""
        self.power_off()
        with suppress(Missing):
            _ip(f"netns delete {self.namespace}")
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass(kw_only=True, slots=True)
class Network:
    """Some hosts on one bridge; `folder` holds the key and the known hosts."""

    number: int
    folder: Path
    key_file: Path
    known_hosts: Path
    hosts: list[NetHost] = field(default_factory=list)
    lock: IO[str]

    def remove(self) -> None:
        """Take everything away, also when parts of it never came up."""
        for host in self.hosts:
            host.remove()
        _delete_links(self.number)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.lock.close()


def start_network(count: int, variables: Mapping[str, str], *, bare: int = 0) -> Network:
    """Start `count` hosts; `variables` are podman's here. Raises `Missing`.

    The first `bare` have no images; the others see this machine's, to be spared the copy.
    """
    _require()
    network = _claim()
    try:
        _checked(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(network.key_file)])
        _lay_cables(network, count)
        for index in range(1, count + 1):
            network.hosts.append(_host(network, index, variables))
            network.hosts[-1].has_images = index > bare
        for host in network.hosts:
            host.power_on()
    except BaseException:
        network.remove()
        raise
    return network


def _require() -> None:
    if os.geteuid() != 0:
        raise Missing("hosts in network namespaces need root")
    absent = [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]
    if absent:
        raise Missing(f"{', '.join(absent)} not found: apt-get install -y openssh-server iproute2")


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def _claim() -> Network:
    """Take a network number that no other run holds, and clear what a dead run left there."""
    locks = Path("/run/fleet-tests/networks")
    locks.mkdir(parents=True, exist_ok=True)
    for number in NETWORKS:
        lock = (locks / str(number)).open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            continue
        folder = cache_folder() / "hosts" / str(number)
        _clear_leftovers(number)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return Network(
            number=number, folder=folder, key_file=folder / "key",
            known_hosts=folder / "known_hosts", lock=lock,
        )  # fmt: skip
    raise Missing("all test networks are in use")


def _clear_leftovers(number: int) -> None:
    names = Path("/run/netns")
    for path in names.glob(f"ft{number}-*") if names.is_dir() else ():
        left = NetHost(
            name=path.name, address="", fabric="", folder=Path("/nonexistent"),
            namespace=path.name, links=("", ""), key_file=path, known_hosts=path, variables={},
        )  # fmt: skip
        left.remove()
    _delete_links(number)


def _delete_links(number: int) -> None:
    """Delete the bridges and this end of every cable: a namespace takes its own end later."""
    for name in sorted(entry.name for entry in Path("/sys/class/net").iterdir()):
        if re.fullmatch(rf"f[tf]{number}(v\d+)?", name):
            with suppress(Missing):
                _ip(f"link delete {name}")


def _lay_cables(network: Network, count: int) -> None:
    number = network.number
    lines = []
    for bridge, subnet in ((f"ft{number}", 77), (f"ff{number}", 78)):
        lines += [
            f"link add {bridge} type bridge",
            f"addr add 10.{subnet}.{number}.1/24 dev {bridge}",
            f"link set {bridge} up",
        ]
    for index in range(1, count + 1):
        space = f"ft{number}-{index}"
        lines.append(f"netns add {space}")
        for bridge, device in ((f"ft{number}", "eth0"), (f"ff{number}", "fab0")):
            here = f"{bridge}v{index}"
            lines += [
                f"link add {here} type veth peer name {device} netns {space}",
                f"link set {here} master {bridge} up",
            ]
    _checked(["ip", "-batch", "-"], stdin="\n".join(lines) + "\n")


def _host(network: Network, index: int, variables: Mapping[str, str]) -> NetHost:
    number = network.number
    space, last = f"ft{number}-{index}", 10 + index
    lines = ["link set lo up"]
    for subnet, device in ((77, "eth0"), (78, "fab0")):
        lines += [f"addr add 10.{subnet}.{number}.{last}/24 dev {device}", f"link set {device} up"]
    _checked(["ip", "-n", space, "-batch", "-"], stdin="\n".join(lines) + "\n")
    folder = network.folder / f"h{index}"
    for name in ("lib", "root"):
        (folder / name).mkdir(parents=True)
    _checked(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "host_key")])
    public = (folder / "host_key.pub").read_text().split()
    with network.known_hosts.open("a") as known:
        known.write(f"10.77.{number}.{last} {public[0]} {public[1]}\n")
    return NetHost(
        name=f"h{index}", address=f"10.77.{number}.{last}", fabric=f"10.78.{number}.{last}",
        folder=folder, namespace=space, links=(f"ft{number}v{index}", f"ff{number}v{index}"),
        key_file=network.key_file, known_hosts=network.known_hosts, variables=variables,
    )  # fmt: skip


def _boot_script(host: NetHost) -> str:
    """Mount the host's own folders over the shared ones and become sshd.

    Not `ip netns exec`: that mounts a /sys without cgroups, and runc then finds none.
    """
    folder, cache = host.folder, cache_folder()
    settings = host.variables.get("CONTAINERS_CONF", "")
    own = {name: folder / f"{name}.conf" for name in ("containers", "storage")}
    environment = (
        f"SetEnv=CONTAINERS_CONF={own['containers']} CONTAINERS_STORAGE_CONF={own['storage']}"
    )
    if settings:
        shutil.copy(settings, own["containers"])
    own["storage"].write_text(
        '[storage]\ndriver = "overlay"\ngraphroot = "/var/lib/containers/storage"\n'
        f'runroot = "/run/containers/storage"\n[storage.options]\n'
        f"additionalimagestores = {_image_stores(host)}\n"
    )
    options = [
        f"ListenAddress={host.address}", f"HostKey={folder}/host_key", "StrictModes=no",
        f"AuthorizedKeysFile={host.key_file}.pub", f"PidFile={folder}/sshd.pid", "UsePAM=no",
        "PermitRootLogin=yes", "Subsystem=sftp internal-sftp", "MaxStartups=100", "UseDNS=no",
        "MaxSessions=100", environment,
    ]  # fmt: skip
    words = " ".join(f"-o '{option}'" for option in options)
    return f"""
mount --make-rprivate /
hostname {host.name}
mkdir -p /run/sshd /var/lib/containers
mount --bind {folder}/lib /var/lib/containers
# also systemd's folder: a host has none, and would otherwise reach this machine's
for own in /run/containers /run/libpod /run/podman /run/systemd /run/netns /dev/shm; do
  mkdir -p $own
  mount -t tmpfs tmpfs $own
done
mkdir -p /run/fleet-tests/cache
mount --bind {cache} /run/fleet-tests/cache
mount --bind {folder}/root /root
case {cache} in /root/*) mkdir -p {cache}; mount --bind /run/fleet-tests/cache {cache};; esac
cd /
exec {shutil.which("sshd", path=_path())} -D -e -f /dev/null {words}
"""


def _image_stores(host: NetHost) -> list[str]:
    """Return the image storage of this machine, where the host may read it."""
    settings = host.variables.get("CONTAINERS_STORAGE_CONF")
    if not settings or not host.has_images:
        return []
    roots = [line for line in Path(settings).read_text().splitlines() if "graphroot" in line]
    return [root.partition('"')[2].rstrip('"') for root in roots]


def _ip(words: str) -> None:
    _checked(["ip", *words.split()])


def _checked(words: list[str], *, stdin: str | None = None) -> str:
    environment = {**os.environ, "PATH": _path()}
    done = subprocess.run(
        words, input=stdin, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Missing(f"`{' '.join(words)}` failed: {done.stderr.strip()}")
    return done.stdout

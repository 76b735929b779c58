"""Small facts of this machine that need a look outside."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from pathlib import Path

LOCAL = "local"


def free_port(bind: str = "127.0.0.1") -> int:
    """Return a port that nothing listened on a moment ago."""
    with socket.socket(_family(bind), socket.SOCK_STREAM) as probe:
        probe.bind((bind, 0))
        return int(probe.getsockname()[1])


def port_taken(bind: str, port: int) -> bool:
    """Whether a server could not listen on `bind`:`port` now."""
    with socket.socket(_family(bind), socket.SOCK_STREAM) as probe:
        # as servers do: a port in TIME_WAIT is free, one that is listened on is not
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((bind, port))
        except OSError:
            return True
    return False


def listener(port: int) -> str | None:
    """Say which process listens on `port`, as far as this user may see it."""
    try:
        connections = psutil.net_connections(kind="tcp")
    except (psutil.Error, OSError):
        return None
    for connection in connections:
        if (
            connection.status == psutil.CONN_LISTEN
            and connection.laddr
            and connection.laddr.port == port
        ):
            return _named(connection.pid)
    return None


def disk_free(path: Path) -> int:
    """Return the free bytes of the file system that will hold `path`."""
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    return int(psutil.disk_usage(str(existing)).free)


def load_average() -> float:
    """Return the average number of runnable processes over the last minute."""
    return float(psutil.getloadavg()[0])


def _family(bind: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in bind else socket.AF_INET


def _named(pid: int | None) -> str | None:
    if pid is None:
        return None
    try:
        return f"{psutil.Process(pid).name()} (process {pid})"
    except psutil.Error:
        return f"process {pid}"

"""Copy a model from one host to others over their fabric, which is faster than this machine's.

The host that has it lends its files for as long as the SSH connection stands: on its fabric
address alone, to whoever has the token of this one loan. What arrives is checked by digest.
"""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet.errors import FleetError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fleet.effects.ssh import SshCommands

IDLE_S = 900  # the longest wait for a borrower that still checks an earlier file
SILENCE_S = 30
# the token comes by stdin, whose end is the end of the loan; a path is asked for by its number
LEND = """
import hmac, http.server, os, socket, sys, threading, time
idle, address, *paths = sys.argv[1:]
token = sys.stdin.readline().strip()
last = [time.monotonic()]
class Files(http.server.BaseHTTPRequestHandler):
    timeout = 60
    def do_GET(self):
        number = self.path.lstrip("/")
        right = hmac.compare_digest(self.headers.get("Authorization", ""), "Bearer " + token)
        if not right or not number.isdigit() or int(number) >= len(paths):
            return self.send_error(404)
        with open(paths[int(number)], "rb") as file:
            start = int(self.headers["X-Start"])
            self.send_response(200)
            self.send_header("Content-Length", str(os.fstat(file.fileno()).st_size - start))
            self.end_headers()
            file.seek(start)
            while block := file.read(1 << 20):
                self.wfile.write(block)
                last[0] = time.monotonic()
    def log_message(self, *words):
        pass
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
    daemon_threads = True
server = Server((address, 0), Files)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_port, flush=True)
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
# whoever asked for the loan may have lost its power and never say so
while time.monotonic() - last[0] < float(idle):
    time.sleep(1)
"""
# goes on from what an earlier try left; the lock is the one of `bring_files`
BORROW = """
import fcntl, os, sys, urllib.request
path, url, silence = sys.argv[1:]
token = sys.stdin.readline().strip()
os.makedirs(os.path.dirname(path), exist_ok=True)
lock = open(os.path.dirname(path) + "/.lock", "a")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    sys.exit(75)
with open(path + ".partial", "ab") as file:
    headers = {"Authorization": "Bearer " + token, "X-Start": str(file.tell())}
    request = urllib.request.Request(url, headers=headers)
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(request, timeout=float(silence)) as reply:
        left = int(reply.headers["Content-Length"])
        while left:
            block = reply.read(min(left, 1 << 20))
            if not block:
                sys.exit("the other host ended the copy")
            file.write(block)
            left -= len(block)
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Loan:
    """Files that a host lends: where they are asked for, and the token that opens it.

    `places` are the files in the order of their numbers (see `HostSight.at`).
    """

    lender: str
    url: str
    token: str
    places: tuple[str, ...]


@contextmanager
def lent(commands: SshCommands, address: str, paths: Mapping[str, str]) -> Iterator[Loan | None]:
    """Let the host lend files (place to path there) on its fabric address; None if it cannot."""
    token = secrets.token_urlsafe(32)
    words = ("python3", "-c", LEND, str(IDLE_S), address, *paths.values())
    with commands.spoken(words) as lender:
        try:
            lender.say(token)
            port = int(lender.hear())
        except (FleetError, ValueError):
            yield None
            return
        shown = f"[{address}]" if ":" in address else address
        url = f"http://{shown}:{port}"
        yield Loan(lender=commands.target.name, url=url, token=token, places=tuple(paths))


def borrow(commands: SshCommands, loan: Loan, place: str, path: str) -> bool:
    """Fetch a file as `path`.partial; False when it did not come whole."""
    url = f"{loan.url}/{loan.places.index(place)}"
    words = ("python3", "-c", BORROW, path, url, str(SILENCE_S))
    return commands.run(words, stdin=f"{loan.token}\n").ok

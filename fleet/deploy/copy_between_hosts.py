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
    from collections.abc import Iterator, Sequence

    from fleet.effects.ssh import SshCommands

# the token comes by stdin, whose end is the end of the loan
LEND = """
import hmac, http.server, os, shutil, socket, sys, threading
folder, address, *names = sys.argv[1:]
token = sys.stdin.readline().strip()
class Files(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        name = self.path.lstrip("/")
        right = hmac.compare_digest(self.headers.get("Authorization", ""), "Bearer " + token)
        if not right or name not in names:
            return self.send_error(404)
        with open(os.path.join(folder, name), "rb") as file:
            start = int(self.headers["X-Start"])
            self.send_response(200)
            self.send_header("Content-Length", str(os.fstat(file.fileno()).st_size - start))
            self.end_headers()
            file.seek(start)
            shutil.copyfileobj(file, self.wfile, 1 << 20)
    def log_message(self, *words):
        pass
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
    daemon_threads = True
server = Server((address, 0), Files)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_port, flush=True)
sys.stdin.read()
"""
# goes on from what an earlier try left; the lock is the one of `distribute_model`
BORROW = """
import fcntl, os, sys, urllib.request
folder, name, url = sys.argv[1:]
token = sys.stdin.readline().strip()
os.makedirs(folder, exist_ok=True)
lock = open(os.path.join(folder, ".lock"), "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    sys.exit(75)
with open(os.path.join(folder, name + ".partial"), "ab") as file:
    headers = {"Authorization": "Bearer " + token, "X-Start": str(file.tell())}
    request = urllib.request.Request(url + "/" + name, headers=headers)
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(request, timeout=60) as reply:
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
    """Files that a host lends: where they are asked for, and the token that opens it."""

    lender: str
    url: str
    token: str


@contextmanager
def lent(
    commands: SshCommands, address: str, folder: str, names: Sequence[str]
) -> Iterator[Loan | None]:
    """Let the host lend the files of a folder on its fabric address; None where it cannot."""
    token = secrets.token_urlsafe(32)
    words = ("python3", "-c", LEND, folder, address, *names)
    with commands.spoken(words) as lender:
        try:
            lender.say(token)
            port = int(lender.hear())
        except (FleetError, ValueError):
            yield None
            return
        shown = f"[{address}]" if ":" in address else address
        yield Loan(lender=commands.target.name, url=f"http://{shown}:{port}", token=token)


def borrow(commands: SshCommands, loan: Loan, folder: str, name: str) -> bool:
    """Fetch a file as `name.partial`; False when it did not come whole."""
    words = ("python3", "-c", BORROW, folder, name, loan.url)
    return commands.run(words, stdin=f"{loan.token}\n").ok

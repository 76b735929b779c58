"""Ask a server over HTTP; answers are values, silence is an error.

The standard library's client, not httpx: importing httpx takes a quarter of a `fleet status`,
and a connection for each request, on loopback or beside the server, costs a tenth of a ms.
"""

from __future__ import annotations

import http.client
import json
import ssl
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fleet.errors import OutsideError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DEFAULT_TIMEOUT_S = 30.0
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class NoAnswer(OutsideError):
    """Nothing listens there, or it did not answer in time."""

    kind = "no-answer"


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """An HTTP answer, whatever its status; the names of `headers` are in lower case."""

    url: str
    status: int
    text: str
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300  # noqa: PLR2004 - HTTP's own numbers

    def json(self) -> Any:  # noqa: ANN401 - JSON
        """Return the body as JSON. Raises `OutsideError` on another status or another body."""
        if not self.ok:
            raise OutsideError(f"HTTP {self.status}: {_reason(self.text)}", where=self.url)
        try:
            return json.loads(self.text)
        except ValueError:
            message = f"the answer is not JSON: {self.text[:200]!r}"
            raise OutsideError(message, where=self.url) from None


class Http:
    """A client without state; time-outs are in seconds and bound each silence."""

    def get(
        self, url: str, *, headers: Mapping[str, str] | None = None, timeout_s: float = 5.0
    ) -> Answer:
        """GET `url`. Raises `NoAnswer`."""
        with _asked("GET", url, headers=headers, timeout_s=timeout_s) as answer:
            return _whole(url, answer)

    def get_json(
        self, url: str, *, headers: Mapping[str, str] | None = None, timeout_s: float = 5.0
    ) -> Any:  # noqa: ANN401 - JSON
        """GET and return the JSON. Raises `OutsideError` for anything but 2xx."""
        return self.get(url, headers=headers, timeout_s=timeout_s).json()

    def post_json(
        self,
        url: str,
        body: object,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Any:  # noqa: ANN401 - JSON
        """POST and return the JSON. Raises `OutsideError` for anything but 2xx."""
        with _asked("POST", url, headers=headers, timeout_s=timeout_s, body=body) as answer:
            return _whole(url, answer).json()

    def stream_sse(
        self,
        url: str,
        body: object,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Iterator[Any]:
        """POST `body` and yield each server-sent event's JSON, until `[DONE]` or the end.

        `timeout_s` bounds the silence between events. Raises `OutsideError`.
        """
        with _asked("POST", url, headers=headers, timeout_s=timeout_s, body=body) as answer:
            if answer.status >= http.client.BAD_REQUEST:
                _whole(url, answer).json()
            yield from _events(_lines(answer))


def connect(url: str, *, timeout_s: float | None) -> http.client.HTTPConnection:
    """Return a connection to the host of `url`, opened with its first request.

    Certificates are checked except on loopback: one names the public host, never 127.0.0.1.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme != "https":
        return http.client.HTTPConnection(host, parts.port, timeout=timeout_s)
    trust = ssl.create_default_context()
    if host in LOOPBACK:
        trust.check_hostname = False
        trust.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(host, parts.port, timeout=timeout_s, context=trust)


@contextmanager
def _asked(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None,
    timeout_s: float,
    body: object = None,
) -> Iterator[http.client.HTTPResponse]:
    """Send one request and give the answer while its connection is open."""
    words = {"Connection": "close", **(headers or {})}
    content = None if body is None else json.dumps(body).encode()
    if content is not None:
        words["Content-Type"] = "application/json"
    parts = urlsplit(url)
    path = parts.path or "/"
    connection = connect(url, timeout_s=timeout_s)
    try:
        connection.request(method, f"{path}?{parts.query}" if parts.query else path, content, words)
        yield connection.getresponse()
    except TimeoutError:
        raise NoAnswer("no answer in time", where=url) from None
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswer(str(error) or type(error).__name__, where=url) from None
    finally:
        connection.close()


def _lines(answer: http.client.HTTPResponse) -> Iterator[str]:
    """Yield the lines as they come. Raises `IncompleteRead` when the connection was cut."""
    yield from (line.decode(errors="replace") for line in answer)
    # reading by lines takes an early end for the end
    if answer.length or (answer.chunked and answer.chunk_left is not None):
        raise http.client.IncompleteRead(b"", answer.length)


def _whole(url: str, answer: http.client.HTTPResponse) -> Answer:
    text = answer.read().decode(errors="replace")
    headers = {name.lower(): value for name, value in answer.getheaders()}
    return Answer(url=url, status=answer.status, text=text, headers=headers)


def _events(lines: Iterator[str]) -> Iterator[Any]:
    for line in lines:
        kind, _, content = line.partition(":")
        if kind not in {"data", "error"}:
            continue
        if content.strip() == "[DONE]":
            return
        yield json.loads(content)


def _reason(text: str) -> str:
    """Return the message of an error envelope, or the start of whatever came."""
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return text[:200]

"""Ask a server over HTTP; answers are values, silence is an error."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx

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
    """An HTTP answer, whatever its status."""

    url: str
    status: int
    text: str

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
    """A client that keeps its connections; time-outs are in seconds."""

    def __init__(self) -> None:
        """Open nothing yet."""
        self._clients: dict[bool, httpx.Client] = {}

    def get(
        self, url: str, *, headers: Mapping[str, str] | None = None, timeout_s: float = 5.0
    ) -> Answer:
        """GET `url`. Raises `NoAnswer`."""
        return self._ask("GET", url, headers=headers, timeout_s=timeout_s)

    def post(
        self,
        url: str,
        body: object,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Answer:
        """POST `body` as JSON. Raises `NoAnswer`."""
        return self._ask("POST", url, headers=headers, timeout_s=timeout_s, body=body)

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
        return self.post(url, body, headers=headers, timeout_s=timeout_s).json()

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
        with (
            _no_answer(url),
            self._client(url).stream(
                "POST", url, json=body, headers=dict(headers or {}), timeout=timeout_s
            ) as answer,
        ):
            if answer.is_error:
                answer.read()
                Answer(url=url, status=answer.status_code, text=answer.text).json()
            yield from _events(answer.iter_lines())

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def _ask(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None,
        timeout_s: float,
        body: object = None,
    ) -> Answer:
        with _no_answer(url):
            answer = self._client(url).request(
                method, url, json=body, headers=dict(headers or {}), timeout=timeout_s
            )
        return Answer(url=url, status=answer.status_code, text=answer.text)

    def _client(self, url: str) -> httpx.Client:
        """Return the client for `url`: certificates are checked except on loopback.

        A certificate names the public host, never 127.0.0.1; proxies are for elsewhere.
        """
        parts = urlsplit(url)
        local = parts.scheme == "http" or parts.hostname in LOOPBACK
        if local not in self._clients:
            self._clients[local] = httpx.Client(verify=not local, trust_env=not local)
        return self._clients[local]


@contextmanager
def _no_answer(url: str) -> Iterator[None]:
    try:
        yield
    except httpx.TimeoutException:
        raise NoAnswer("no answer in time", where=url) from None
    except httpx.HTTPError as error:
        raise NoAnswer(str(error) or type(error).__name__, where=url) from None


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

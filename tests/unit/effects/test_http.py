from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from fleet.effects.http import Http, NoAnswer
from fleet.effects.machine import free_port
from fleet.errors import OutsideError

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAD = b"HTTP/1.1 200 OK\r\n"
PATIENCE_S = 60.0
EVENTS = b'data: {"a": 1}\n\n'


@contextmanager
def answering(*pieces: bytes | threading.Event, pause_s: float = 0.0) -> Iterator[str]:
    """Answer one request with `pieces`, then close the connection; an event is waited for."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            asked, _ = listening.accept()
            with asked:
                asked.settimeout(PATIENCE_S)
                asked.recv(65536)
                for piece in pieces:
                    if isinstance(piece, threading.Event):
                        piece.wait(PATIENCE_S)
                        continue
                    asked.sendall(piece)
                    time.sleep(pause_s)
                # closing with a part of the request unread would reset the connection
                with suppress(OSError):
                    asked.shutdown(socket.SHUT_WR)
                    while asked.recv(65536):
                        pass

        serving = threading.Thread(target=serve)
        serving.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        serving.join()


def test_nobody_there_is_no_answer() -> None:
    with pytest.raises(NoAnswer, match="refused"):
        Http().get(f"http://127.0.0.1:{free_port()}/health")


def test_silence_is_no_answer_in_time() -> None:
    with answering(HEAD, pause_s=0.4) as url, pytest.raises(NoAnswer, match="in time"):
        Http().get(url, timeout_s=0.1)


@pytest.mark.parametrize(
    "pieces",
    [
        (b"",),
        (b"no HTTP at all\r\n\r\n",),
        (HEAD + b"Content-Length: 99\r\n\r\n" + EVENTS,),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n10\r\n" + EVENTS + b"\r\n",),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n40\r\n" + EVENTS,),
    ],
)
def test_an_answer_that_is_cut_is_no_answer(pieces: tuple[bytes, ...]) -> None:
    with answering(*pieces) as url, pytest.raises(NoAnswer):
        list(Http().stream_sse(url, {}))
    with answering(*pieces) as url, pytest.raises(NoAnswer):
        Http().get(url)


def test_events_arrive_when_they_are_sent() -> None:
    chunk = b"%x\r\n%b\r\n" % (len(EVENTS), EVENTS)
    head, more = HEAD + b"Transfer-Encoding: chunked\r\n\r\n", threading.Event()
    began = time.monotonic()
    with answering(head, chunk, more, chunk, b"0\r\n\r\n") as url:
        events = Http().stream_sse(url, {})

        assert next(events) == {"a": 1}
        assert time.monotonic() - began < PATIENCE_S / 2  # the second one is not sent yet
        more.set()
        assert list(events) == [{"a": 1}]


def test_the_reason_of_a_refusal_is_told() -> None:
    body = b'{"error": {"message": "too long"}}'
    head = b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n" % len(body)
    with answering(head + body) as url, pytest.raises(OutsideError, match="400: too long"):
        list(Http().stream_sse(url, {}))

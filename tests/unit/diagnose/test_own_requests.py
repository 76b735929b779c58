"""fleet's own requests in a deployment's log are told apart from those of its clients."""

from __future__ import annotations

import pytest

from fleet.diagnose.own_requests import own_requests

pytestmark = pytest.mark.pure


def request(task: int, *, prompt: int, generated: int, past: str = "") -> list[str]:
    """Return a request's lines as llama.cpp b11549 prints them, `past` among them."""
    head = f"slot   operator(): id  0 | task {task} | "
    lines = [
        "slot get_availabl: id  0 | task -1 | selected slot by LCP similarity, f_keep = 0.015",
        "srv          load:  - looking for better prompt, base f_keep = 0.015, f_sim = 0.241",
        f"slot launch_slot_: id  0 | task {task} | processing task, is_child = 0",
        *([head + past] if past else []),
        f"slot print_timing: id  0 | task {task} | prompt eval time = 9.5 ms / {prompt} tokens",
        f"slot print_timing: id  0 | task {task} |        eval time = 9.5 ms / {generated} tokens",
        f"slot      release: id  0 | task {task} | stop processing: n_tokens = 9, truncated = 0",
    ]
    return ["0.01.2 I " + line for line in lines]


FIRST = request(0, prompt=67, generated=8)
PRIMING = request(11, prompt=447, generated=1, past="erased invalidated context checkpoint (")
CHAT = request(24, prompt=29, generated=30, past="forcing full prompt re-processing due to lack")
LATER = request(60, prompt=40, generated=30, past="forcing full prompt re-processing due to lack")


def left_of(lines: list[str], *, primed: bool) -> list[str]:
    """Return the lines that stay."""
    own = own_requests(lines, first_tokens=8, primed=primed)
    return [line for number, line in enumerate(lines, start=1) if number not in own.lines]


def test_first_request_priming_and_what_they_left_in_the_slot_are_left_out() -> None:
    """A chat after them stays without its lines about the past; the chat after it is whole."""
    left = left_of([*FIRST, *PRIMING, *CHAT, *LATER], primed=True)
    assert left == [CHAT[2], *CHAT[4:], *LATER]


def test_answers_of_one_token_are_traffic_where_nothing_is_primed() -> None:
    """Only fleet's first request is left out, and the same one again (`fleet check`)."""
    again = request(70, prompt=67, generated=8)
    other = request(80, prompt=68, generated=8)
    left = left_of([*FIRST, *LATER, *PRIMING, *again, *LATER, *LATER, *other], primed=False)
    assert left == [LATER[2], *LATER[4:], *PRIMING, LATER[2], *LATER[4:], *LATER, *other]


def test_a_log_without_its_start_keeps_short_answers() -> None:
    """What the first request was is not known there."""
    assert left_of([*LATER, *request(61, prompt=67, generated=8)], primed=False)[-1].endswith("= 0")
    assert own_requests(LATER, first_tokens=8, primed=True).count == 0

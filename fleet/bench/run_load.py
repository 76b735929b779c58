"""Put a load on one server: a Poisson stream of requests, or a fixed number of users."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from fleet.bench.ask import ask, chat_body
from fleet.bench.load_plan import plan_load
from fleet.bench.load_summary import Answered, gaps
from fleet.errors import OutsideError, UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleet.bench.load_plan import Load, Planned
    from fleet.effects.clock import Clock
    from fleet.observe.server_client import ServerClient
    from fleet.profiles.kinds import WorkloadProfile

SAMPLE = "harbour lantern quiet seven market copper window under slowly bread northern river"
DEFAULT_WORDS_PER_TOKEN = 0.8
TEMPLATE_TOKENS = 32  # what a chat template adds, at most


def run_load(
    client: ServerClient,
    workload: WorkloadProfile,
    load: Load,
    *,
    clock: Clock,
    on_done: Callable[[Answered], None] = lambda asked: None,  # noqa: ARG005 - nobody listens
) -> tuple[Answered, ...]:
    """Send the requests of `load` and return what each cost. A failed request is a result.

    Raises `UserError` when a request cannot fit the context of a slot.
    """
    _refuse_beyond_context(client, workload)
    plan = plan_load(workload, load, words_per_token=_words_per_token(client))
    begin = clock.monotonic()

    def send(planned: Planned) -> Answered:
        now = clock.monotonic() - begin
        if planned.at_s > now:
            clock.sleep(planned.at_s - now)
        asked = _send(client, planned, workload.generated_tokens, clock, begin)
        on_done(asked)
        return asked

    at_once = load.requests if load.rate else min(load.users or workload.users, load.requests)
    with ThreadPoolExecutor(max_workers=min(at_once, 256)) as pool:
        return tuple(pool.map(send, plan))


def _send(
    client: ServerClient, planned: Planned, generate: int, clock: Clock, begin: float
) -> Answered:
    messages = [
        {"role": "system", "content": planned.shared},
        {"role": "user", "content": planned.own},
    ]
    body = chat_body(
        [message for message in messages if message["content"]], generate=generate, fixed=True
    )
    sent = clock.monotonic() - begin
    try:
        reply = ask(client, body, clock=clock)
    except OutsideError as error:
        done = clock.monotonic() - begin
        return Answered(
            number=planned.number,
            due_s=planned.at_s,
            sent_s=sent,
            done_s=done,
            error=str(error),
        )
    return Answered(
        number=planned.number,
        due_s=planned.at_s,
        sent_s=sent,
        done_s=clock.monotonic() - begin,
        ttft_ms=reply.ttft_ms,
        prefill_ms=reply.timings.prompt_ms if reply.timed_by == "server" else reply.ttft_ms,
        decode_ms=reply.timings.predicted_ms,
        prompt_tokens=reply.timings.prompt_n + reply.timings.cache_n,
        cached_tokens=reply.timings.cache_n,
        generated_tokens=reply.timings.predicted_n,
        gaps_ms=gaps(reply.arrivals_ms),
    )


def _words_per_token(client: ServerClient) -> float:
    try:
        tokens = client.tokenize(SAMPLE, special=False)
    except (OutsideError, KeyError):  # vLLM answers in another shape
        return DEFAULT_WORDS_PER_TOKEN
    return len(SAMPLE.split()) / len(tokens) if tokens else DEFAULT_WORDS_PER_TOKEN


def _refuse_beyond_context(client: ServerClient, workload: WorkloadProfile) -> None:
    try:
        context = client.context()
    except OutsideError:
        return
    need = workload.prompt_tokens + workload.generated_tokens + TEMPLATE_TOKENS
    if context is not None and need > context:
        raise UserError(
            f"a request of workload {workload.name} needs {need} tokens, a slot has {context}",
            where=f"{workload.place}",
            fix="`--set ctx_size=...`, fewer slots, or another `--workload`",
        )

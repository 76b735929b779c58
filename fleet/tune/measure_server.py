"""Measure one candidate on a real server of its own."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, Self

from fleet.deploy.await_ready import check_alive
from fleet.deploy.trial_server import trial_server
from fleet.errors import (
    DoesNotFit,
    EngineFailed,
    FleetError,
    HostUnreachable,
    OutsideError,
    UserError,
)
from fleet.observe.server_client import timings
from fleet.tune.captured_requests import GENERATED, CapturedWorkload
from fleet.tune.request_plan import (
    RequestShape,
    Speed,
    first_token,
    plan_requests,
    shape_for,
    warm_up,
)
from fleet.tune.run_figures import Answered, figures_of
from fleet.tune.run_study import Outcome
from fleet.tune.shared_study import OutOfTime
from fleet.tune.speculation_kinds import spelled_out

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from fleet.deploy.rim import Rim
    from fleet.deploy.trial_server import TrialServer
    from fleet.observe.server_client import ServerClient
    from fleet.profiles.kinds import Deployment
    from fleet.tune.candidate_space import Metric
    from fleet.tune.request_plan import PlannedRequest
    from fleet.tune.search_space import Settings, Value

SLOWER_BY = 8.0  # a run that takes so many times the last one's is given up
FEW, HALF = 2, 0.5  # so many requests all slower than half: more would not make it a winner
LIKELY = 10  # the first token of the default must be among so many of a candidate
DEFAULT_RUN_S = 4.0
DYING_S = 0.2  # a killed process closes its connections before it is seen to be gone
LATEST = 0.03  # of the budget beyond its end, when a run is given up: ending it takes time too

_VALUES: Mapping[Metric, str] = {
    "tg": "tg", "pp": "pp", "ttft": "first_per_s", "e2e": "requests_per_s",
    "throughput": "throughput", "pareto": "balance",
}  # fmt: skip
# what must not get worse for the sake of the metric
GUARDS: Mapping[Metric, tuple[str, ...]] = {
    "tg": ("pp",), "pp": ("tg",), "ttft": ("tg",), "e2e": (), "throughput": (), "pareto": (),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Yardstick:
    """What every run of a study is measured with, found on the deployment as it is.

    `first` is the token that it says first, None when the engine does not tell; `usual_ms`
    the milliseconds of one request.
    """

    shape: RequestShape
    first: int | None = None
    usual_ms: float = 0.0


@dataclass(kw_only=True, slots=True)
class SharedYardstick:
    """The yardstick of all hosts of a study; `on_found` is told it once."""

    found: Yardstick | None = None
    on_found: Callable[[Yardstick], None] = lambda _: None


class StartTrial(Protocol):
    """Starts a trial server somewhere, as `trial_server` does on this machine."""

    def __call__(
        self,
        deployment: Deployment,
        *,
        overrides: Mapping[str, Value],
        rim: Rim,
        bound_s: float | None = None,
    ) -> AbstractContextManager[TrialServer]:
        """Return a context in which the server is ready."""
        ...


class Limit(Protocol):
    """Something that a candidate must keep besides being fast."""

    def begin(self) -> None:
        """Look before a run."""
        ...

    def check(self, server: TrialServer, settings: Settings) -> Mapping[str, float]:
        """Return figures after a run. Raises `OutsideError` when the limit is not kept."""
        ...


@dataclass(kw_only=True, slots=True)
class ServerMeasure:
    """`Measure` on trial servers of `deployment`; a context that ends its server.

    The server stays up between runs of the same candidate and is replaced by another's. The
    first request after a load is sent but not counted; every server is sent the same
    requests in the same order, and none twice.
    """

    deployment: Deployment
    metric: Metric
    rim: Rim
    text: str
    context: int
    sticks: SharedYardstick = field(default_factory=SharedYardstick)
    captured: CapturedWorkload | None = None
    limits: Sequence[Limit] = ()
    run_s: float = DEFAULT_RUN_S
    at_depth: bool = False
    budget_s: float = 0.0
    until_s: float | None = None  # on the clock: a run that takes longer is given up
    patience_s: float = 60.0  # for a run, before one is known; for a load, before one is known
    start: StartTrial = trial_server
    load_s: float = 0.0  # of the newest server
    _stack: ExitStack = field(default_factory=ExitStack)
    _running: tuple[Settings, TrialServer] | None = None
    _tokens: tuple[int, ...] = ()
    _turn: int = 0
    _bound_s: float = 0.0
    _load_bound_s: float | None = None

    def __enter__(self) -> Self:
        """Enter with no server."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the server that runs."""
        self.close()

    def __call__(self, settings: Settings) -> Outcome:
        """Run `settings`; what fails is an outcome with its cause."""
        began = self.rim.clock.monotonic()
        try:
            figures = self._figures(self._server(settings), settings)
        except OutOfTime:
            self.close()
            raise
        except HostUnreachable:
            self._running = None  # its server is out of reach too
            raise
        except (UserError, DoesNotFit, OutsideError) as error:
            cause = _cause(self._death() or error)
            self.close()
            if self.until_s is not None and self.rim.clock.monotonic() > self._last_s():
                raise OutOfTime from None
            return Outcome(value=None, failed=cause, seconds=self._since(began))
        seconds = self._since(began)
        guards = {name: figures[name] for name in GUARDS[self.metric]}
        return Outcome(
            value=figures[_VALUES[self.metric]], seconds=seconds, guards=guards, figures=figures
        )

    def _server(self, settings: Settings) -> TrialServer:
        if self._running is not None and self._running[0] == settings and not self._used_up():
            return self._running[1]
        self.close()
        server: TrialServer = self._stack.enter_context(
            self.start(
                self.deployment, overrides=_overrides(settings), rim=self.rim,
                bound_s=self._load_bound(),
            )
        )  # fmt: skip
        self.load_s = server.load_s
        self._load_bound_s = max(self.patience_s, SLOWER_BY * server.load_s)
        self._running = (dict(settings), server)
        self._turn = 0
        self._warm_up(server)
        return server

    def _load_bound(self) -> float | None:
        """Return how long a load may take: None when not even the budget tells."""
        known = self._load_bound_s
        left = self._left_s()
        return min(known or left, left) if math.isfinite(left) else known

    def _used_up(self) -> bool:
        """Whether the next run would repeat a captured request, which a server remembers."""
        if self.captured is None or self.sticks.found is None:
            return False
        return self._turn >= self.captured.runs(self.sticks.found.shape.count)

    def _death(self) -> EngineFailed | None:
        """Return what the running server died of, None when it lives or never ran."""
        if self._running is None:
            return None
        server = self._running[1]
        self.rim.clock.sleep(DYING_S)
        try:
            check_alive(server.launch, server.server, server.host)
        except EngineFailed as found:
            return found
        return None

    def close(self) -> None:
        """End the server that runs."""
        self._running = None
        stack, self._stack = self._stack, ExitStack()
        stack.close()

    def _warm_up(self, server: TrialServer) -> None:
        """Send what does not count; on the first server find the yardstick by it."""
        if not self._tokens:
            self._tokens = tuple(server.client.tokenize(self.text, special=False))
        patient = self._patient(server)
        first = _likely_tokens(patient, self._tokens)
        known = self.sticks.found
        context = server.ready.context or self.context
        workload = self.deployment.workload
        shape = known.shape if known else shape_for(self.metric, workload, context)
        with ThreadPoolExecutor(shape.users) as pool:
            asked = partial(self._ask, patient)
            (read, *_) = [a.timings for a in pool.map(asked, warm_up(self._tokens, shape))]
        if known is None:
            speed = Speed(
                pp=1000 * read.prompt_n / max(read.prompt_ms, 1e-3),
                tg=1000 * read.predicted_n / max(read.predicted_ms, 1e-3),
            )
            shape = shape_for(
                self.metric, workload, context, speed=speed, run_s=self.run_s,
                at_depth=self.at_depth,
            )  # fmt: skip
            self.sticks.found = Yardstick(shape=shape, first=first[0] if first else None)
        elif known.first is not None and first and known.first not in first:
            message = f"wrong output: token {known.first} is not among the {LIKELY} likeliest"
            raise OutsideError(message, where=server.url)

    def _figures(self, server: TrialServer, settings: Settings) -> Mapping[str, float]:
        assert self.sticks.found is not None  # noqa: S101 - the warm-up found it
        shape = self.sticks.found.shape
        planned = self._planned(shape)
        self._turn += 1
        for limit in self.limits:
            limit.begin()
        began = self.rim.clock.monotonic()
        answers = self._ask_all(server, planned, shape.users)
        wall_s = self._since(began)
        check_alive(server.launch, server.server, server.host)
        self._bound_s = max(self.patience_s, SLOWER_BY * wall_s)
        if not self.sticks.found.usual_ms:
            usual = sum(each.wall_ms for each in answers) / len(answers)
            self.sticks.found = replace(self.sticks.found, usual_ms=usual)
            self.sticks.on_found(self.sticks.found)
        mixed = self.captured is not None
        figures = figures_of(answers, wall_s, server.memory_bytes(), mixed=mixed)
        for limit in self.limits:
            figures |= limit.check(server, settings)
        return figures

    def _planned(self, shape: RequestShape) -> Sequence[PlannedRequest]:
        if self.captured is None:
            return plan_requests(self._tokens, shape, turn=self._turn)
        generated = min(shape.generated, GENERATED)
        return self.captured.plan(count=shape.count, generated=generated, turn=self._turn)

    def _ask_all(
        self, server: TrialServer, planned: Sequence[PlannedRequest], users: int
    ) -> list[Answered]:
        client = self._patient(server)
        if users > 1:
            with ThreadPoolExecutor(users) as pool:
                return list(pool.map(partial(self._ask, client), planned))
        usual_ms = self.sticks.found.usual_ms if self.sticks.found else 0.0
        answers: list[Answered] = []
        for request in planned:
            answers.append(self._ask(client, request))
            least_ms = min(each.wall_ms for each in answers)
            if len(answers) >= FEW and HALF * least_ms > usual_ms > 0:
                break
        return answers

    def _ask(self, client: ServerClient, request: PlannedRequest) -> Answered:
        began = self.rim.clock.monotonic()
        if self.until_s is not None and began > self._last_s():
            raise OutOfTime
        send = client.chat if request.path == "chat" else client.completion
        found = timings(send(request.body))
        if found is None or found.predicted_n < 1 or found.predicted_ms <= 0:
            raise OutsideError("wrong output: the answer carries no timings", where=client.url)
        return Answered(timings=found, wall_ms=1000 * self._since(began))

    def _patient(self, server: TrialServer) -> ServerClient:
        bound_s = max(self.patience_s, self._bound_s)
        return replace(server.client, timeout_s=min(bound_s, self._left_s()))

    def _left_s(self) -> float:
        """Seconds until a run is given up because the budget is spent."""
        if self.until_s is None:
            return math.inf
        return max(self._last_s() - self.rim.clock.monotonic(), 0.5)

    def _last_s(self) -> float:
        return (self.until_s or 0.0) + LATEST * self.budget_s

    def _since(self, began: float) -> float:
        return self.rim.clock.monotonic() - began


def shown(metric: Metric, value: float) -> float:
    """Return the score as people read it: tokens a second, or milliseconds for waiting."""
    return 1000 / value if metric in {"ttft", "e2e"} else value


def _likely_tokens(client: ServerClient, text: Sequence[int]) -> list[int]:
    """Return the likeliest first tokens after the text's beginning; empty when not told."""
    answer = client.completion(first_token(text, likely=LIKELY))
    try:
        (first, *_) = answer["completion_probabilities"]
        return [int(each["id"]) for each in first["top_logprobs"]]
    except (KeyError, ValueError, TypeError):
        return []


def _overrides(settings: Settings) -> dict[str, Value]:
    # `none` is how a profile says that nothing speculates
    return {name: value for name, value in spelled_out(settings).items() if value is not None}


def _cause(error: FleetError) -> str:
    return f"{error.kind}: {error.message}"

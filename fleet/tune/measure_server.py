"""Measure one candidate on a real server of its own."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Self

from fleet.deploy.trial_server import trial_server
from fleet.errors import DoesNotFit, FleetError, OutsideError, UserError
from fleet.observe.server_client import timings
from fleet.tune.request_plan import RequestShape, plan_requests, shape_for
from fleet.tune.run_study import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from fleet.deploy.bring_up import Progress
    from fleet.deploy.rim import Rim
    from fleet.deploy.trial_server import TrialServer
    from fleet.observe.observation import Timings
    from fleet.observe.server_client import ServerClient
    from fleet.profiles.kinds import Deployment
    from fleet.tune.candidate_space import Metric
    from fleet.tune.request_plan import PlannedRequest
    from fleet.tune.search_space import Settings, Value

REQUESTS = 3  # measured in each run, after one that is not
LEAST_BOUND_S = 60.0
SLOWER_BY = 8.0  # a request that takes so many times the last run's is given up

_VALUES: Mapping[Metric, str] = {
    "tg": "tg", "pp": "pp", "ttft": "first_per_s", "e2e": "requests_per_s",
    "throughput": "throughput", "pareto": "balance",
}  # fmt: skip
# what must not get worse for the sake of the metric
GUARDS: Mapping[Metric, tuple[str, ...]] = {
    "tg": ("pp",), "pp": ("tg",), "ttft": ("tg",), "e2e": (), "throughput": (), "pareto": (),
}  # fmt: skip


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
    tell: Progress
    context: int
    _stack: ExitStack = field(default_factory=ExitStack)
    _running: tuple[Settings, TrialServer] | None = None
    _tokens: tuple[int, ...] = ()
    _turn: int = 0
    _bound_s: float = 600.0

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
        self._close()

    def __call__(self, settings: Settings) -> Outcome:
        """Run `settings`; what fails is an outcome with its cause."""
        began = self.rim.clock.monotonic()
        try:
            server, fresh = self._server(settings)
            figures = self._figures(server, warm_up=fresh)
        except (UserError, DoesNotFit, OutsideError) as error:
            self._close()
            return Outcome(value=None, failed=_cause(error), seconds=self._since(began))
        seconds = self._since(began)
        guards = {name: figures[name] for name in GUARDS[self.metric]}
        return Outcome(
            value=figures[_VALUES[self.metric]], seconds=seconds, guards=guards, figures=figures
        )

    def _server(self, settings: Settings) -> tuple[TrialServer, bool]:
        if self._running is not None and self._running[0] == settings:
            return self._running[1], False
        self._close()
        server = self._stack.enter_context(
            trial_server(
                self.deployment, overrides=_overrides(settings), rim=self.rim, progress=self.tell
            )
        )
        self._running = (dict(settings), server)
        return server, True

    def _close(self) -> None:
        self._running = None
        stack, self._stack = self._stack, ExitStack()
        stack.close()

    def _figures(self, server: TrialServer, *, warm_up: bool) -> Mapping[str, float]:
        shape = shape_for(
            self.metric, self.deployment.workload, server.ready.context or self.context
        )
        if not self._tokens:
            self._tokens = tuple(server.client.tokenize(self.text, special=False))
        if warm_up:
            self._turn = 0
            self._ask(server, plan_requests(self._tokens, shape, count=1, turn=100_003)[0])
        planned = plan_requests(
            self._tokens, shape, count=max(REQUESTS, 2 * shape.users), turn=self._turn
        )
        self._turn += 1
        began = self.rim.clock.monotonic()
        answers = self._ask_all(server, planned, shape)
        wall_s = self.rim.clock.monotonic() - began
        if not server.alive():
            raise OutsideError("the engine died while it was measured")
        self._bound_s = max(LEAST_BOUND_S, SLOWER_BY * wall_s)
        return _summed(answers, wall_s, server.memory_bytes())

    def _ask_all(
        self, server: TrialServer, planned: Sequence[PlannedRequest], shape: RequestShape
    ) -> list[Timings]:
        if shape.users == 1:
            return [self._ask(server, request) for request in planned]
        with ThreadPoolExecutor(shape.users) as users:
            return list(users.map(partial(self._ask, server), planned))

    def _ask(self, server: TrialServer, request: PlannedRequest) -> Timings:
        client = _patient(server, self._bound_s)
        answer = client.completion(request.body())
        found = timings(answer)
        if found is None or found.predicted_n < min(request.generated, 1):
            raise OutsideError("the engine's answer carries no timings", where=server.url)
        return found

    def _since(self, began: float) -> float:
        return self.rim.clock.monotonic() - began


def shown(metric: Metric, value: float) -> float:
    """Return the score as people read it: tokens a second, or milliseconds for waiting."""
    return 1000 / value if metric in {"ttft", "e2e"} else value


def _summed(answers: Sequence[Timings], wall_s: float, memory: int) -> Mapping[str, float]:
    """Return the run's figures: medians over its requests, totals for throughput."""
    pp = median(_rate(one.prompt_n, one.prompt_ms) for one in answers)
    tg = median(_rate(one.predicted_n, one.predicted_ms) for one in answers)
    first_ms = median(one.prompt_ms + one.predicted_ms / max(one.predicted_n, 1) for one in answers)
    whole_ms = median(one.prompt_ms + one.predicted_ms for one in answers)
    drafted = sum(one.draft_n for one in answers)
    figures = {
        "pp": pp,
        "tg": tg,
        "first_per_s": 1000 / first_ms,
        "requests_per_s": 1000 / whole_ms,
        "throughput": sum(one.predicted_n for one in answers) / wall_s,
        "balance": math.sqrt(pp * tg),
        "cached": float(median(one.cache_n for one in answers)),
        "memory_bytes": float(memory),
    }
    if drafted:
        figures["accepted"] = sum(one.draft_n_accepted for one in answers) / drafted
    return figures


def _rate(tokens: int, milliseconds: float) -> float:
    return 1000 * tokens / max(milliseconds, 1e-3)


def _overrides(settings: Settings) -> dict[str, Value]:
    # `none` is how a profile says that nothing speculates
    return {name: value for name, value in settings.items() if value is not None}


def _patient(server: TrialServer, bound_s: float) -> ServerClient:
    return replace(server.client, timeout_s=bound_s)


def _cause(error: FleetError) -> str:
    return f"{error.kind}: {error.message}"

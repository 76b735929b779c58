"""What llama-bench says of single settings: a hint where to look first, never a proof.

A server loads the model anew for each candidate; llama-bench measures all values of a setting
after one load. Its ratios to the default's value make the search try what looks good earlier
and what looks bad later, until a real run has shown the value; nothing is accepted by them.

It is used only where that pays. In replays of 16 trials the hints lowered the regret from 1.20
to 0.97% where a load takes as long as ten runs, changed nothing at three (1.15 and 1.26%), and
cost more than they brought at one (1.13 and 1.45%). So: a load takes at least `DEAR` runs, all
settings take at most a third of what is left to spend, and the workload is one that
llama-bench can stand for, prompts read and tokens generated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from os import getpid
from random import Random
from typing import TYPE_CHECKING

from fleet.bench.parse_llama_bench import parse_llama_bench
from fleet.bench.raw_suite import NOT_THERE, WORDS, programs_in
from fleet.errors import OutsideError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fleet.bench.parse_llama_bench import RawRow
    from fleet.compiler.launch_config import LaunchConfig
    from fleet.effects.clock import Clock
    from fleet.effects.commands import Commands
    from fleet.tune.measure_server import ServerMeasure
    from fleet.tune.request_plan import RequestShape
    from fleet.tune.run_study import Study
    from fleet.tune.search_space import Param, SearchSpace, Settings, Value
    from fleet.tune.trial_log import TrialLog

Hint = tuple[str, "Value", float]  # a setting, its value, the log ratio to the default's value

METRICS = ("tg", "pp")
DEAR = 5.0
SHARE = 1 / 3
REPETITIONS = 2
TIMES = 8.0  # as long as expected: then it is given up
# its threads are those of reading where it reads, and of generating where it generates
_WORDS = {**WORDS, "threads_batch": WORDS["threads"], "flash_attention": "-fa"}
# what can be varied without another load, and the name under which llama-bench tells its value
_TOLD_AS: Mapping[str, str] = {
    "threads": "n_threads", "threads_batch": "n_threads", "batch_size": "n_batch",
    "ubatch_size": "n_ubatch", "flash_attention": "flash_attn", "cache_type_k": "type_k",
    "cache_type_v": "type_v",
}  # fmt: skip
_OTHER = {"tg": "threads_batch", "pp": "threads"}
_ITS_OWN = (None, "auto", "all")  # what llama-bench chooses as the server does
_TOLD = {"on": "1", "auto": "1", "off": "0", "True": "1", "False": "0"}


def screened_params(space: SearchSpace, metric: str) -> tuple[Param, ...]:
    """Return the parameters that llama-bench can vary without another load."""
    return tuple(p for p in space.params if p.name in _TOLD_AS and p.name != _OTHER.get(metric))


def pays(
    params: Sequence[Param], *, load_s: float, run_s: float, left_s: float, dear: float = DEAR
) -> bool:
    """Whether the hints are worth their time: seconds of a load, a run, and left to spend."""
    dear_load = load_s > 0 and load_s >= dear * run_s
    return bool(params) and dear_load and _seconds(params, load_s, run_s) <= SHARE * left_s


def _seconds(params: Sequence[Param], load_s: float, run_s: float) -> float:
    """Return how long llama-bench is expected to take: one load a parameter, a run a value."""
    return sum(load_s + len(param.values) * run_s for param in params)


@dataclass(kw_only=True, slots=True)
class Screening:
    """Asks llama-bench when the default has shown what a load and a run take; once a study.

    The hints go into the log, from which every controller of the study takes them. `dear` is
    how many runs a load must take.
    """

    study: Study
    metric: str
    launch: LaunchConfig
    build: str
    seed: int
    log: TrialLog
    measure: ServerMeasure
    commands: Commands
    clock: Clock
    say: Callable[[str], None]
    dear: float = DEAR
    done: bool = False

    def __call__(self) -> None:
        """Ask now if it is time to, and if that pays."""
        study, stick = self.study, self.measure.sticks.found
        if self.done or len(study.trials) < study.search.defaults or stick is None:
            return
        self.done = True
        space, load_s = study.search.space, self.measure.load_s
        params, run_s = screened_params(space, self.metric), study.trials[-1].outcome.seconds
        runs = (study.most_trials or 0) - len(study.trials)
        left_s = runs * (load_s + run_s) if study.counts_runs else study.left_s
        if not pays(params, load_s=load_s, run_s=run_s, left_s=left_s, dear=self.dear):
            return
        self.say(f"a load takes {load_s:.1f} s, a run {run_s:.1f} s: llama-bench looks first")
        self.measure.close()  # two copies may not fit
        began = self.clock.monotonic()
        bound_s = min(TIMES * _seconds(params, load_s, run_s) / len(params), SHARE * left_s)
        found = [hint for param in params for hint in self._ask(param, stick.shape, bound_s)]
        self.log.screened(found, seconds=self.clock.monotonic() - began)

    def _ask(self, param: Param, shape: RequestShape, bound_s: float) -> list[Hint]:
        """Return what llama-bench of the launch's image says of one parameter.

        Nothing where the default cannot be measured, nor of an image without llama-bench or
        with one of another build. A value that crashes ends it: those after it have no hint.
        """
        space = self.study.search.space
        default = space.settings(space.default)
        values = [value for value in param.values if value is not None]
        Random(self.seed).shuffle(values)  # noqa: S311 - an order, not a secret
        values.sort(key=lambda value: value != default[param.name])
        now = {**dict(self.launch.settings), **default}
        words = bench_words(self.metric, now, shape, {param.name: values})
        rows = _rows(self.launch, words, self.commands, bound_s, self.build)
        return hints(param, default[param.name], rows)


def hints(param: Param, default: Value, rows: Sequence[RawRow]) -> list[Hint]:
    """Return the log ratios of the values that were measured, in their order."""
    told = _TOLD_AS[param.name]
    speeds = {_plain(row.settings.get(told)): row.mean for row in rows if row.mean > 0}
    anchor = speeds.get(_plain(default))
    if anchor is None:
        return []
    return [
        (param.name, value, math.log(speeds[_plain(value)] / anchor))
        for value in param.values
        if value != default and _plain(value) in speeds
    ]


def hinted(hints: Sequence[Hint]) -> str | None:
    """Say what llama-bench found; None when it was not asked."""
    told = (f"{name}={value} {math.expm1(ratio):+.1%}" for name, value, ratio in hints)
    return f"llama-bench hinted where to look first: {', '.join(told)}" if hints else None


def bench_words(
    metric: str, now: Settings, shape: RequestShape, varied: Mapping[str, Sequence[Value]]
) -> list[str]:
    """Return llama-bench's words for one measurement of each of the `varied` values."""
    test = {"tg": (0, shape.generated), "pp": (shape.fresh, 0)}[metric]
    words = ["-p", str(test[0]), "-n", str(test[1]), "-r", str(REPETITIONS), "-o", "jsonl"]
    words += ["-d", str(shape.shared)] if shape.shared else []
    fixed = {name: [now[name]] for name in _WORDS if now.get(name) not in _ITS_OWN}
    for name, values in {**fixed, **varied}.items():
        if name != _OTHER[metric]:
            words += [_WORDS[name], ",".join(map(_plain, values))]
    return words


def _rows(
    launch: LaunchConfig, words: Sequence[str], commands: Commands, timeout_s: float, build: str
) -> tuple[RawRow, ...]:
    """Return what was measured before the end, which a value that crashes brings early."""
    name = f"{launch.container_name}-raw-{getpid()}"
    more = ["--name", name, "--timeout", str(math.ceil(timeout_s))]
    more += [word for device in launch.devices for word in ("--device", device)]
    more += ["--cpuset-cpus", launch.cpuset] if launch.cpuset else []
    model = launch.model_path or ""
    for program in programs_in(launch.image or "", model, *more):
        try:
            said = commands.run((*program, "-m", model, *words), timeout_s=timeout_s)
        finally:  # an interrupt or the bound ends podman's client alone
            commands.run(("podman", "rm", "--force", "--ignore", "--time", "0", name))
        if said.code in NOT_THERE or "executable file" in said.stderr:
            continue
        try:
            rows = parse_llama_bench(said.stdout)
        except OutsideError:
            return ()
        return tuple(row for row in rows if row.build is None or f"b{row.build}" == build)
    return ()


def _plain(value: object) -> str:
    return _TOLD.get(str(value), str(value))

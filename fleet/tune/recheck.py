"""Fresh A B B A pairs of a tuned profile against the deployment without it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleet.compiler.compile_deployment import runtime_of
from fleet.deploy.prepare import prepare
from fleet.errors import OutsideError, UserError
from fleet.tune.measure_server import ServerMeasure
from fleet.tune.paired_ratio import Ratio, lower, paired_ratio, robust_deviation

if TYPE_CHECKING:
    from fleet.deploy.bring_up import Progress
    from fleet.deploy.rim import Rim
    from fleet.profiles.kinds import Deployment
    from fleet.tune.candidate_space import Metric
    from fleet.tune.captured_requests import CapturedWorkload
    from fleet.tune.run_study import Measure
    from fleet.tune.search_space import Settings

PAIRS = 4
LEAST_NOISE = 0.003


@dataclass(frozen=True, kw_only=True, slots=True)
class Rechecked:
    """The tuned profile's name and its ratio to the plain deployment, measured now."""

    profile: str
    ratio: Ratio

    @property
    def holds(self) -> bool:
        """Whether the lower 95% bound is above the plain deployment."""
        return lower(self.ratio) > 0


def recheck(
    deployment: Deployment,
    *,
    metric: Metric,
    rim: Rim,
    text: str,
    progress: Progress,
    captured: CapturedWorkload | None = None,
) -> Rechecked:
    """Measure the tuned profile that holds here once more, on the deployment's workload.

    Raises `UserError` when none holds, `OutsideError` when a run fails.
    """
    prepared = prepare(deployment, runtime=runtime_of(deployment), rim=rim, progress=progress)
    tuned = prepared.deployment.tuned
    if tuned is None:
        fix = f"`fleet tune {deployment.name}` makes one; one of another build or host is stale"
        raise UserError("no tuned profile holds here", where=deployment.name, fix=fix)
    theirs: Settings = {name: each.value for name, each in tuned.settings.items()}
    plain = replace(deployment, model=prepared.deployment.model)
    with ServerMeasure(
        deployment=plain, metric=metric, rim=rim, text=text, context=4096, captured=captured
    ) as measure:
        ratio = fresh_ratio(measure, theirs, {}, pairs=PAIRS, progress=progress)
    return Rechecked(profile=tuned.name, ratio=ratio)


def fresh_ratio(
    measure: Measure, ours: Settings, plain: Settings, *, pairs: int, progress: Progress
) -> Ratio:
    """Return the ratio of `ours` to `plain` from fresh pairs in the order plain, ours, ours, plain.

    Raises `OutsideError` when a run fails.
    """
    runs: list[tuple[int, bool, float]] = []
    for at in range(2 * pairs):
        mine = at % 4 in {1, 2}
        outcome = measure(ours if mine else plain)
        if outcome.value is None:
            raise OutsideError(f"a run failed: {outcome.failed}")
        runs.append((at, mine, math.log(outcome.value)))
        progress(f"run {at + 1} of {2 * pairs}")
    sides = ([value for _, ours, value in runs if ours is side] for side in (False, True))
    noise = max(LEAST_NOISE, *map(robust_deviation, sides))
    ratio = paired_ratio(runs, noise=noise, drift=0.0)
    assert ratio is not None  # noqa: S101 - both sides ran
    return ratio

"""`python tune_stand_in.py MODEL.gguf FOLDER OPTIONS.json`: a study on stand-in servers.

OPTIONS: `behaviour` of the stand-in, `trials`, `patience_s`, `lanes` (hosts that measure at
once), `metric`; `on` names the hosts that measure, without this machine; after `lost_after`
servers the other hosts are out of reach, one that is `lost` from the start; `crowded` leaves no
free memory; with `up` the deployment is only brought up. Prints what `tune --json` prints.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))

from fleet.cli.load import load_deployment
from fleet.deploy.bring_up import UpOptions, bring_up
from fleet.deploy.rim import Rim
from fleet.deploy.trial_server import TrialServer, trial_server
from fleet.effects.commands import CommandResult, LocalCommands
from fleet.errors import HostUnreachable
from fleet.tune.tune_deployment import TuneOptions, tune_deployment
from support.stand_in_engine import StandInHost

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from fleet.profiles.kinds import Deployment
    from fleet.tune.measure_server import StartTrial
    from fleet.tune.search_space import Value


def main(model: str, folder: str, raw: str) -> None:
    asked = json.loads(raw)
    commands = Crowded() if asked.get("crowded") else LocalCommands()
    hosts = [
        StandInHost(folder=Path(folder) / f"host{number}", behaviour=asked["behaviour"])
        for number in range(asked.get("lanes", 1))
    ]
    rims = [Rim(commands=commands, hosts={"embedded": host}) for host in hosts]
    options = TuneOptions(
        metric=asked.get("metric", "pp"), trials=asked.get("trials"),
        budget_s=asked.get("budget_s"), say=partial(print, file=sys.stderr),
        patience_s=asked.get("patience_s", 60.0),
        confirm=lambda _: True,
        elsewhere={
            f"host{number}": on_another(
                there, 0 if asked.get("lost") == f"host{number}" else asked.get("lost_after", 10**6)
            )
            for number, there in enumerate(rims)
            if (f"host{number}" in asked["on"] if "on" in asked else number)
        },
        here="on" not in asked,
    )  # fmt: skip
    rim = rims[0]
    wanted = load_deployment(
        model, sets=["ctx_size=2048", "threads=1", f"port={asked.get('port', 8080)}"]
    )
    if asked.get("up"):
        bring_up(wanted, rim=rim, options=UpOptions(), progress=lambda _: None)
        return
    tuned = tune_deployment(
        wanted, options=options, rim=rim,
        text="stand-in " * 400, progress=partial(print, file=sys.stderr, flush=True),
    )  # fmt: skip
    print(json.dumps(tuned.summary.as_json(profile=tuned.profile)))


class Crowded:
    """This machine, with a KiB of memory left."""

    def run(
        self, argv: Sequence[str], *, stdin: str | None = None, timeout_s: float | None = None
    ) -> CommandResult:
        told = LocalCommands().run(argv, stdin=stdin, timeout_s=timeout_s)
        full = re.sub(r"MemAvailable:\s+\d+", "MemAvailable: 1", told.stdout)
        return replace(told, stdout=full)


def on_another(there: Rim, lost_after: int) -> StartTrial:
    """Return what starts trial servers where `there` says, whatever rim it is given."""
    started = count(1)

    def start(
        deployment: Deployment, *, overrides: Mapping[str, Value], rim: Rim,
        bound_s: float | None = None,
    ) -> AbstractContextManager[TrialServer]:  # fmt: skip
        del rim
        if next(started) > lost_after:
            raise HostUnreachable("no route to host")
        return trial_server(deployment, overrides=overrides, rim=there, bound_s=bound_s)

    return start


if __name__ == "__main__":
    main(*sys.argv[1:])

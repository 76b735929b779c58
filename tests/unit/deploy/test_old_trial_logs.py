from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fleet.deploy.model_shelf import prunable
from fleet.deploy.rim import Rim
from fleet.effects.commands import CommandResult
from fleet.effects.folders import Folders

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class NoPrograms:
    """A machine on which no program is installed."""

    def run(
        self, argv: Sequence[str], *, stdin: str | None = None, timeout_s: float | None = None
    ) -> CommandResult:
        assert stdin is None
        assert timeout_s is not None
        return CommandResult(argv=tuple(argv), code=127, stdout="", stderr="not found")


def test_logs_of_ended_trials_can_be_pruned_and_no_others(tmp_path: Path) -> None:
    gone, here = 2**22 + 1, os.getpid()  # Linux numbers processes below 2**22
    state = tmp_path / "state"
    for name in (f"a-trial-{gone}-1", f"a-trial-{here}-1", f"b-trial-{gone}-2"):
        folder = state / "trials" / f"fleet-{name}-server"
        folder.mkdir(parents=True)
        (folder / "server.log").write_text("ready")
    (state / "trials" / f"fleet-b-trial-{gone}-2-server" / "order.json").write_text("{}")
    folders = Folders(config=tmp_path / "config", state=state, cache=tmp_path / "cache")

    found = prunable(Rim(commands=NoPrograms(), folders=folders), with_models=False)

    assert [item.name for item in found] == [f"fleet-a-trial-{gone}-1-server"]

"""What must change, from what is wanted and what runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.compiler.launch_config import LaunchConfig
from fleet.deploy.plan_changes import drift, plan_changes
from fleet.observe.observation import RunningServer

pytestmark = pytest.mark.pure


def launch(**more: object) -> LaunchConfig:
    base = LaunchConfig(
        deployment="d", server="main", host="local", engine="llama.cpp", build=11549,
        program="llama-server", argv=(), settings=(("ctx_size", 512), ("threads", 2)),
    )  # fmt: skip
    return replace(base, **more)  # type: ignore[arg-type]


def running(of: LaunchConfig, **more: object) -> RunningServer:
    base = RunningServer(
        deployment="d", server=of.server, host=of.host, state="running", generation=1,
        digest=of.digest, settings=of.settings,
    )  # fmt: skip
    return replace(base, **more)  # type: ignore[arg-type]


def test_nothing_runs_so_it_is_started() -> None:
    (change,) = plan_changes([launch()], [])

    assert (change.action, change.disturbs) == ("start", False)


def test_what_runs_as_wanted_is_kept() -> None:
    (change,) = plan_changes([launch()], [running(launch())])

    assert (change.action, change.disturbs) == ("keep", False)


def test_another_launch_replaces_and_says_which_settings_differ() -> None:
    wanted = launch(settings=(("ctx_size", 1024), ("threads", 2)), argv=("-c", "1024"))

    (change,) = plan_changes([wanted], [running(launch())])

    assert (change.action, change.disturbs) == ("replace", True)
    assert change.why == "ctx_size: 512 -> 1024"


def test_another_port_or_address_is_named_where_no_setting_differs() -> None:
    old = launch(argv=("--port", "80", "--temp", "-1", "--jinja"))
    wanted = launch(argv=("--port", "81", "--temp", "-1", "--jinja", "--host", "::1"))

    (change,) = plan_changes([wanted], [running(old, argv=old.argv)])

    assert change.why == "`--port`: 80 -> 81, `--host`: not given -> ::1"


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [("i:1", None, "image: i:1 -> none"), (None, "i:1", "image: none -> i:1")],
)
def test_into_a_container_or_out_of_one_is_said_first(
    old: str | None, new: str | None, why: str
) -> None:
    before = launch(image=old, argv=("-m", "/models/m.gguf"))
    wanted = launch(image=new, argv=("-m", "/home/m.gguf"))

    (change,) = plan_changes([wanted], [running(before, argv=before.argv, image=old)])

    assert change.why == why


def test_a_dead_server_is_replaced_without_disturbing_anyone() -> None:
    dead = running(launch(), state="failed", exit_code=137)

    (change,) = plan_changes([launch()], [dead])

    assert (change.action, change.disturbs) == ("replace", False)
    assert "137" in change.why


def test_a_server_wanted_no_more_is_stopped_last() -> None:
    other = running(launch(), server="old")

    changes = plan_changes([launch()], [other, running(launch())])

    assert [(each.server, each.action) for each in changes] == [("main", "keep"), ("old", "stop")]


def test_drift_names_added_and_gone_settings_and_another_image() -> None:
    wanted = launch(settings=(("ctx_size", 512), ("batch_size", 64)), image="b")
    seen = running(launch(), image="a")

    found = {(each.setting, each.running, each.wanted) for each in drift(wanted, seen)}

    assert found == {("batch_size", None, 64), ("threads", 2, None), ("image", "a", "b")}

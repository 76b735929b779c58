"""Which hosts change together, and in which order servers start."""

from __future__ import annotations

import pytest

from fleet.compiler.launch_config import LaunchConfig
from fleet.deploy.rollout import batch_size, batches, start_order, who_runs_what
from fleet.errors import UserError

pytestmark = pytest.mark.pure


def launch(server: str, *after: str) -> LaunchConfig:
    return LaunchConfig(
        deployment="d", server=server, host=f"h-{server}", engine="llama.cpp", build=1,
        program="p", argv=(), depends_on=after,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("batch", "hosts", "size"),
    [("1", 3, 1), ("2", 3, 2), ("25%", 8, 2), ("25%", 3, 1), ("100%", 3, 3), ("34%", 3, 1)],
)
def test_a_batch_is_a_number_or_a_share_but_never_nothing(
    batch: str, hosts: int, size: int
) -> None:
    assert batch_size(batch, hosts) == size


@pytest.mark.parametrize("batch", ["0", "-1", "many", "150%", "0%", "1.5"])
def test_another_batch_is_refused(batch: str) -> None:
    with pytest.raises(UserError):
        batch_size(batch, 4)


def test_hosts_keep_their_order_and_none_is_lost() -> None:
    assert batches(("a", "b", "c"), "2") == (("a", "b"), ("c",))


def test_a_head_starts_after_its_workers() -> None:
    waves = start_order([launch("head", "w1", "w2"), launch("w1"), launch("w2")])

    assert [[each.server for each in wave] for wave in waves] == [["w1", "w2"], ["head"]]


def test_servers_that_wait_for_each_other_start_together() -> None:
    waves = start_order([launch("a", "b"), launch("b", "a")])

    assert [len(wave) for wave in waves] == [2]


def test_an_error_says_who_runs_what() -> None:
    told = who_runs_what(["a"], ["b"], ["c", "d"])

    assert told == "new on a; previous again on b; untouched on c, d"

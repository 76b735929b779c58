"""The hosts that the other journeys run on are real ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.net_hosts import Network

pytestmark = [pytest.mark.ansible, pytest.mark.podman]


def test_a_host_has_its_own_name_home_and_containers(net_hosts: Callable[[int], Network]) -> None:
    first, second = net_hosts(2).hosts

    first.run("touch /root/mark && podman create --name mine --rootfs /tmp true")

    assert first.run("hostname").stdout == "h1\n"
    assert second.run("ls /root/mark").returncode != 0
    assert "mine" in first.run("podman ps -a").stdout
    assert "mine" not in second.run("podman ps -a").stdout


def test_a_host_without_power_answers_nobody_and_comes_back(
    net_hosts: Callable[[int], Network],
) -> None:
    (host,) = net_hosts(1).hosts

    host.power_off()
    dark = host.run("true")
    host.power_on()

    assert dark.returncode == 255
    assert host.run("true").returncode == 0

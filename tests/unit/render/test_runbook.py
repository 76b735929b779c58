"""A runbook says only what is true: its commands exist, its values are the deployment's."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from dataclasses import replace

import pytest
import typer

from fleet.cli.compile import BuildChoice, compile_for
from fleet.cli.load import load_deployment
from fleet.cli.main import app
from fleet.diagnose.finding_table import TABLE
from fleet.render.runbook import Remedy, render_runbook
from fleet.shipped_files import shipped_folder

NAMES = ("spark-pair-v4-flash", "spark-pair-rpc", "deepseek-epyc", "demo", "qwen-8gb-32k")
READ_ONLY = ("status", "plan", "show", "validate", "history", "doctor")
REMEDIES = [Remedy(code, row.message, row.fix) for code, row in TABLE.items()]


def runbook(name: str) -> str:
    deployment = load_deployment(name)
    launches = compile_for(deployment, BuildChoice(build=None))
    return render_runbook(deployment, launches, remedies=REMEDIES).text


def commands(text: str) -> list[list[str]]:
    """Return fleet's command lines in code blocks and between backticks."""
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    lines += re.findall(r"`(fleet [^`]+)`", text)
    return [shlex.split(line)[1:] for line in lines if line.startswith("fleet ")]


def said_by_fleet(words: list[str]) -> None:
    """Let the command line parse `words` without running them; raises on an unknown one."""
    group = typer.main.get_command(app)
    with group.make_context("fleet", words, resilient_parsing=False) as context:
        name, command, rest = group.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        while hasattr(command, "resolve_command"):
            inner = command.make_context(name, rest, parent=context)
            name, command, rest = command.resolve_command(
                inner, [*inner._protected_args, *inner.args]
            )
        command.make_context(name, rest, parent=context)


@pytest.mark.parametrize("name", NAMES)
def test_every_command_is_one_that_fleet_has(name: str) -> None:
    text = runbook(name)

    found = commands(text)
    assert len(found) > 10
    for words in found:
        if words[1:] != []:
            said_by_fleet(words)


def test_an_unknown_option_is_noticed() -> None:
    with pytest.raises(Exception, match="No such option"):
        said_by_fleet(["status", "demo", "--nonsense"])


@pytest.mark.parametrize("name", ["spark-pair-v4-flash", "deepseek-epyc"])
def test_it_names_every_server_digest_and_finding(name: str) -> None:
    deployment = load_deployment(name)
    launches = compile_for(deployment, BuildChoice(build=None))

    text = runbook(name)

    for launch in launches:
        assert launch.digest in text
        assert launch.container_name in text
    vllm = name == "spark-pair-v4-flash"
    assert all((code in text) is (vllm or not code.startswith("VLLM_")) for code in TABLE)


def test_a_pair_of_sparks_gets_its_network_and_power_checks() -> None:
    text = runbook("spark-pair-v4-flash")

    assert "192.168.100.2" in text
    assert "96 %" in text
    assert "ibv_devinfo" in text
    assert "deepseek-epyc" not in text


@pytest.mark.slow
@pytest.mark.usefixtures("home")
def test_its_read_only_commands_run() -> None:
    """They answer, also before anything was brought up: never a bug, never a usage error."""
    found = [words for words in commands(runbook("demo")) if words[0] in READ_ONLY]

    assert found
    for words in {tuple(words) for words in found}:
        done = subprocess.run(
            [sys.executable, "-m", "fleet", *words], capture_output=True, text=True, check=False
        )
        assert done.returncode in {0, 1, 3}, (words, done.stderr)


def test_a_shipped_profile_is_copied_before_it_is_edited() -> None:
    deployment = load_deployment("demo")
    shipped = f"{shipped_folder('profiles')}/demo.yaml"
    installed = replace(deployment, place=replace(deployment.place, file=shipped))
    launches = compile_for(deployment, BuildChoice(build=None))

    text = render_runbook(installed, launches).text

    own = "${XDG_CONFIG_HOME:-~/.config}/fleet/profiles/demo.yaml"
    assert f"cp {shipped} {own}" in text
    assert f"Edit the profile ({own})" in text
    assert (
        f"Edit the profile ({deployment.place.file})" in render_runbook(deployment, launches).text
    )

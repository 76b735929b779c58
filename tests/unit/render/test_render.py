"""What every rendered form must hold, whatever the deployment."""

from __future__ import annotations

import shlex

import pytest
import yaml

from fleet.errors import UserError
from fleet.profiles.kinds import EngineProfile
from fleet.render.compose import render_compose
from fleet.render.containerfile import render_containerfile
from fleet.render.inventory import render_inventory
from fleet.render.llama_swap import render_llama_swap
from fleet.render.podman_line import podman_line, render_podman
from fleet.render.quadlet import render_quadlet
from fleet.render.router_preset import render_preset
from fleet.shipped_files import container_templates
from support.deployments import PLACE, deployment, launch

PURE = pytest.mark.pure


def engine(**keys: object) -> EngineProfile:
    """Return an engine profile."""
    return EngineProfile(name="e", place=PLACE, **{"engine": "llama.cpp", **keys})


@PURE
def test_a_container_has_no_rights_but_those_planned() -> None:
    words = podman_line(launch({"numa": "distribute"}, build="b11549"))

    assert words[words.index("--cap-drop") + 1] == "all"
    assert [words[i + 1] for i, it in enumerate(words) if it == "--cap-add"] == ["SYS_NICE"]
    assert "no-new-privileges" in words
    assert "--read-only" in words
    assert words[words.index("--user") + 1] == "1000:1000"
    assert all(":ro" in words[i + 1] for i, it in enumerate(words) if it == "--volume")


@PURE
def test_a_key_is_in_no_rendered_word() -> None:
    config = launch({}, build="b11549", api_key=True, bind="192.168.1.9")

    words = podman_line(config)
    assert "--secret" in words
    assert not any(word.startswith("--api-key=") or word == "--api-key" for word in words)
    (unit,) = render_quadlet([config])
    assert "Secret=fleet-test-api-key,type=mount,target=/run/secrets/" in unit.text


@PURE
def test_a_shell_reads_the_script_as_the_words() -> None:
    config = launch({"chat_template_kwargs": '{"a": "it\'s $HOME"}'}, build="b11549")
    (script,) = render_podman([config])

    lines = script.text.replace("\\\n", "").splitlines()
    assert tuple(shlex.split(lines[-1])) == podman_line(config)


@PURE
def test_a_unit_escapes_what_systemd_would_expand() -> None:
    config = launch({"chat_template_kwargs": '{"a": "100% $HOME"}'}, build="b11549")

    (unit,) = render_quadlet([config])

    assert '"{\\"a\\": \\"100%% $$HOME\\"}"' in unit.text
    assert "Notify=healthy" in unit.text
    assert "HealthCmd=curl -fsS http://127.0.0.1:8080/health" in unit.text


@PURE
def test_the_units_start_may_take_as_long_as_the_model() -> None:
    (small,) = render_quadlet([launch({}, build="b11549", architecture="gemma3-270m")])
    (large,) = render_quadlet(
        [launch({}, build="b11549", architecture="deepseek-v3.2", model={"quant": "Q4_K_M"})]
    )

    assert _timeout(large.text) > 1000 > _timeout(small.text)


def _timeout(unit: str) -> float:
    return float(unit.split("TimeoutStartSec=")[1].splitlines()[0])


@PURE
def test_compose_confines_too() -> None:
    (file,) = render_compose([launch({"threads": 4}, build="b11549")])

    service = yaml.safe_load(file.text)["services"]["server"]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["ports"] == ["127.0.0.1:8080:8080"]
    assert service["volumes"] == ["/srv:/models:ro,z"]


@PURE
def test_llama_swap_chooses_the_port() -> None:
    (file,) = render_llama_swap([launch({}, build="b11549", port=8123)])

    model = yaml.safe_load(file.text)["models"]["test"]
    assert "8123" not in model["cmd"]
    assert model["cmd"].count("${PORT}") >= 3
    assert "--restart" not in model["cmd"]


@PURE
def test_a_preset_holds_names_without_dashes_and_not_the_routers_own() -> None:
    (file,) = render_preset([launch({"kv_unified": False}, build="b11549", api_key=True)])

    keys = dict(line.split(" = ") for line in file.text.splitlines() if " = " in line)
    assert keys["ctx-size"] == "8192"
    assert keys["kv-unified"] == "false"
    assert not {"port", "host", "api-key-file", "mmap"} & keys.keys()


@PURE
def test_only_llama_server_has_a_router() -> None:
    with pytest.raises(UserError, match="router"):
        render_preset([launch({}, engine="ik_llama.cpp")])


@PURE
def test_an_inventory_of_this_machine() -> None:
    config = launch({}, build="b11549")

    hosts = yaml.safe_load(render_inventory(deployment(), [config]).text)["all"]["children"]
    assert hosts["test"]["hosts"]["localhost"]["ansible_connection"] == "local"


def test_every_template_runs_as_an_ordinary_user() -> None:
    assert len(container_templates()) >= 6
    for name in container_templates():
        text = render_containerfile(engine(containerfile=name, build="b11549")).text
        assert "USER 1000:1000" in text
        assert 'LABEL fleet.build="b11549"' in text
        assert text.index("LABEL fleet.containerfile.digest") > text.rindex("\nFROM ")


def test_arguments_are_filled_in() -> None:
    given = {"CUDA_ARCHITECTURES": "121a-real", "RPC": "ON", "FA_QUANTS": "f16-f16;q8_0-q8_0"}
    text = render_containerfile(
        engine(containerfile="llama.cpp-cuda", build_args=given, build="b11434")
    ).text

    assert "ARG CUDA_ARCHITECTURES=121a-real" in text
    assert 'ARG FA_QUANTS="f16-f16;q8_0-q8_0"' in text
    assert "ARG BUILD=b11434" in text


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "not built"),
        ({"containerfile": "llama.cpp-cudda"}, "no template"),
        ({"containerfile": "vllm", "build_args": {"VERSON": "1"}}, "no argument"),
        ({"containerfile": "vllm", "build_args": {"VERSION": 'x"\nRUN id'}}, "quote"),
    ],
)
def test_refuses_what_a_template_does_not_have(keys: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        render_containerfile(engine(**keys))

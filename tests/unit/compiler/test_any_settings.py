"""Whatever valid settings are given: known words only, or a refusal; the same bytes twice."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from fleet.compiler.compile_deployment import compile_deployment
from fleet.compiler.dialects.environment import as_environment
from fleet.errors import UserError
from fleet.facts.architecture_records import model_facts_from_record
from fleet.facts.known_builds import KNOWN_BUILDS, build_facts
from fleet.profiles.kinds import EngineProfile
from fleet.profiles.settings_table import KV_TYPES, SETTINGS, parse_setting
from support.random_settings import PLACE, deployment_of, random_settings

pytestmark = pytest.mark.pure
MODELS = (None, "gemma3-270m", "deepseek-v3.2", "deepseek-v4-flash", "llama3.1-8b")
BETWEEN = ("2025-12-25", "b8900", "b9150", "b9300", "b10000", "b10400", "b11000", "b12345")
TRIES = 25


def tries(build: str, engine: str = "llama.cpp") -> list:
    """Return launches of random settings, None where the compiler refuses."""
    rng = random.Random(build)  # noqa: S311 - a repeatable draw
    facts, found = build_facts(engine, build), []
    for _ in range(TRIES):
        settings = random_settings(rng, kv_types=KV_TYPES, draft="/srv/draft.gguf")
        wanted = deployment_of(settings, model="/srv/model.gguf", port=8080)
        name = rng.choice(MODELS)
        model = model_facts_from_record(name) if name else None
        wanted = replace(wanted, engine=EngineProfile(name=engine, place=PLACE, engine=engine))
        try:
            found.append(compile_deployment(wanted, hosts={}, model=model, build=facts)[0])
        except UserError:
            found.append(None)
    return found


@pytest.mark.parametrize("build", [*KNOWN_BUILDS, *BETWEEN])
def test_says_only_what_the_build_knows(build: str) -> None:
    facts = build_facts("llama.cpp", build)
    variables = {flag.env for flag in facts.flags.values()} | {"LLAMA_ATTN_ROT_DISABLE"}

    for launch in filter(None, tries(build)):
        words = [it for it in launch.argv if it.startswith("-") and not it[1:2].isdigit()]
        assert [word for word in words if word not in facts] == []
        assert set(dict(launch.env)) <= variables
        assert len([word for word in words if words.count(word) > 1]) == 0


def test_compiles_most_settings_for_the_newest_build() -> None:
    assert sum(launch is not None for launch in tries(KNOWN_BUILDS[-1])) > TRIES / 2


@pytest.mark.parametrize("build", ["b9093", "b11669"])
def test_variables_say_the_same_as_arguments(build: str) -> None:
    facts = build_facts("llama.cpp", build)

    for launch in filter(None, tries(build)):
        rest, env = as_environment(launch)
        known = {flag.env for flag in facts.flags.values() if not flag.removed}
        assert set(env) - set(dict(launch.env)) <= known
        assert len(rest) < len(launch.argv)


def test_the_same_bytes_twice() -> None:
    digests = [[it.digest for it in filter(None, tries("b11669"))] for _ in range(2)]

    assert digests[0] == digests[1]


def test_every_row_takes_its_own_values() -> None:
    for name, row in SETTINGS.items():
        assert parse_setting(name, None) is None
        for choice in row.choices:
            assert parse_setting(name, choice) == choice
        if row.kind in {"int", "mib"} and row.minimum is not None:
            assert parse_setting(name, str(int(row.minimum))) == row.minimum
            with pytest.raises(UserError):
                parse_setting(name, int(row.minimum) - 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ctx_sise", 1), ("ctx_size", "many"), ("ctx_size", 1.5), ("ctx_size", True),
        ("ctx_size", -5), ("cache_ram", "8 GiBi"), ("flash_attention", "maybe"),
        ("metrics", "perhaps"), ("temperature", "hot"), ("temperature", float("nan")),
        ("gpu_layers", "most"), ("alias", ""), ("speculation", "draft-simple,magic"),
    ],
)  # fmt: skip
def test_refuses_values_that_are_none(name: str, value: object) -> None:
    with pytest.raises(UserError):
        parse_setting(name, value)


def test_embedded_attributes_are_those_of_the_binding() -> None:
    engine = pytest.importorskip("fleet.effects.embedded_server", reason="needs xllamacpp")
    for launch in filter(None, tries("b11549", "embedded")):
        engine.engine_params(dict(launch.attributes))

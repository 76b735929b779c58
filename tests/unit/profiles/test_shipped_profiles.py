from __future__ import annotations

from itertools import takewhile
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
import yaml

from fleet.facts.architecture_records import model_facts_from_record
from fleet.profiles.json_schema import json_schema
from fleet.profiles.kind_tables import TABLES
from fleet.profiles.kinds import KINDS, ExampleFile, Kind, ModelProfile, Profile
from fleet.profiles.library import ProfileLibrary, ProfileSource
from fleet.profiles.parse_profile import check_profile
from fleet.profiles.references import broken_references
from fleet.profiles.resolve_deployment import resolve_deployment
from fleet.profiles.settings_table import SETTINGS, SettingKind, SettingRow
from fleet.shipped_files import shipped_folder

pytestmark = pytest.mark.pure

SHIPPED = {
    str(path.relative_to(shipped_folder("profiles"))): path.read_bytes()
    for path in sorted(shipped_folder("profiles").rglob("*.yaml"))
}
LIBRARY = ProfileLibrary(
    ProfileSource(file=name, layer="shipped", content=content) for name, content in SHIPPED.items()
)
EXAMPLE: dict[str, Any] = yaml.safe_load(SHIPPED["example.yaml"])
WANTED: dict[Kind, set[str]] = {
    "hardware": {
        "auto", "epyc-9175f", "dgx-spark", "dgx-spark-pair", "gpu-8gb", "rtx-3090", "radeon-780m",
    },
    "model": {
        "deepseek-v3.2-speciale", "deepseek-v4-flash", "deepseek-v4-pro", "kimi-k2.5",
        "qwen2.5-3b", "qwen2.5-7b", "qwen2.5-14b", "qwen2.5-32b", "qwen2.5-72b",
        "qwen3-30b-a3b", "gpt-oss-120b", "llama3.1-8b", "gemma3-270m",
    },
    "engine": {"llama.cpp", "ik_llama.cpp", "vllm", "embedded"},
    "workload": {"chat", "resident", "long-read", "agent"},
    "conversation": {"P0", "P1", "P2"},
    "deployment": {
        "demo", "deepseek-epyc", "deepseek-epyc-original", "kimi-epyc", "spark-pair-v4-flash",
        "spark-pair-rpc", "qwen-8gb-32k", "qwen-780m",
    },
    "tuned": set(),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_ships_what_the_design_names(kind: Kind) -> None:
    assert WANTED[kind] <= {entry.name for entry in LIBRARY.entries(kind)}


@pytest.mark.parametrize("file", SHIPPED)
def test_a_shipped_file_is_valid_and_names_what_there_is(file: str) -> None:
    found = check_profile(SHIPPED[file], file=file)

    assert not isinstance(found, tuple), [str(problem) for problem in found]
    if not isinstance(found, ExampleFile):
        profile: Profile = found
        assert list(broken_references(profile, LIBRARY)) == []
        assert profile.name == Path(file).name.removesuffix(".yaml")


@pytest.mark.parametrize("file", SHIPPED)
def test_a_shipped_file_satisfies_the_schema_for_editors(file: str) -> None:
    document = yaml.safe_load(SHIPPED[file])

    jsonschema.Draft202012Validator(json_schema(document["kind"])).validate(document)


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_refuses_an_unknown_key(kind: str) -> None:
    schema = json_schema(kind)
    document = {"kind": kind, "version": 1, "nonsense": 1}

    jsonschema.Draft202012Validator.check_schema(schema)
    messages = [
        error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(document)
    ]
    assert any("nonsense" in message for message in messages)


@pytest.mark.parametrize("kind", KINDS)
def test_the_example_documents_every_key(kind: Kind) -> None:
    lines = SHIPPED["example.yaml"].decode().splitlines()
    start = lines.index(f"{kind}:") + 1
    section = list(takewhile(lambda line: not line or line.startswith(" "), lines[start:]))
    # keys that exclude others stand as comments beside them
    commented = {key for key in TABLES[kind].fields if any(f"# {key}: " in one for one in section)}

    assert set(EXAMPLE[kind]) | commented == set(TABLES[kind].fields)


def test_the_example_documents_every_setting() -> None:
    shown = set(EXAMPLE["deployment"]["settings"]) | set(EXAMPLE["deployment"]["pinned"])

    assert shown == set(SETTINGS)


@pytest.mark.parametrize("name", sorted(WANTED["model"]))
def test_a_models_architecture_and_context_are_on_record(name: str) -> None:
    model = LIBRARY.find(ModelProfile, name)

    assert model.architecture is not None
    facts = model_facts_from_record(model.architecture, model.quant)
    assert model.context_train in (None, facts.n_ctx_train)


def test_deepseek_epyc_is_the_improved_launch() -> None:
    settings = resolve_deployment(LIBRARY, "deepseek-epyc").settings

    assert {name: settings[name].value for name in (
        "threads", "threads_batch", "ctx_size", "parallel", "batch_size", "ubatch_size",
        "flash_attention", "cache_type_k", "cache_type_v", "reasoning",
    )} == {
        "threads": 13, "threads_batch": 13, "ctx_size": 16384, "parallel": 1,
        "batch_size": 2048, "ubatch_size": 512, "flash_attention": "on",
        "cache_type_k": "q8_0", "cache_type_v": "q8_0", "reasoning": "on",
    }  # fmt: skip


def test_the_original_differs_from_it_in_the_cache_alone() -> None:
    better = resolve_deployment(LIBRARY, "deepseek-epyc")
    first = resolve_deployment(LIBRARY, "deepseek-epyc-original")

    changed = {
        name: (first.settings[name].value, better.settings[name].value)
        for name in better.settings
        if first.settings[name].value != better.settings[name].value
    }
    assert changed == {"cache_type_k": ("f16", "q8_0"), "cache_type_v": ("f16", "q8_0")}
    assert set(first.settings) == set(better.settings)


def test_models_with_one_latent_cache_get_equal_types() -> None:
    for entry in LIBRARY.entries("deployment"):
        settings = resolve_deployment(LIBRARY, entry.name).settings
        types = [settings[f"cache_type_{half}"].value for half in "kv"
                 if f"cache_type_{half}" in settings]  # fmt: skip
        assert len(types) in (0, 2)
        assert len(set(types)) <= 1


@pytest.mark.parametrize("row", SETTINGS.values(), ids=lambda row: row.name)
def test_each_row_of_the_settings_table_is_made_of_known_words(row: SettingRow) -> None:
    assert row.kind in get_args(SettingKind)
    assert (row.kind in {"choice", "choices"}) == bool(row.choices)
    assert (row.kind in {"int", "float", "mib", "layers"}) == (row.minimum is not None)
    assert row.minimum is None or (row.maximum is not None and row.minimum < row.maximum)

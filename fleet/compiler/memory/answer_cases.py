"""Many memory questions at once: a model or its caches, and flags, by llama.cpp's short names."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fleet.compiler.memory.caches import plan_caches, state_bytes
from fleet.compiler.memory.compute_buffers import cpu_bytes, device_bytes, host_bytes, output_bytes
from fleet.compiler.memory.question import MemoryQuestion
from fleet.compiler.memory.refusals import refusal
from fleet.compiler.memory.version_rules import rules_for
from fleet.compiler.memory.vllm_layouts import plan_vllm_caches
from fleet.errors import UserError
from fleet.facts.architecture_records import model_facts_from_record
from fleet.facts.model_facts import CacheLayers, CacheScope, ModelFacts, StateLayers
from fleet.sizes import MIB

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.compiler.memory.caches import CachePlan

Json = dict[str, Any]
_SCOPES: dict[str, CacheScope] = {
    "full": "full", "swa": "swa", "swa_dsv4": "swa_dsv4", "ratio": "ratio",
}  # fmt: skip
_EVERY_LAYER = 1 << 16
_FLAGS = frozenset(
    {"c", "ub", "b", "np", "kvu", "ctk", "ctv", "fa", "out", "ndev", "cmoe", "ngl", "draft",
     "swa_full", "mla", "amb"}
)  # fmt: skip


def answer_case(case: Mapping[str, Any], where: str) -> Json:
    """Return caches, state, buffers and a refusal of one case; sizes in MiB.

    Raises `UserError` naming the line for a case that is not understood.
    """
    question = _question(case, where)
    rules, _ = rules_for(question.engine, question.build, question.build_date)
    refused = refusal(question, rules)
    answer: Json = {"id": case.get("id"), "kv": [], "state_mib": 0.0, "compute_mib": {}}
    if refused is None:
        vllm = question.engine == "vllm"
        plans = plan_vllm_caches(question) if vllm else plan_caches(question, rules)
        answer["kv"] = [_cache(plan) for plan in plans]
        answer["state_mib"] = round(state_bytes(question) / MIB, 4)
        if "caches" not in case:
            gpus = device_bytes(question, plans, rules)
            answer["compute_mib"] = {f"GPU{i}": round(x / MIB, 4) for i, x in enumerate(gpus)}
            on_host = host_bytes if gpus else cpu_bytes
            answer["compute_mib"]["CPU"] = round(on_host(question, plans, rules) / MIB, 4)
    answer["output_mib"] = round(output_bytes(question) / MIB, 4)
    answer["refused"] = refused
    return answer


def _cache(plan: CachePlan) -> Json:
    k_bytes, v_bytes, cache = plan.k_bytes, plan.v_bytes, plan.cache
    return {
        "name": cache.name,
        "mib": round((k_bytes + v_bytes) / MIB, 4),
        "k_mib": round(k_bytes / MIB, 4),
        "v_mib": round(v_bytes / MIB, 4),
        "cells": plan.cells,
        "layers": len(cache.layers),
    }


def _question(case: Mapping[str, Any], where: str) -> MemoryQuestion:
    try:
        flags = case.get("flags") or {}
        _check_flags(flags)
        model = _model(case)
        build, date = _build(case.get("build"))
        outputs, ubatch = flags.get("out"), int(flags.get("ub", 512))
        return MemoryQuestion(
            model=model,
            context=int(flags.get("c") or model.n_ctx_train or 4096),
            parallel=int(flags.get("np", 1)),
            unified=bool(flags.get("kvu", 0)),
            batch=int(flags.get("b") or max(2048, ubatch)),
            ubatch=ubatch,
            type_k=flags.get("ctk", "f16"),
            type_v=flags.get("ctv", "f16"),
            flash_attention=bool(flags.get("fa", 1)),
            outputs=None if outputs is None else int(outputs),
            devices=int(flags.get("ndev", 1)),
            gpu_layers=_layers(flags.get("ngl"), model),
            cpu_moe_layers=_EVERY_LAYER if flags.get("cmoe") else None,
            draft_tokens=int(flags.get("draft") or 0),
            swa_full=bool(flags.get("swa_full", 0)),
            engine=case.get("engine") or "llama.cpp",
            build=build,
            build_date=date,
        )
    except UserError as error:
        raise UserError(error.message, where=where, fix=error.fix) from None
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        message = f"a case needs `model` or `caches`, and `flags` as numbers: {error}"
        raise UserError(message, where=where, fix=_known_flags()) from None


def _check_flags(flags: Mapping[str, Any]) -> None:
    unknown = flags.keys() - _FLAGS
    if unknown:
        raise UserError(f"unknown flag `{min(unknown)}`", fix=_known_flags())


def _known_flags() -> str:
    return f"flags: {', '.join(sorted(_FLAGS))}"


def _model(case: Mapping[str, Any]) -> ModelFacts:
    if "caches" in case:
        return _bare_model(case["caches"], case.get("state_bytes_per_seq") or 0)
    return model_facts_from_record(case["model"])


def _layers(wanted: object, model: ModelFacts) -> int | None:
    if wanted is None or wanted in {"all", "auto"}:
        return None
    count = int(str(wanted))
    return None if count < 0 or count > model.n_layer else count


@lru_cache(maxsize=64)
def _parsed_build(build: str) -> tuple[int | None, str | None]:
    if "-" in build:
        return None, build
    return int(build.lstrip("b")), None


def _build(build: object) -> tuple[int | None, str | None]:
    return (None, None) if build is None else _parsed_build(str(build))


def _bare_model(caches: Any, state_bytes_per_sequence: int) -> ModelFacts:  # noqa: ANN401 - JSON
    """Return a model of which only the caches and the state of a sequence are known."""
    known = tuple(_bare_cache(cache) for cache in caches)
    state = StateLayers(name="recurrent", layers=(0,), elements=state_bytes_per_sequence // 4)
    mla = any(cache.name == "mla" for cache in known)
    return ModelFacts(
        name="caches", arch="", source="config", n_layer=1, n_embd=0, n_ctx_train=0, n_vocab=0,
        n_head=0, n_head_kv=0, head_dim_k=32, head_dim_v=32, n_ff=0, is_mla=mla, caches=known,
        states=(state,) if state_bytes_per_sequence else (),
    )  # fmt: skip


def _bare_cache(cache: Mapping[str, Any]) -> CacheLayers:
    layers, window = int(cache["n_layers"]), int(cache.get("window") or 0)
    k_row, v_row = int(cache["k_row"]), int(cache.get("v_row") or 0)
    named = cache.get("scope") or ("swa" if window else "full")
    if named not in _SCOPES:
        raise UserError(f"unknown cache scope `{named}`", fix="full, swa, swa_dsv4 or ratio")
    scope = _SCOPES[named]
    return CacheLayers(
        name=str(cache.get("name") or "kv"),
        scope=scope,
        layers=tuple(range(layers)),
        k_row=k_row,
        v_row=v_row,
        k_elements=layers * k_row,
        v_elements=layers * v_row,
        window=window,
        ratio=int(cache.get("ratio") or 1),
    )

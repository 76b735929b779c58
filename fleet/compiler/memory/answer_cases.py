"""Many memory questions at once: a model or its caches, and flags, by llama.cpp's short names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from fleet.compiler.memory.caches import state_bytes
from fleet.compiler.memory.compute_buffers import device_bytes, host_bytes, output_bytes
from fleet.compiler.memory.plan_memory import caches_of
from fleet.compiler.memory.question import MemoryEngine, MemoryQuestion
from fleet.compiler.memory.refusals import refusal
from fleet.compiler.memory.say_fit import cache_as_json, mib
from fleet.compiler.memory.version_rules import rules_for
from fleet.errors import UserError
from fleet.facts.architecture_records import model_facts_from_record
from fleet.facts.model_facts import CacheLayers, CacheScope, ModelFacts, StateLayers, even_cache

if TYPE_CHECKING:
    from collections.abc import Mapping

Json = dict[str, Any]
_EVERY_LAYER = 1 << 16
_MOST = (1 << 32) - 1  # the engine counts in 32 bits
_MOST_DEVICES = 256
_MOST_ROW = 1 << 26
_ON = frozenset({"1", "true", "on", "auto", "enabled"})
_OFF = frozenset({"0", "false", "off", "disabled"})
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
        plans = caches_of(question, rules)
        answer["kv"] = [cache_as_json(plan) for plan in plans]
        answer["state_mib"] = mib(state_bytes(question))
        if "caches" not in case:
            gpus = enumerate(device_bytes(question, plans, rules))
            answer["compute_mib"] = {f"GPU{i}": mib(size) for i, size in gpus}
            answer["compute_mib"]["CPU"] = mib(host_bytes(question, plans, rules))
    answer["output_mib"] = mib(output_bytes(question))
    answer["refused"] = refused
    return answer


def _question(case: Mapping[str, Any], where: str) -> MemoryQuestion:
    try:
        flags = case.get("flags") or {}
        _check_flags(flags)
        model = _model(case)
        build, date = _build(case.get("build"))
        ubatch = _count(flags, "ub", 512)
        batch = _count(flags, "b", max(2048, ubatch))
        return MemoryQuestion(
            model=model,
            context=_count(flags, "c", 0) or model.n_ctx_train or 4096,
            parallel=_count(flags, "np", 1, least=1),
            unified=_switch(flags, "kvu", otherwise=False),
            batch=batch or ubatch,  # 0 stands for the other, both are refused
            ubatch=ubatch or batch,
            type_k=str(flags.get("ctk") or "f16"),
            type_v=str(flags.get("ctv") or "f16"),
            flash_attention=_switch(flags, "fa", otherwise=True),
            outputs=_count(flags, "out", 0) or None,
            devices=_count(flags, "ndev", 1, most=_MOST_DEVICES),
            gpu_layers=_layers(flags, model),
            cpu_moe_layers=_expert_layers(flags),
            draft_tokens=_count(flags, "draft", 0),
            swa_full=_switch(flags, "swa_full", otherwise=False),
            engine=_engine(case),
            mla_stores_v=_keeps_transposed(case, flags),
            build=build,
            build_date=date,
        )
    except UserError as error:
        raise UserError(error.message, where=where, fix=error.fix) from None
    except (TypeError, ValueError, AttributeError, KeyError, OverflowError) as error:
        message = f"a case needs `model` or `caches`, and `flags` as numbers: {error}"
        raise UserError(message, where=where, fix=_known_flags()) from None


def _count(
    flags: Mapping[str, Any], name: str, otherwise: int, *, least: int = 0, most: int = _MOST
) -> int:
    value = flags.get(name)
    count = otherwise if value is None else int(value)
    if not least <= count <= most:
        raise UserError(f"the flag `{name}` is {value}", fix=f"a number from {least} to {most}")
    return count


def _switch(flags: Mapping[str, Any], name: str, *, otherwise: bool) -> bool:
    value = flags.get(name)
    if value is None:
        return otherwise
    word = str(value).lower()
    if word not in _ON | _OFF:
        raise UserError(f"the flag `{name}` is {value}", fix="0 or 1, on or off")
    return word in _ON


def _expert_layers(flags: Mapping[str, Any]) -> int | None:
    """Return the layers whose experts stay on the host: all for a switch, else so many."""
    value = flags.get("cmoe")
    if not value:
        return None
    return _EVERY_LAYER if value in {1, "1", "on", "all"} else _count(flags, "cmoe", 0)


def _keeps_transposed(case: Mapping[str, Any], flags: Mapping[str, Any]) -> bool:
    """Tell whether ik_llama.cpp's first form of MLA keeps the latent a second time."""
    first_form = case.get("engine") == "ik_llama.cpp" and flags.get("mla") == 1
    return first_form and not _switch(flags, "fa", otherwise=True)


def _engine(case: Mapping[str, Any]) -> MemoryEngine:
    engine: MemoryEngine = case.get("engine") or "llama.cpp"
    if engine not in get_args(MemoryEngine):
        raise UserError(f"`{engine}` is no engine", fix=", ".join(get_args(MemoryEngine)))
    return engine


def _check_flags(flags: Mapping[str, Any]) -> None:
    unknown = flags.keys() - _FLAGS
    if unknown:
        raise UserError(f"unknown flag `{min(unknown)}`", fix=_known_flags())


def _known_flags() -> str:
    return f"flags: {', '.join(sorted(_FLAGS))}"


def _model(case: Mapping[str, Any]) -> ModelFacts:
    if "caches" in case:
        return _bare_model(case["caches"], _count(case, "state_bytes_per_seq", 0))
    return model_facts_from_record(str(case["model"]))


def _layers(flags: Mapping[str, Any], model: ModelFacts) -> int | None:
    wanted = flags.get("ngl")
    if wanted is None or wanted in {"all", "auto", -1}:
        return None
    count = _count(flags, "ngl", 0)
    return None if count > model.n_layer else count


def _build(build: object) -> tuple[int | None, str | None]:
    if build is None:
        return None, None
    word = str(build)
    return (None, word) if "-" in word else (int(word.lstrip("b")), None)


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
    if missing := {"n_layers", "k_row"} - cache.keys():
        raise UserError(f"a cache has no `{min(missing)}`", fix="name, n_layers, k_row, v_row")
    layers = _count(cache, "n_layers", 0, most=_EVERY_LAYER)
    rows = (_count(cache, "k_row", 0, most=_MOST_ROW), _count(cache, "v_row", 0, most=_MOST_ROW))
    window = _count(cache, "window", 0)
    named = cache.get("scope") or ("swa" if window else "full")
    scope: CacheScope | None = next((it for it in get_args(CacheScope) if it == named), None)
    if scope is None:
        raise UserError(f"unknown cache scope `{named}`", fix="full, swa, swa_dsv4 or ratio")
    name, ratio = str(cache.get("name") or "kv"), _count(cache, "ratio", 1, least=1)
    return even_cache(name, scope, range(layers), rows, window=window, ratio=ratio)

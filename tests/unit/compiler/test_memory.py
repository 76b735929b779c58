"""The answers that a planner must give: known scenarios, refusals, version rules, advice."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from fleet.compiler.memory.advice import advise, longest_context
from fleet.compiler.memory.answer_cases import answer_case
from fleet.compiler.memory.compare_with_reality import gaps, planned_memory, printed_memory
from fleet.compiler.memory.fit import fit
from fleet.compiler.memory.plan_memory import plan_memory
from fleet.compiler.memory.question import MemoryQuestion, memory_question
from fleet.errors import UserError
from fleet.facts.architecture_records import model_facts_from_record, with_known_compute
from fleet.facts.host_facts import Gpu, HostFacts
from fleet.facts.model_facts import Weights
from fleet.sizes import GIB, MIB, Bandwidth, ByteSize

pytestmark = pytest.mark.pure


def host(gpu_mib: int | None = None, memory: int | None = None) -> HostFacts:
    gpus = (Gpu(name="g", backend="cuda", memory=ByteSize.from_mib(gpu_mib)),) if gpu_mib else ()
    total = ByteSize(memory) if memory else None
    return HostFacts(name="h", cores=8, cpus=tuple(range(8)), memory_total=total, gpus=gpus)


CARD = host(8188)
EPYC = host(memory=755 * GIB)


def ask(
    model: str, quant: str | None, context: int, kind: str = "f16", **more: Any
) -> MemoryQuestion:
    facts = model_facts_from_record(model, quant)
    return MemoryQuestion(model=facts, context=context, type_k=kind, type_v=kind, **more)


# weights, caches and state, compute on an 8 GB card, MiB, and the verdict
SCENARIOS = [
    ("llama3.1-8b", 32768, "f16", (4409, 4096, 140), "no"),
    ("llama3.1-8b", 32768, "q8_0", (4409, 2176, 192), "fits"),
    ("llama3.1-8b", 65536, "q8_0", (4409, 4352, 352), "no"),
    ("llama3.1-8b", 65536, "q4_0", (4409, 2304, 352), "fits"),
    ("qwen2.5-7b", 65536, "q8_0", (4169, 1904, 220), "fits"),
    ("qwen2.5-7b", 65536, "f16", (4169, 3584, 196), "no"),
    ("gemma4-12b", 32768, "f16", (7020, 992, 155), "no"),
    ("gemma4-12b", 32768, "q8_0", (7020, 527, 155), "tight"),
    ("gemma4-12b", 32768, "q4_0", (7020, 279, 155), "fits"),
    ("qwen3.5-9b", 65536, "f16", (4813, 2098, 152), "fits"),
    ("lfm2-8b-a1b", 65536, "q8_0", (4811, 408, 208), "fits"),
]


@pytest.mark.parametrize(("model", "context", "kind", "sizes", "verdict"), SCENARIOS)
def test_an_8_gb_card(
    model: str, context: int, kind: str, sizes: tuple[int, int, int], verdict: str
) -> None:
    plan = plan_memory(ask(model, "Q4_K_M", context, kind))
    share = plan.devices[0]
    weights, cache, compute = sizes

    assert share.weights / MIB == pytest.approx(weights, abs=3)
    assert (share.kv + share.state) / MIB == pytest.approx(cache, abs=0.6)
    assert share.compute / MIB == pytest.approx(compute, abs=0.6)
    assert fit(plan, CARD).answer == verdict


@pytest.mark.parametrize(
    ("quant", "slots", "gib", "fits"),
    [("Q8_0", 1, 679.5, True), ("Q8_0", 4, 718.9, True), ("Q8_0", 8, 771, False),
     ("Q4_K_M", 8, 483, True)],
)  # fmt: skip
def test_a_large_cpu_host(quant: str, slots: int, gib: float, fits: bool) -> None:
    question = ask("deepseek-v3.2", quant, 163840 * slots, devices=0, parallel=slots)

    plan = plan_memory(question)

    assert plan.needed / GIB == pytest.approx(gib, rel=0.003)
    assert fit(plan, EPYC).fits == fits


def cache_gib(model: str, k: str, v: str, engine: Any = "vllm") -> float:
    facts = model_facts_from_record(model)
    plan = plan_memory(
        MemoryQuestion(model=facts, context=2**20, type_k=k, type_v=v, engine=engine)
    )
    return sum(cache.total for cache in plan.caches) / GIB


def test_a_million_tokens_by_generation_of_attention() -> None:
    v4, v32 = cache_gib("deepseek-v4-pro", "fp8", "mxfp4"), cache_gib("deepseek-v3.2", "fp8", "fp8")
    gqa = 61 * 2 * 8 * 128 * 2 * 2**20 / GIB  # bf16, 8 heads of 128

    assert cache_gib("deepseek-v4-pro", "bf16", "bf16") == pytest.approx(9.62, abs=0.01)
    assert v4 / v32 == pytest.approx(0.10, abs=0.01)
    assert v4 / gqa == pytest.approx(0.02, abs=0.002)
    assert cache_gib("deepseek-v4-flash", "f16", "f16", "llama.cpp") == pytest.approx(
        6.76, abs=0.02
    )


@pytest.mark.parametrize(
    ("model", "more", "says"),
    [
        ("deepseek-v3", {"type_k": "q8_0"}, "both cache types must be the same"),
        ("deepseek-v4-flash", {"type_v": "q8_0"}, "both cache types must be the same"),
        ("llama3.1-8b", {"type_v": "q8_0", "flash_attention": False}, "needs flash attention"),
        ("llama3.1-8b", {"type_k": "q3_0"}, "is not one of"),
        ("llama3.1-8b", {"parallel": 300}, "more than the engine's 256"),
        ("llama3.1-8b", {"batch": 0, "ubatch": 0}, "cannot both be 0"),
    ],
)
def test_says_what_the_engine_would_refuse(model: str, more: dict[str, Any], says: str) -> None:
    plan = plan_memory(replace(ask(model, "Q4_K_M", 4096), **more))

    assert says in str(plan.refused)
    assert not fit(plan, CARD).fits


def kv_mib(question: MemoryQuestion) -> float:
    return sum(cache.total for cache in plan_memory(question).caches) / MIB


def test_the_plan_depends_on_the_build_and_says_so() -> None:
    mla, window = ask("deepseek-v3", "Q8_0", 16384), ask("gemma3-27b", "Q4_K_M", 32768)

    old = plan_memory(replace(mla, build=7000))

    assert kv_mib(mla) == 1098.0
    assert kv_mib(replace(mla, build=7000)) == pytest.approx(1098.0 * (576 + 512) / 576)
    assert any("19067" in note for note in old.notes)
    assert kv_mib(replace(window, build=5000)) > 4 * kv_mib(window)
    assert kv_mib(replace(window, build_date="2025-06-01")) > kv_mib(window)


def test_drafts_multiply_the_state_that_rolls_back() -> None:
    question = ask("qwen3.5-27b", "Q4_K_M", 8192, draft_tokens=6)

    assert plan_memory(question).state / MIB == pytest.approx(1047.38, abs=0.01)


@pytest.mark.parametrize(
    ("words", "mib"),  # as b11549 printed it for Gemma 3 270M on the CPU
    [
        ({}, 26.77),
        ({"speculation": "ngram-simple"}, 64.28),
        ({"speculation": "ngram-simple", "ngram_size_m": 64, "ctx_size": 2048}, 74.28),
        ({"speculation": "ngram-simple", "ngram_size_m": 16, "parallel": 2}, 45.28),
        ({"speculation": "ngram-simple", "ngram_size_m": 64, "ubatch_size": 256}, 72.51),
        ({"speculation": "draft-simple,ngram-mod"}, 80.28),
    ],
)
def test_each_token_of_an_n_gram_draft_is_a_row_of_logits(
    words: dict[str, Any], mib: float
) -> None:
    settings = {"ctx_size": 8192, "parallel": 1, "kv_unified": False, **words}
    model = model_facts_from_record("gemma3-270m", "Q4_K_M")
    plan = plan_memory(memory_question(settings, model=model, host=host(), build=11549))

    assert planned_memory(plan)["compute CPU"] == pytest.approx(mib, rel=0.01)


def test_advice_comes_in_order_and_each_fits() -> None:
    question = ask("llama3.1-8b", "Q4_K_M", 65536)

    advice = advise(question, CARD)

    assert list(advice[0].set) == ["ctx_size"]
    assert (
        advice[1].set == {"cache_type_k": "q4_0", "cache_type_v": "q4_0"}
        or advice[1].set["cache_type_k"] == "q8_0"
    )
    assert [next(iter(a.set)) for a in advice][:3] == ["ctx_size", "cache_type_k", "gpu_layers"]
    assert all(each.fits and each.why for each in advice)
    longer = replace(question, context=int(advice[0].set["ctx_size"]) + 256)
    assert not fit(plan_memory(longer), CARD).fits


def test_the_longest_context_is_the_edge() -> None:
    question = ask("qwen3-8b", "Q4_K_M", 1)

    longest = longest_context(question, CARD)

    assert fit(plan_memory(replace(question, context=longest)), CARD).fits
    assert not fit(plan_memory(replace(question, context=longest + 256)), CARD).fits


def test_experts_on_the_host_leave_the_card() -> None:
    whole = plan_memory(ask("qwen3-30b-a3b", "Q4_K_M", 8192))
    moved = plan_memory(ask("qwen3-30b-a3b", "Q4_K_M", 8192, cpu_moe_layers=48))

    experts = whole.question.model.weights.experts if whole.question.model.weights else 0

    assert whole.devices[0].weights - moved.devices[0].weights == pytest.approx(experts)
    assert moved.host.weights - whole.host.weights == pytest.approx(experts)


def test_a_context_above_the_trained_one_is_planned_with_a_warning() -> None:
    plan = plan_memory(ask("qwen2.5-7b", "Q4_K_M", 262144))

    assert plan.refused is None
    assert any("RoPE scaling" in note for note in plan.notes)


def test_an_unknown_architecture_is_bounded_and_said() -> None:
    facts = replace(model_facts_from_record("llama3.1-8b", "Q4_K_M"), arch="novel", known=False)

    plan = plan_memory(MemoryQuestion(model=facts, context=4096))

    assert any("upper bound" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("model", "quant", "hint"),
    [("lama3.1-8b", None, "llama3.1-8b"), ("llama3.1-8b", "Q4_K_N", "Q4_K_M")],
)
def test_near_names_are_offered(model: str, quant: str | None, hint: str) -> None:
    with pytest.raises(UserError) as error:
        model_facts_from_record(model, quant)

    assert hint in str(error.value.fix)


def test_a_case_may_name_caches_instead_of_a_model() -> None:
    caches = [{"name": "kv", "scope": "full", "n_layers": 2, "k_row": 1024, "v_row": 512}]

    answer = answer_case(
        {"id": 7, "caches": caches, "state_bytes_per_seq": MIB, "flags": {"c": 1000, "np": 2}}, "x"
    )

    assert answer["id"] == 7
    assert answer["kv"][0] == {
        "name": "kv", "mib": 6.0, "k_mib": 4.0, "v_mib": 2.0, "cells": 512, "layers": 2,
    }  # fmt: skip
    assert answer["state_mib"] == 2.0


@pytest.mark.parametrize(
    "case",
    [{"model": "nobody", "flags": {}}, {"flags": {}}, {"model": "qwen3-8b", "flags": {"cc": 1}},
     {"model": "qwen3-8b", "flags": {"c": "many"}}, {"model": "qwen3-8b", "flags": [1]},
     {"caches": [{"name": "kv"}]}],
)  # fmt: skip
def test_a_case_that_is_not_understood_names_its_line(case: dict[str, Any]) -> None:
    with pytest.raises(UserError) as error:
        answer_case(case, "cases.jsonl:3")

    assert error.value.where == "cases.jsonl:3"


def test_settings_left_out_are_the_engine_s_defaults() -> None:
    facts = model_facts_from_record("qwen3-8b", "Q4_K_M")

    bare = memory_question({}, model=facts, host=CARD)
    asked = memory_question({"parallel": 2, "cache_type_k": "q8_0"}, model=facts, host=CARD)

    assert (bare.parallel, bare.unified, bare.context, bare.devices) == (4, True, 40960, 1)
    assert (asked.parallel, asked.unified, asked.type_k) == (2, False, "q8_0")


def test_a_gap_above_two_percent_is_a_finding() -> None:
    plan = plan_memory(ask("llama3.1-8b", "Q4_K_M", 8192))
    lines = [
        "x: llama_kv_cache: size = 1024.00 MiB (  8192 cells,  32 layers,  1/1 seqs), K (f16)",
        "sched_reserve:      CUDA0 compute buffer size =   216.01 MiB",
        "load_tensors:   CPU_Mapped model buffer size =   281.81 MiB",
    ]

    found = {gap.item: gap for gap in gaps(plan, printed_memory(lines))}

    assert not found["kv"].finding
    assert found["compute GPU"].finding
    assert found["compute GPU"].planned == pytest.approx(116.01, abs=0.01)


def test_what_grows_is_no_finding_until_it_is_full() -> None:
    plan = plan_memory(ask("llama3.1-8b", "Q4_K_M", 8192))
    host = plan.host.total / MIB

    resident, leak = (
        gaps(plan, {"total host": host + more})[0] for more in (0.9 * plan.cache_ram / MIB, 20000)
    )

    assert (resident.share, resident.finding) == (0, False)
    assert leak.finding


@pytest.mark.parametrize(
    ("build", "more", "twice"),
    [
        (11549, {}, 300),
        (11549, {"no_repack": True}, 0),
        (11669, {}, 0),
        (11549, {"locked": True}, 0),
    ],
)
def test_pages_of_repacked_weights_lie_there_besides_until_b11669(
    build: int, more: dict[str, Any], twice: int
) -> None:
    weights = Weights(quant="Q4_K_M", total=1000, token_embd=100, output=100, mapped_twice=300)
    model = replace(model_facts_from_record("llama3.1-8b"), weights=weights)
    question = MemoryQuestion(model=model, context=4096, devices=0, build=build, **more)

    plan = plan_memory(question)

    assert plan.mapped_twice == twice
    assert plan.host.weights == (1300 if more.get("locked") else 1000)


def test_a_file_of_a_known_shape_uses_its_compute_figures() -> None:
    record = model_facts_from_record("deepseek-v3")
    file = replace(record, name="mine", source="gguf", compute=None, n_vocab=130000)

    assert with_known_compute(file).compute == record.compute
    assert with_known_compute(replace(file, n_embd=7000)).compute is None


def test_what_layers_in_host_memory_cost_is_told() -> None:
    slow = replace(CARD, memory_bandwidth=Bandwidth(50_000_000_000))

    told = {min(a.set): a.why for a in advise(ask("qwen3-30b-a3b", "Q4_K_M", 8192), slow)}

    # 8 of 128 experts of what moves are read for a token
    assert "GiB) lie in host memory: each token reads" in told["cpu_moe_layers"]
    assert told["cpu_moe_layers"].endswith(" ms")


def test_of_layers_with_experts_in_host_memory_a_token_reads_the_used_ones_only() -> None:
    small = host(3 * 1024)

    told = {min(a.set): a.why for a in advise(ask("gpt-oss-120b", "MXFP4_MOE", 8192), small)}

    lie, read = re.findall(r"([\d.]+) GiB", told["gpu_layers"])
    assert float(read) < float(lie) / 8


@pytest.mark.parametrize("devices", [0, 1])
def test_a_draft_lies_beside_its_model(devices: int) -> None:
    draft = model_facts_from_record("llama3.2-1b", "Q8_0")
    alone = ask("llama3.1-8b", "Q4_K_M", 4096, devices=devices)

    pair = planned_memory(plan_memory(replace(alone, draft=draft)))
    both = [planned_memory(plan_memory(each)) for each in (alone, replace(alone, model=draft))]

    place = "GPU" if devices else "CPU"
    assert pair["kv"] == pytest.approx(sum(one["kv"] for one in both))
    assert pair[f"compute {place}"] == pytest.approx(
        sum(one[f"compute {place}"] for one in both), abs=0.6
    )

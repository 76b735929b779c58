"""The shipped records of well-known models: shapes, caches, sizes by quantisation, buffers.

`architectures.jsonl` holds one model a line, so that one is found and parsed without the
others. A record's figures come from llama.cpp's own reservations and from measured files;
`caches` are `[name, scope, layers, k_row, v_row, window, ratio]`, `states`
`[name, layers, f32 values]`, `quants` `[bytes, experts, token_embd, output]`, layers are
runs such as `0-4,6-10`.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fleet.errors import UserError
from fleet.facts.layer_kinds import MLA_ARCHS, ROLLBACK_ARCHS
from fleet.facts.model_facts import (
    CacheLayers,
    ComputeFigures,
    ComputeTable,
    ModelFacts,
    StateLayers,
    Weights,
    even_cache,
)
from fleet.shipped_files import shipped_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

RECORDS = "facts/architectures.jsonl"


@lru_cache(maxsize=1)
def record_lines() -> Mapping[str, str]:
    """Return the shipped records by id, not yet parsed."""
    lines = shipped_text(RECORDS).splitlines()
    return {line[7 : line.index('"', 7)]: line for line in lines}  # {"id":"NAME",...


@lru_cache(maxsize=128)
def model_facts_from_record(name: str, quant: str | None = None) -> ModelFacts:
    """Return the facts of a shipped architecture, with the weights of `quant` if given.

    Raises `UserError` with near names for an unknown architecture or quantisation.
    """
    line = record_lines().get(name)
    if line is None:
        raise UserError(
            f"`{name}` is not an architecture that fleet knows",
            fix=near(name, record_lines(), "`fleet list model`, or give the model's GGUF file"),
        )
    facts = facts_from_record(json.loads(line))
    return with_quant(facts, quant) if quant else facts


def with_quant(facts: ModelFacts, quant: str) -> ModelFacts:
    """Return the same model with the weights of one quantisation; `UserError` if unknown."""
    by_fold = {name.casefold(): name for name in facts.quants}
    known = by_fold.get(quant.casefold()) or by_fold.get(f"{quant}_moe".casefold())
    if known is None:
        hint = near(quant.upper(), facts.quants, f"known: {', '.join(sorted(facts.quants))}")
        raise UserError(f"the size of `{facts.name}` as `{quant}` is not known", fix=hint)
    return replace(facts, weights=facts.quants[known])


def with_known_compute(facts: ModelFacts) -> ModelFacts:
    """Return the facts of a file with the compute figures of the shipped record of its shape."""
    mark = f'"arch":"{facts.arch}"'
    for line in record_lines().values():
        if mark in line:
            record = facts_from_record(json.loads(line))
            if _shape(record) == _shape(facts):
                return replace(facts, compute=record.compute)
    return facts


def _shape(facts: ModelFacts) -> tuple[object, ...]:
    feed_forward = 0 if facts.n_expert else facts.n_ff
    rows = tuple((c.name, c.scope, len(c.layers), c.k_row, c.v_row) for c in facts.caches)
    states = tuple((len(s.layers), s.elements) for s in facts.states)
    width = (facts.n_layer, facts.n_embd, facts.n_head, facts.n_expert, feed_forward)
    return (*width, rows, states)


def near(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return a hint with the nearest known names, or `otherwise`."""
    close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    names = " or ".join(f"`{candidate}`" for candidate in close)
    return f"did you mean {names}?" if close else otherwise


def facts_from_record(record: Mapping[str, Any]) -> ModelFacts:
    """Build the facts from a parsed line; the shipped file is trusted."""
    rolls_back = record["arch"] in ROLLBACK_ARCHS
    states = tuple(
        StateLayers(name=name, layers=runs(layers), elements=elements, rolls_back=rolls_back)
        for name, layers, elements in record["states"]
    )
    caches = tuple(_cache(row) for row in record["caches"])
    recurrent = any(state.name == "recurrent" for state in states)
    plain = ("arch", "n_layer", "n_embd", "n_ctx_train", "n_vocab", "n_head", "n_head_kv")
    more = ("head_dim_k", "head_dim_v", "n_ff", "n_ff_exp", "n_expert", "n_expert_used", "n_swa")
    return ModelFacts(
        **{key: record[key] for key in (*plain, *more)},
        name=record["id"],
        source="record",
        is_mla=record["arch"] in MLA_ARCHS,
        is_recurrent=recurrent and not caches,
        is_hybrid=recurrent and bool(caches),
        caches=caches,
        states=states,
        compute=_compute(record.get("compute")),
        quants=_quants(record),
        params=record.get("params", (None,))[0],
    )


def runs(text: str) -> tuple[int, ...]:
    """Return the numbers of `0-4,6-10`."""
    numbers: list[int] = []
    for run in filter(None, text.split(",")):
        first, _, last = run.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return tuple(numbers)


def _cache(row: Sequence[Any]) -> CacheLayers:
    name, scope, layers, k_row, v_row, window, ratio = row
    return even_cache(name, scope, runs(layers), (k_row, v_row), window=window, ratio=ratio)


def _compute(figures: Mapping[str, Any] | None) -> ComputeFigures | None:
    if not figures or not figures["base"]:
        return None
    dense, cpu = figures.get("dense"), figures.get("cpu")
    return ComputeFigures(
        base=figures["base"],
        dequant=figures["dequant"],
        dense=(dense[0], dense[1]) if dense else None,
        hole=figures.get("hole", 0),
        no_flash=figures.get("no_flash", 0),
        variants={key: (pair[0], pair[1]) for key, pair in figures.get("variants", {}).items()},
        sequence=figures.get("sequence", 0),
        tables={_table_key(key): _table(rows) for key, rows in figures.get("tables", {}).items()},
        cpu=(tuple(cpu[0]), tuple(cpu[1])) if cpu else None,
    )


def _table_key(key: str) -> tuple[str, int]:
    kind, sequences = key.split("/")
    return kind, int(sequences)


def _table(rows: Sequence[Any]) -> ComputeTable:
    contexts, ubatches, values = rows
    return ComputeTable(
        contexts=tuple(contexts),
        ubatches=tuple(ubatches),
        values=tuple(tuple(row) for row in values),
    )


def _quants(record: Mapping[str, Any]) -> dict[str, Weights]:
    """All quantisations: from the quantizer's rules, and measured files over them."""
    tied, tables = record["tied"], record.get("host_tables", 0)
    rules = {
        name: Weights(
            quant=name,
            total=total,
            experts=experts,
            token_embd=token_embd,
            output=output,
            tied=tied,
            largest_experts=_expert_tensors(record, experts),
        )
        for name, (total, experts, token_embd, output) in record["quants"].items()
    }
    measured = {
        name: _scaled(name, size, rules, record, tables)
        for name, size in record["measured"].items()
        if name not in rules
    }
    return rules | measured


def _scaled(
    name: str, size: int, rules: Mapping[str, Weights], record: Mapping[str, Any], tables: int
) -> Weights:
    """Split a measured file's size in the proportions of the nearest rule."""
    if not rules:
        width = record["n_vocab"] * record["n_embd"]
        table = width * 34 // 32 if width * 34 // 32 < size else 0
        output = 0 if record["tied"] else table
        return Weights(
            quant=name, total=size, token_embd=table, output=output or table,
            tied=record["tied"], host_tables=tables,
        )  # fmt: skip
    nearest = min(rules.values(), key=lambda weights: abs(weights.total - size))
    experts = size * nearest.experts // nearest.total
    return replace(
        nearest,
        quant=name,
        total=size,
        experts=experts,
        host_tables=tables,
        largest_experts=_expert_tensors(record, experts),
    )


def _expert_tensors(record: Mapping[str, Any], experts: int) -> tuple[int, ...]:
    """Return the size of one expert tensor (gate, up or down of one layer), twice."""
    if not experts:
        return ()
    one = experts // (3 * record["n_layer"])
    return (one, one)

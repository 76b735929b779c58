"""Which launches a host is refused, and which may prove themselves beside what serves there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.compiler.compile_deployment import compile_deployment
from fleet.deploy.fit_hosts import check_fit_on_hosts, fits_beside, seen_by_head
from fleet.deploy.rollout import rehearsal_of
from fleet.errors import DoesNotFit
from fleet.facts.architecture_records import model_facts_from_record
from fleet.facts.host_facts import Gpu, HostFacts
from fleet.facts.known_builds import build_facts
from fleet.sizes import GIB, ByteSize
from support.deployments import HOSTS, deployment, launch

MODEL = model_facts_from_record("qwen2.5-7b", "Q4_K_M")  # 4.4 GiB


def host(name: str, gib: int, **known: object) -> HostFacts:
    return HostFacts(
        name=name, cores=4, cpus=(0, 1, 2, 3), probed=True,
        memory_total=ByteSize(gib * GIB), **known,
    )  # fmt: skip


def card(gib: int, **known: object) -> Gpu:
    return Gpu(name="card", backend="cuda", memory=ByteSize(gib * GIB), **known)


NEW = launch({"ctx_size": 8192, "parallel": 1, "cache_ram": 0})


def test_the_error_names_the_host_that_is_too_small() -> None:
    wanted = deployment(
        {"ctx_size": 8192, "parallel": 1}, topology="replicas", hosts=HOSTS, runtime="ansible"
    )
    facts = {"a": host("a", 16), "b": host("b", 2)}
    made = compile_deployment(
        wanted, hosts=facts, model=MODEL, build=build_facts("llama.cpp", None)
    )

    with pytest.raises(DoesNotFit, match="it does not fit") as told:
        check_fit_on_hosts(made, MODEL, facts)

    assert told.value.where == "test/server on b"
    check_fit_on_hosts(made, MODEL, {**facts, "b": host("b", 16)})


@pytest.mark.parametrize(("head", "worker", "fits"), [(4, 4, True), (4, 1, False), (1, 4, False)])
def test_a_pair_holds_what_neither_holds_alone(head: int, worker: int, *, fits: bool) -> None:
    wanted = deployment(
        {"ctx_size": 2048, "parallel": 1, "cache_ram": 0}, topology="rpc", hosts=HOSTS,
        runtime="ansible",
    )  # fmt: skip
    facts = {"a": host("a", head), "b": host("b", worker)}
    made = compile_deployment(
        wanted, hosts=facts, model=MODEL, build=build_facts("llama.cpp", None)
    )

    if fits:
        check_fit_on_hosts(made, MODEL, facts)
    else:
        with pytest.raises(DoesNotFit, match="needs"):
            check_fit_on_hosts(made, MODEL, facts)


def test_a_head_sees_its_own_devices_first_and_what_its_workers_lend() -> None:
    unified = card(128, unified=True)
    spark = host("spark", 119, gpus=(unified,))

    seen = seen_by_head(spark, [replace(spark, name="other")])

    assert [(gpu.unified, int(gpu.memory) // GIB) for gpu in seen.gpus] == [
        (True, 128),
        (False, 119),
    ]


@pytest.mark.parametrize(
    ("there", "beside"),
    [
        (host("h", 32, memory_available=ByteSize(20 * GIB)), True),
        (host("h", 32, memory_available=ByteSize(2 * GIB)), False),  # others took it
        (host("h", 8), False),
        (HostFacts(name="h", cores=4, cpus=(0,)), False),  # not known
        (host("h", 32, gpus=(card(24, free=ByteSize(18 * GIB)),)), True),
        (host("h", 32, gpus=(card(24, free=ByteSize(3 * GIB)),)), False),
        (host("h", 32, gpus=(card(8),)), False),
        (host("h", 32, gpus=(card(32, unified=True),)), True),
        (host("h", 8, gpus=(card(8, unified=True),)), False),
    ],
)
def test_a_version_proves_itself_beside_the_old_one_only_where_both_fit(
    there: HostFacts, *, beside: bool
) -> None:
    assert fits_beside(NEW, NEW, model=MODEL, host=there) is beside


def test_what_needs_another_server_or_another_key_is_not_tried_beside() -> None:
    there = host("h", 64)

    assert fits_beside(NEW, NEW, model=MODEL, host=there)
    assert not fits_beside(replace(NEW, depends_on=("w",)), NEW, model=MODEL, host=there)
    assert not fits_beside(replace(NEW, model_path="/other"), NEW, model=MODEL, host=there)
    assert not fits_beside(replace(NEW, engine="vllm"), NEW, model=MODEL, host=there)


def test_a_rehearsal_has_a_name_and_a_port_of_its_own() -> None:
    tried = rehearsal_of(NEW, 41234)

    assert tried.container_name == f"{NEW.container_name}-next"
    assert tried.argv[tried.argv.index("--port") + 1] == "41234"
    assert tried.port == 41234
    assert replace(tried, server=NEW.server, port=NEW.port, argv=NEW.argv) == NEW

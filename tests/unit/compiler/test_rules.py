"""What must hold between settings, model and host."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleet.compiler.compile_deployment import compile_deployment
from fleet.compiler.dialects import embedded, ik_llama_cpp, llama_cpp, vllm
from fleet.errors import UserError
from fleet.facts.host_facts import NumaNode
from fleet.facts.known_builds import build_facts
from fleet.profiles.kinds import Tls
from fleet.profiles.settings_table import SETTINGS
from fleet.sizes import GIB, ByteSize
from support.deployments import HERE, HOSTS, WITH_CUDA, deployment, launch, launches, value_of

if TYPE_CHECKING:
    from types import ModuleType

    from fleet.facts.host_facts import HostFacts

pytestmark = pytest.mark.pure


@pytest.mark.parametrize("dialect", [llama_cpp, ik_llama_cpp, vllm, embedded])
def test_the_table_of_words_has_no_setting_that_there_is_not(dialect: ModuleType) -> None:
    assert dialect.WORDS.keys() <= SETTINGS.keys()


def test_every_setting_can_be_said_to_some_engine() -> None:
    said = {*llama_cpp.WORDS, *ik_llama_cpp.WORDS, *vllm.WORDS}

    assert said == set(SETTINGS)


@pytest.mark.parametrize("architecture", ["deepseek-v3.2", "kimi-k2", "deepseek-v4-flash"])
def test_one_latent_takes_one_type(architecture: str) -> None:
    both = launch({"cache_type_k": "q8_0"}, build="b11549", architecture=architecture)

    assert value_of(both, "--cache-type-v") == "q8_0"
    with pytest.raises(UserError, match="one type"):
        launch(
            {"cache_type_k": "q8_0", "cache_type_v": "f16"},
            build="b11549", architecture=architecture,
        )  # fmt: skip


def test_it_took_two_before() -> None:
    types = {"cache_type_k": "q8_0", "cache_type_v": "f16"}

    assert launch(types, build="b10142", architecture="deepseek-v3.2")


def test_a_quantized_v_needs_flash_attention() -> None:
    with pytest.raises(UserError, match="flash attention"):
        launch({"cache_type_v": "q8_0", "flash_attention": "off"}, build="b11549")
    assert value_of(launch({"cache_type_v": "q8_0"}, build="b11549"), "-fa") == "on"


@pytest.mark.parametrize(("k", "v"), [("q8_0", "f16"), ("q5_1", "q5_1"), ("iq4_nl", "iq4_nl")])
def test_cuda_takes_only_pairs_with_a_kernel(k: str, v: str) -> None:
    with pytest.raises(UserError, match="CUDA"):
        launch({"cache_type_k": k, "cache_type_v": v}, build="b11549", host=WITH_CUDA)


def test_a_context_beyond_training_is_refused() -> None:
    with pytest.raises(UserError, match="trained"):
        launch({"ctx_size": 65536}, build="b11549", architecture="gemma3-270m")
    stretched = {"ctx_size": 65536, "rope_scaling": "yarn", "rope_scale": 2}
    assert launch(stretched, build="b11549", architecture="gemma3-270m")
    with pytest.raises(UserError, match="32768"):
        launch(stretched, build="b10434", architecture="gemma3-270m")
    assert launch({"ctx_size": 65536, "parallel": 2}, build="b11549", architecture="gemma3-270m")


@pytest.mark.parametrize("build", ["b8672", "b11549"])
def test_a_template_by_name_is_read_with_jinja_off(build: str) -> None:
    assert "--no-jinja" in launch({"chat_template": "gemma"}, build=build).argv
    assert "--jinja" in launch({"chat_template": "{{ messages }}"}, build=build).argv
    assert "--jinja" in launch({"chat_template": "chatml"}, build=build).argv
    with pytest.raises(UserError, match="jinja off"):
        launch({"chat_template": "gemma", "jinja": True}, build=build)


def test_a_draft_kind_needs_a_draft() -> None:
    with pytest.raises(UserError, match="draft model"):
        launch({"speculation": "draft-simple"}, build="b11549")
    with pytest.raises(UserError, match="several tokens"):
        launch({"speculation": "draft-mtp"}, build="b11549", architecture="gemma3-270m")


def test_cached_prompts_stay_within_the_memory_limit() -> None:
    limit = ByteSize(4 * GIB)

    bounded = launch({}, build="b11549", memory_limit=limit)

    assert int(value_of(bounded, "--cache-ram") or 0) <= 1024
    with pytest.raises(UserError, match="memory limit"):
        launch({"cache_ram": 8192}, build="b11549", memory_limit=limit)


def test_a_public_address_needs_a_key() -> None:
    with pytest.raises(UserError, match="API key"):
        launch({}, build="b11549", bind="0.0.0.0")  # noqa: S104 - refused
    config = launch({}, build="b11549", bind="192.168.1.5", api_key=True)

    assert value_of(config, "--api-key-file") == config.secrets[0].target
    assert "--api-key" not in config.argv


def test_a_container_listens_inside_and_is_published_on_the_address() -> None:
    config = launch({}, build="b11549", port=9000)

    assert (value_of(config, "--host"), value_of(config, "--port")) == ("0.0.0.0", "9000")  # noqa: S104
    assert (config.bind, config.port, config.network) == ("127.0.0.1", 9000, "bridge")
    plain = launch({}, engine="embedded", build="b11549")
    assert value_of(plain, "--host") == "127.0.0.1"


def test_certificates_are_mounted() -> None:
    config = launch({}, build="b11549", tls=Tls(cert_file="/etc/c.pem", key_file="/etc/k.pem"))

    sources = {mount.target: mount.source for mount in config.mounts}
    assert sources[str(value_of(config, "--ssl-key-file"))] == "/etc/k.pem"


def test_threads_stay_within_cpuset_and_quota() -> None:
    assert value_of(launch({}, build="b11549", host=replace(HERE, cpu_quota=3.5)), "-t") == "3"
    clamped = launch({"threads": 64, "cpuset": "0-3"}, build="b11549")
    assert value_of(clamped, "-t") == "4"
    assert "threads-clamped" in [warning.code for warning in clamped.warnings]


def test_reserved_cores_are_left_alone() -> None:
    assert value_of(launch({}, build="b11549", hardware={"reserved_cores": 3}), "-t") == "13"


def test_few_threads_when_the_gpu_does_it_all() -> None:
    assert value_of(launch({}, build="b11549", host=WITH_CUDA), "-t") == "4"
    assert value_of(launch({"cpu_moe_layers": 20}, build="b11549", host=WITH_CUDA), "-t") == "16"


TWO_NODES = replace(
    HERE,
    numa_nodes=(
        NumaNode(index=0, cpus=tuple(range(8))),
        NumaNode(index=1, cpus=tuple(range(8, 16))),
    ),
)


def test_a_cpuset_brings_the_memory_beside_it() -> None:
    config = launch({"cpuset": "8-15", "numa": "numactl"}, build="b11549", host=TWO_NODES)

    assert (config.cpuset, config.cpuset_mems, config.caps) == ("8-15", "1", ("SYS_NICE",))


def test_sys_nice_only_where_it_is_needed() -> None:
    assert launch({}, build="b11549").caps == ()
    assert launch({"prio": 1}, build="b11549").caps == ("SYS_NICE",)
    assert launch({"numa": "distribute"}, build="b11549").caps == ("SYS_NICE",)


def test_warns_of_nodes_that_are_not_used_and_of_balancing() -> None:
    codes = [it.code for it in launch({}, build="b11549", host=TWO_NODES).warnings]
    assert codes == ["numa-off"]
    balancing = replace(TWO_NODES, numa_balancing=True)
    config = launch({"numa": "distribute"}, build="b11549", host=balancing)
    assert [it.code for it in config.warnings] == ["numa-balancing"]


@pytest.mark.parametrize("cpuset", ["a", "5-2", "0-99", "-1"])
def test_refuses_a_cpuset_that_is_not_there(cpuset: str) -> None:
    with pytest.raises(UserError, match="cpuset"):
        launch({"cpuset": cpuset}, build="b11549")


def test_the_same_input_gives_the_same_digest() -> None:
    one, two = launch({"threads": 4}, build="b11549"), launch({"threads": 4}, build="b11549")

    assert one == two
    assert one.digest == two.digest
    assert launch({"threads": 5}, build="b11549").digest != one.digest


def test_rpc_workers_come_first_and_stay_on_the_fabric() -> None:
    worker, head = launches({}, build="b11549", hosts=HOSTS, topology="rpc")

    assert (worker.role, worker.bind, worker.port) == ("rpc-worker", "10.0.0.2", 50052)
    assert worker.program == "ggml-rpc-server"
    assert head.depends_on == (worker.server,)
    assert value_of(head, "--rpc") == "10.0.0.2:50052"
    assert value_of(head, "--device") == "RPC0"
    assert "rpc-open" in [warning.code for warning in worker.warnings]


@pytest.mark.parametrize(
    ("head", "worker", "layers", "warned"),
    [
        (HERE, HERE, "30", True),  # each CPU its share
        (HERE, WITH_CUDA, "all", False),  # no layer waits for the head's CPU
        (WITH_CUDA, HERE, "all", False),
        (WITH_CUDA, WITH_CUDA, "all", False),
    ],
)
def test_a_head_without_an_accelerator_leaves_the_layers_to_who_has_one(
    head: HostFacts, worker: HostFacts, layers: str, warned: bool
) -> None:
    wanted = deployment({}, architecture="deepseek-v3.2", hosts=HOSTS, topology="rpc")
    _, compiled = compile_deployment(
        wanted, hosts={"a": head, "b": worker}, model=None,
        build=build_facts("llama.cpp", "b11549"),
    )  # fmt: skip

    assert value_of(compiled, "-ngl", "--gpu-layers", "--n-gpu-layers") == layers
    said = [each.message for each in compiled.warnings if each.code == "rpc-layers"]
    assert bool(said) is warned
    assert all("stay on the head's CPU" in each for each in said)


@pytest.mark.parametrize("address", [None, "0.0.0.0", "::"])  # noqa: S104 - refused
def test_rpc_on_every_network_is_refused(address: str | None) -> None:
    hosts = (HOSTS[0], replace(HOSTS[1], fabric_address=address))
    with pytest.raises(UserError):
        launches({}, build="b11549", hosts=hosts, topology="rpc")


def test_vllm_over_two_hosts() -> None:
    worker, head = launches(
        {"prefix_retention_interval": 1024, "reasoning": "off", "parallel": 4},
        engine="vllm", hosts=HOSTS, topology="tensor-parallel", bind="10.0.0.1", api_key=True,
    )  # fmt: skip

    assert "--headless" in worker.argv
    assert "--headless" not in head.argv
    assert value_of(head, "--tensor-parallel-size") == "2"
    assert value_of(worker, "--node-rank") == "1"
    assert value_of(worker, "--master-addr") == "10.0.0.1"
    assert dict(head.env)["NCCL_SOCKET_IFNAME"] == "eth1"
    assert value_of(head, "--max-num-seqs") == "4"
    assert '"thinking": false' in str(value_of(head, "--default-chat-template-kwargs"))
    assert (head.secrets[0].kind, head.secrets[0].target) == ("env", "VLLM_API_KEY")
    assert worker.secrets == ()


def test_vllms_interval_is_a_flag_or_a_variable() -> None:
    new = launch({"prefix_retention_interval": 2048}, engine="vllm", build="0.33.0")
    old = launch({"prefix_retention_interval": 2048}, engine="vllm", build="0.29.0")

    assert value_of(new, "--prefix-cache-retention-interval") == "2048"
    assert dict(old.env) == {"VLLM_PREFIX_CACHE_RETENTION_INTERVAL": "2048"}
    with pytest.raises(UserError, match="multiple"):
        launch({"prefix_retention_interval": 1000}, engine="vllm")


def test_hosts_need_a_topology() -> None:
    with pytest.raises(UserError, match="several hosts"):
        launches({}, build="b11549", hosts=HOSTS)
    assert len(launches({}, build="b11549", hosts=HOSTS, topology="replicas")) == 2


def test_a_missing_host_is_taken_from_its_profile() -> None:
    wanted = deployment({}, hardware={"cores": 6, "threads": 12, "reserved_cores": 1})

    (config,) = compile_deployment(
        wanted, hosts={}, model=None, build=build_facts("llama.cpp", "b11549")
    )

    assert value_of(config, "-t") == "5"

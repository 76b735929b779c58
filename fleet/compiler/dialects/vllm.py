"""`vllm serve`: the settings that mean something there, in its own words.

`ctx_size` is the longest request, `parallel` the requests at once (llama.cpp divides the
first by the second). A model over several hosts: every node runs the same command with its
rank, all but the first headless (executor `mp`, which `--nnodes` needs).
"""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from fleet.compiler.dialects.spelling import Settings, Spelled, as_word, cannot_express
from fleet.compiler.dialects.template_words import template_words
from fleet.errors import CannotExpress, UserError
from fleet.facts.known_builds import VLLM_ENV

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.facts.build_facts import BuildFacts

PROGRAM = "vllm"
MASTER_PORT = 29501
_SCHEDULER_BLOCK = 16  # tokens of a block unless `block_size` says otherwise
_OWN = frozenset(
    [
        "--model",
        "--host",
        "--port",
        "--api-key",
        "--hf-token",
        "--nnodes",
        "--node-rank",
        "--master-addr",
        "--master-port",
        "--headless",
        "--ssl-keyfile",
        "--ssl-certfile",
    ]
)
DANGEROUS_OPTIONS = frozenset(
    [
        "--trust-remote-code",
        "--allowed-local-media-path",
        "--enable-offline-docs",
        "--tool-server",
        # these name Python code to run
        "--middleware",
        "--tool-parser-plugin",
        "--reasoning-parser-plugin",
        "--io-processor-plugin",
        "--logits-processors",
        "--worker-cls",
        "--worker-extension-cls",
    ]
)

_VALUES: Mapping[str, str] = MappingProxyType(
    {
        "alias": "--served-model-name",
        "ctx_size": "--max-model-len",
        "max_num_seqs": "--max-num-seqs",
        "max_num_batched_tokens": "--max-num-batched-tokens",
        "tensor_parallel": "--tensor-parallel-size",
        "pipeline_parallel": "--pipeline-parallel-size",
        "gpu_memory_utilization": "--gpu-memory-utilization",
        "kv_cache_dtype": "--kv-cache-dtype",
        "block_size": "--block-size",
        "dtype": "--dtype",
        "quantization": "--quantization",
        "prefix_match_unit": "--prefix-match-unit",
        "mamba_cache_mode": "--mamba-cache-mode",
        "speculative_config": "--speculative-config",
        "reasoning_parser": "--reasoning-parser",
        "tool_call_parser": "--tool-call-parser",
        "tokenizer_mode": "--tokenizer-mode",
        "kv_offload_gib": "--kv-offloading-size",
        "seed": "--seed",
        "chat_template_file": "--chat-template",
    }
)
_SWITCHES: Mapping[str, str] = MappingProxyType(
    {
        "prefix_caching": "--enable-prefix-caching",
        "chunked_prefill": "--enable-chunked-prefill",
        "expert_parallel": "--enable-expert-parallel",
        "async_scheduling": "--async-scheduling",
        "enforce_eager": "--enforce-eager",
        "swa_bounded_replay": "--swa-bounded-replay",
        "trust_remote_code": "--trust-remote-code",
        "prompt_tokens_details": "--enable-prompt-tokens-details",
    }
)
_SAMPLING = MappingProxyType(
    {
        "temperature": "temperature",
        "top_k": "top_k",
        "top_p": "top_p",
        "min_p": "min_p",
        "repeat_penalty": "repetition_penalty",
        "presence_penalty": "presence_penalty",
        "frequency_penalty": "frequency_penalty",
        "n_predict": "max_new_tokens",
    }
)
# written for llama.cpp in shared profiles; vLLM does these things its own way
_ELSEWHERE = frozenset(
    [
        "parallel",
        "cpuset",
        "cpuset_mems",
        "shm_size",
        "network",
        "reasoning",
        "chat_template_kwargs",
        "threads",
        "threads_batch",
        "flash_attention",
        "jinja",
        "metrics",
        "slots",
        "cache_prompt",
        "cont_batching",
        "numa",
        "fit",
        "gpu_layers",
        "warmup",
        "log_verbosity",
        "master_port",
        "nccl_ib_hca",
        "nccl_ib_gid_index",
        "load_mode",
        "prefix_retention_interval",
    ]
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Nodes:
    """Where this node stands among those of one model."""

    count: int = 1
    rank: int = 0
    master: str | None = None  # fabric address of the first
    interface: str | None = None
    devices: tuple[str, ...] = ()  # InfiniBand devices of this host


@dataclass(frozen=True, kw_only=True, slots=True)
class VllmWish:
    """What is to be said to `vllm serve`."""

    settings: Settings
    build: BuildFacts
    model_path: str
    listen: str
    port: int
    nodes: Nodes
    tls_files: tuple[str, str] | None = None
    extra_args: tuple[str, ...] = ()


def spell(wish: VllmWish) -> Spelled:
    """Return the argument list (without the program), variables, warnings.

    Raises `CannotExpress` for settings without meaning in vLLM.
    """
    spelled = Spelled()
    settings, nodes = dict(wish.settings), wish.nodes
    spelled.argv += ["serve", wish.model_path]
    if nodes.rank == 0:
        spelled.argv += ["--host", wish.listen, "--port", str(wish.port)]
        if wish.tls_files:
            certificate, key = wish.tls_files
            spelled.argv += ["--ssl-certfile", certificate, "--ssl-keyfile", key]
    if "parallel" in settings:
        settings.setdefault("max_num_seqs", settings["parallel"])
    for name, value in settings.items():
        _say_one(spelled, wish.build, name, value)
    _say_sampling(spelled, settings)
    _say_template(spelled, settings)
    _say_retention(spelled, wish)
    if nodes.count > 1:
        _say_nodes(spelled, wish)
    spelled.argv += _checked_extra(wish)
    return spelled


def _say_one(spelled: Spelled, build: BuildFacts, name: str, value: str | float) -> None:
    if name in _VALUES:
        _known(build, name, _VALUES[name])
        spelled.argv += [_VALUES[name], as_word(value)]
    elif name in _SWITCHES:
        _known(build, name, _SWITCHES[name])
        spelled.argv.append(_SWITCHES[name] if value else _denied(_SWITCHES[name]))
    elif name not in _ELSEWHERE and name not in _SAMPLING:
        raise cannot_express(build, name, ())


def knows(setting: str) -> bool:
    """Whether the setting means something to vLLM, said or done its own way."""
    return any(setting in known for known in (_VALUES, _SWITCHES, _SAMPLING, _ELSEWHERE))


def _denied(option: str) -> str:
    return "--no-" + option.removeprefix("--")


def _known(build: BuildFacts, setting: str, option: str) -> None:
    if option not in build:
        raise cannot_express(build, setting, ())


def _say_sampling(spelled: Spelled, settings: Settings) -> None:
    wanted = {key: settings[name] for name, key in _SAMPLING.items() if name in settings}
    if wanted:
        spelled.argv += ["--override-generation-config", json.dumps(wanted)]


def _say_template(spelled: Spelled, settings: Settings) -> None:
    """Thinking is an argument of the template; DeepSeek's and Qwen's names for it differ."""
    kwargs = template_words(str(settings.get("chat_template_kwargs") or ""))
    if settings.get("reasoning") in {"on", "off"}:
        thinks = settings["reasoning"] == "on"
        kwargs = {"thinking": thinks, "enable_thinking": thinks, **kwargs}
    if kwargs:
        spelled.argv += ["--default-chat-template-kwargs", json.dumps(kwargs)]


def _say_retention(spelled: Spelled, wish: VllmWish) -> None:
    """Say the interval: a flag since 0.30.0, a variable before."""
    value = wish.settings.get("prefix_retention_interval")
    if value is None:
        return
    block = int(wish.settings.get("block_size", _SCHEDULER_BLOCK))
    if int(value) % block:
        message = f"`{value}` is no multiple of the block of {block} tokens"
        fix = f"use `{int(value) // block * block or block}`"
        raise UserError(message, where="prefix_retention_interval", fix=fix)
    if "--prefix-cache-retention-interval" in wish.build:
        spelled.argv += ["--prefix-cache-retention-interval", str(value)]
    elif VLLM_ENV in wish.build:
        spelled.env[VLLM_ENV] = str(value)
    else:
        raise cannot_express(wish.build, "prefix_retention_interval", ())


def _say_nodes(spelled: Spelled, wish: VllmWish) -> None:
    nodes, settings = wish.nodes, wish.settings
    if not nodes.master or not nodes.interface:
        fix = "give `fabric_address` and `fabric_interface` of every host"
        raise UserError("nodes need a fabric to meet on", where="hosts", fix=fix)
    port = str(settings.get("master_port", MASTER_PORT))
    spelled.argv += ["--distributed-executor-backend", "mp", "--nnodes", str(nodes.count)]
    spelled.argv += ["--node-rank", str(nodes.rank), "--master-addr", nodes.master]
    spelled.argv += ["--master-port", port]
    if nodes.rank:
        spelled.argv.append("--headless")
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"):
        spelled.env[name] = nodes.interface
    devices = str(settings.get("nccl_ib_hca") or ",".join(nodes.devices))
    if devices:
        spelled.env["NCCL_IB_HCA"] = devices
    if "nccl_ib_gid_index" in settings:
        spelled.env["NCCL_IB_GID_INDEX"] = str(settings["nccl_ib_gid_index"])


def _checked_extra(wish: VllmWish) -> tuple[str, ...]:
    for word in wish.extra_args:
        name = word.partition("=")[0]
        if not name.startswith("--"):
            continue
        if name in _OWN:
            fix = "use the keys of the deployment (`port`, `bind`, `api_key`, `tls`)"
            raise UserError("fleet sets this option itself", where=f"extra_args {name}", fix=fix)
        plain = name.replace("--no-", "--", 1)
        if name not in wish.build and plain not in wish.build:
            near = difflib.get_close_matches(name, wish.build.flags, n=1)
            fix = f"did you mean `{near[0]}`?" if near else "see `vllm serve --help`"
            message = f"vllm {wish.build.name} does not know this option"
            raise CannotExpress(message, where=f"extra_args {name}", fix=fix)
    return wish.extra_args

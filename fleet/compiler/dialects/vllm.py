"""`vllm serve`: the settings that mean something there, in its own words.

`ctx_size` is the longest request, `parallel` the requests at once (llama.cpp divides the
first by the second). A model over several hosts: every node runs the same command with its
rank, all but the first headless (executor `mp`, which `--nnodes` needs).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from fleet.compiler.dialects.spelling import (
    Settings,
    Spelled,
    Value,
    Wish,
    as_word,
    cannot_express,
    check_extra_args,
    known_name,
    template_words,
    words_of,
)
from fleet.errors import UserError
from fleet.facts.known_builds import VLLM_ENV

if TYPE_CHECKING:
    from fleet.facts.build_facts import BuildFacts

WORDS = words_of("vllm")
PROGRAM = "vllm"
MASTER_PORT = 29501
_SCHEDULER_BLOCK = 16  # tokens of a block unless `block_size` says otherwise
_OWN = frozenset([
    "--model", "--host", "--port", "--api-key", "--hf-token", "--nnodes", "--node-rank",
    "--master-addr", "--master-port", "--headless", "--ssl-keyfile", "--ssl-certfile",
])  # fmt: skip
# from `--middleware` on they name Python code to run
DANGEROUS_OPTIONS = frozenset([
    "--trust-remote-code", "--allowed-local-media-path", "--enable-offline-docs", "--tool-server",
    "--middleware", "--tool-parser-plugin", "--reasoning-parser-plugin", "--io-processor-plugin",
    "--logits-processors", "--worker-cls", "--worker-extension-cls",
])  # fmt: skip

_SAMPLING = {
    "temperature": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p",
    "repeat_penalty": "repetition_penalty", "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty", "n_predict": "max_new_tokens",
}  # fmt: skip


def spell(wish: Wish) -> Spelled:
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
    spelled.argv += check_extra_args(wish.extra_args, wish.build, _OWN)
    return spelled


def _say_one(spelled: Spelled, build: BuildFacts, name: str, value: str | float) -> None:
    row = WORDS[name] if name in WORDS else Value(())
    if row is None:
        return
    if known_name(build, row.names) is None:
        raise cannot_express(build, name)
    option = row.names[0]
    if isinstance(row, Value):
        spelled.argv += [option, as_word(value)]
    else:
        spelled.argv.append(option if value else "--no-" + option.removeprefix("--"))


def knows(setting: str) -> bool:
    """Whether the setting means something to vLLM, said or done its own way."""
    return setting in WORDS


def _say_sampling(spelled: Spelled, settings: Settings) -> None:
    wanted = {key: settings[name] for name, key in _SAMPLING.items() if name in settings}
    if wanted:
        spelled.argv += ["--override-generation-config", json.dumps(wanted)]


def _say_template(spelled: Spelled, settings: Settings) -> None:
    """Thinking is an argument of the template; DeepSeek's and Qwen's names for it differ."""
    kwargs = template_words(settings)
    if settings.get("reasoning") in {"on", "off"}:
        thinks = settings["reasoning"] == "on"
        kwargs = {"thinking": thinks, "enable_thinking": thinks, **kwargs}
    if kwargs:
        spelled.argv += ["--default-chat-template-kwargs", json.dumps(kwargs)]


def _say_retention(spelled: Spelled, wish: Wish) -> None:
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
        raise cannot_express(wish.build, "prefix_retention_interval")


def _say_nodes(spelled: Spelled, wish: Wish) -> None:
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

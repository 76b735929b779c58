"""The text of a deployment file to go on from."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from fleet.errors import UserError
from fleet.profiles.kind_tables import FORMAT_VERSION, NAME_TEXT
from fleet.profiles.kinds import HardwareProfile, ModelProfile
from fleet.profiles.model_file import is_model
from fleet.profiles.parse_profile import parse_profile
from fleet.profiles.reading import Mistake

if TYPE_CHECKING:
    from fleet.profiles.library import ProfileLibrary

_PLAIN = re.compile(r"[\w/][\w./:+~-]*")  # what YAML reads as it stands
_ENGINE_OF = {"cuda": "llama.cpp-cuda", "vulkan": "llama.cpp-vulkan", "rocm": "llama.cpp-vulkan"}

_TEMPLATE = """\
# {name}: {model} on {hardware}.
# `fleet validate` checks this file, `fleet show {name} --why` says where each setting
# comes from, `fleet schema deployment` lists every key, `fleet up {name}` starts it.
kind: deployment
version: {version}
name: {name}
hardware: {hardware}
model: {model}
engine: {engine}{container_engine}

# The requests to tune and bench for: chat, resident, long-read, agent.
workload: chat

# settings:
#   ctx_size: 16384      # tokens of all slots together
#   parallel: 1          # slots: requests answered at once
#   cache_type_k: q8_0   # half the KV cache of f16
#   cache_type_v: q8_0

# What no tuned profile may change:
# pinned:
#   threads: 8

# Hosts over SSH; without them it runs on this machine:
# hosts:
#   - user@host

# port: 8080
# bind: 127.0.0.1        # any other address needs an API key, see `fleet key {name}`
"""


def new_deployment(library: ProfileLibrary, *, name: str, model: str, hardware: str) -> str:
    """Return the YAML of a new deployment with the usual next steps as comments.

    The engine is chosen by the hardware. Raises `UserError` for an unknown model or
    hardware and for a name that no deployment may have.
    """
    try:
        NAME_TEXT.read_text(name)
    except Mistake as mistake:
        raise UserError(mistake.message, where="NAME", fix=mistake.fix) from None
    machine = library.find(HardwareProfile, hardware, where="--on")
    if not is_model(model):
        library.find(ModelProfile, model, where="--model")
    engine, container_engine = _engines(machine)
    text = _TEMPLATE.format(
        name=name,
        model=model if _PLAIN.fullmatch(model) else json.dumps(model, ensure_ascii=False),
        hardware=hardware,
        engine=engine,
        container_engine=f"\ncontainer_engine: {container_engine}" if container_engine else "",
        version=FORMAT_VERSION,
    )
    parse_profile(text, file=name)
    return text


def _engines(machine: HardwareProfile) -> tuple[str, str | None]:
    """Return the engine for that hardware, and the one in containers when another."""
    if machine.probe:
        return "embedded", "llama.cpp"
    backends = {gpu.backend for gpu in machine.gpus}
    for backend, engine in _ENGINE_OF.items():
        if backend in backends:
            return engine, None
    return "llama.cpp", None

"""A deployment for a model that no profile names: a GGUF file or a repository's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fleet.errors import UserError
from fleet.profiles.kinds import DeploymentProfile, ModelProfile, Place
from fleet.profiles.rules import RESERVED

if TYPE_CHECKING:
    from collections.abc import Callable

HUGGING_FACE = "hf:"
_REPO = re.compile(r"hf:([\w.-]+/[\w.-]+?)(?::([\w.-]+))?")
_SPLIT = re.compile(r"-\d{5}-of-\d{5}$")
_LONGEST_NAME = 48


def is_model(word: str) -> bool:
    """Whether `word` names a model rather than a deployment."""
    return word.startswith(HUGGING_FACE) or word.lower().endswith(".gguf")


def model_of(word: str) -> ModelProfile:
    """Return the model that `path/to/model.gguf` or `hf:ORG/REPO:QUANT` names.

    Raises `UserError` for a malformed repository. The file is not looked at.
    """
    place = Place(file=word, line=0)
    if not word.startswith(HUGGING_FACE):
        stem = word.replace("\\", "/").rsplit("/", 1)[-1][: -len(".gguf")]
        return ModelProfile(name=_name(_SPLIT.sub("", stem)), place=place, path=word)
    match = _REPO.fullmatch(word)
    if match is None:
        message = f"`{word}` names no repository"
        raise UserError(message, fix="write `hf:ORG/REPO:QUANT`, such as `hf:org/name-GGUF:Q4_K_M`")
    repo, quant = match[1], match[2]
    stem = re.sub(r"-gguf$", "", repo.split("/")[1], flags=re.IGNORECASE)
    name = _name(f"{stem}-{quant}" if quant else stem)
    return ModelProfile(name=name, place=place, repo=repo, quant=quant)


def deployment_of(word: str, *, taken: Callable[[str], bool]) -> DeploymentProfile:
    """Return a deployment of the model that `word` names, on this machine's own hardware.

    It is called like the model; a name that is `taken` or reserved gets `-gguf` behind it.
    """
    model = model_of(word)
    free = model.name not in RESERVED and not taken(model.name)
    return DeploymentProfile(
        name=model.name if free else f"{model.name}-gguf",
        place=model.place,
        hardware="auto",
        model=word,
        engine="embedded",
        container_engine="llama.cpp",
    )


def _name(stem: str) -> str:
    """Return `stem` as a name that containers may have."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:_LONGEST_NAME]
    return name or "model"

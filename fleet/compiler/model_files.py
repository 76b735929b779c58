"""Where a model's files lie on a host, and where the server sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet.compiler.launch_config import Mount

if TYPE_CHECKING:
    from fleet.profiles.kinds import Deployment, ModelProfile

MODELS_TARGET = "/models"
DRAFT_TARGET = "/draft"
WRITTEN = frozenset({"slot_save_path", "lookup_cache_dynamic"})  # paths that the server writes to


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """A path as the server sees it, and the mount that brings it there."""

    path: str
    mounts: tuple[Mount, ...] = ()


def model_path_on_host(model: ModelProfile, models_dir: str, *, whole_folder: bool = False) -> str:
    """Return the first file of `model` on the host, or its folder for engines that read one.

    Fetched models lie in `<models_dir>/<name>/`; a quantisation named without files is
    known by its own name until it is fetched.
    """
    if model.path:
        return model.path
    folder = f"{models_dir}/{model.name}"
    if whole_folder:
        return folder
    if model.files:
        return f"{folder}/{model.files[0].name}"
    return (
        f"{folder}/{model.name}-{model.quant}.gguf"
        if model.quant
        else f"{folder}/{model.name}.gguf"
    )


def draft_path_on_host(deployment: Deployment, models_dir: str) -> str | None:
    """Return the draft model's file on the host; a setting wins over the model's own."""
    chosen = deployment.settings.get("draft_model")
    if chosen is not None and chosen.value:
        return str(chosen.value)
    model = deployment.model
    if model.draft_path:
        return model.draft_path
    if model.draft_repo and model.draft_file:
        return f"{models_dir}/{model.name}/draft/{model.draft_file}"
    return None


def seen_from(path: str, target: str, *, contained: bool, whole_folder: bool = False) -> Seen:
    """Return `path` for a server of this machine, or mounted read-only under `target`."""
    if not contained:
        return Seen(path=path)
    if whole_folder:
        return Seen(path=target, mounts=(Mount(source=path, target=target),))
    folder, _, file = path.rpartition("/")
    return Seen(path=f"{target}/{file}", mounts=(Mount(source=folder or ".", target=target),))

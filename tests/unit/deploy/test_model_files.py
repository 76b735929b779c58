"""Where a fetched model lies: asking finds what fetching made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.cli.load import load_deployment
from fleet.deploy import model_files
from fleet.deploy.model_files import ensure_model, find_model
from fleet.deploy.rim import Rim
from fleet.effects.folders import Folders

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pytest


def test_a_model_assembled_from_a_package_is_found_again(
    tmp_path: Path, tiny_models: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = next(iter(tiny_models.values())).read_bytes()
    monkeypatch.setattr(model_files, "assemble_package", lambda _, to: to.write_bytes(whole))
    rim = Rim(folders=Folders(config=tmp_path, state=tmp_path, cache=tmp_path))
    demo = load_deployment("demo").model
    assert demo.package
    assert find_model(demo, rim) is None

    made = ensure_model(demo, rim=rim, progress=lambda _: None)

    assert find_model(demo, rim) == made

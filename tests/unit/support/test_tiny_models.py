"""The tiny models are what the engine tests believe them to be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gguf
import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@pytest.mark.parametrize(
    ("name", "arch", "layers"),
    [
        ("llama", "llama", 2),
        ("draft", "llama", 1),
        ("gemma3", "gemma3", 6),
        ("deepseek2", "deepseek2", 2),
    ],
)
def test_each_tiny_model_names_its_architecture_and_layers(
    tiny_models: Mapping[str, Path], name: str, arch: str, layers: int
) -> None:
    reader = gguf.GGUFReader(tiny_models[name])

    assert reader.fields["general.architecture"].contents() == arch
    assert reader.fields[f"{arch}.block_count"].contents() == layers


def test_the_split_model_has_three_files(tiny_models: Mapping[str, Path]) -> None:
    assert len(list(tiny_models["split"].parent.glob("*.gguf"))) == 3

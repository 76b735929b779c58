"""A results folder that was damaged says where."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fleet.bench.results_folder import ResultsFolder
from fleet.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

READ = {
    "turns.jsonl": ResultsFolder.turns,
    "references.jsonl": ResultsFolder.references,
    "servers/samples.jsonl": ResultsFolder.samples,
    "servers/C0.json": lambda folder: folder.server("C0"),
    "run.json": ResultsFolder.read_run,
}


@pytest.mark.parametrize("content", [b"\xd4\x00\xff\n", b"{\n", b"[1]\n", b"7\n"])
@pytest.mark.parametrize("name", READ)
def test_a_damaged_file_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)

    with pytest.raises(UserError) as caught:
        READ[name](ResultsFolder(path=tmp_path))

    assert str(file) in str(caught.value.where)

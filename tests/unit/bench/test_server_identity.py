from __future__ import annotations

import pytest

from fleet.bench.server_identity import refuse_other_conditions, refuse_other_start
from fleet.errors import NotAsWanted

pytestmark = pytest.mark.pure

KNOWN = {
    "engine": "llama.cpp", "build": "b1", "context": 8192, "slots": 1, "kv_types": "f16/f16",
    "gpu_layers": "33/33", "settings": {"threads": 4}, "argv": ["-m", "x"], "env": {},
    "image": None, "model": "x",
}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"context": 4096}, {"gpu_layers": "20/33"}, {"kv_types": "q8_0/q8_0"}, {"build": "b2"},
        {"settings": {"threads": 5}}, {"model": "y"},
    ],
)  # fmt: skip
def test_refuses_a_start_that_is_another_server(change: dict[str, object]) -> None:
    with pytest.raises(NotAsWanted):
        refuse_other_start(KNOWN, KNOWN | change, "C1")


def test_a_log_that_says_less_is_no_other_server() -> None:
    refuse_other_start(KNOWN, KNOWN | {"kv_types": None, "gpu_layers": None}, "C1")


def test_conditions_may_differ_only_in_what_was_asked() -> None:
    short = {"C0": KNOWN, "C1": KNOWN | {"context": 4096}}

    with pytest.raises(NotAsWanted, match="context"):
        refuse_other_conditions(short, {"C0": {}, "C1": {"threads": 8}})
    refuse_other_conditions(short, {"C0": {}, "C1": {"ctx_size": 4096}})

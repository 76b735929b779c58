"""How llama-bench is run for a deployment."""

from __future__ import annotations

import pytest

from fleet.bench.raw_suite import programs_for
from fleet.cli.load import load_deployment
from fleet.facts.host_facts import Gpu, HostFacts
from fleet.sizes import GIB, ByteSize

HOST = HostFacts(
    name="h",
    cores=4,
    cpus=(0, 1, 2, 3),
    gpus=(Gpu(name="card", backend="cuda", memory=ByteSize(8 * GIB)),),
)


@pytest.mark.parametrize(("layers", "given"), [("all", True), ("0", False)])
def test_an_image_gets_the_accelerators_that_the_settings_use(layers: str, *, given: bool) -> None:
    deployment = load_deployment("qwen-8gb-32k", sets=[f"gpu_layers={layers}"])
    *boxed, bare = programs_for(deployment, "/models/m.gguf", HOST)
    assert boxed
    assert all(("--device" in words and "nvidia.com/gpu=all" in words) == given for words in boxed)
    assert bare == ("llama-bench",)

"""Which bytes of a model's weights lie on which device, and which layers.

Source: llama.cpp src/llama-model.cpp (`load_tensors`): the embedding table stays on the
host, the output layer counts as the last layer, a tied one is a second copy, and layers are
dealt to devices in proportion to their memory.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.compiler.memory.question import MemoryQuestion

HOST = -1


class WeightPlan(NamedTuple):
    """Bytes on each GPU and on the host."""

    devices: tuple[int, ...]
    host: int


def layer_devices(question: MemoryQuestion) -> tuple[int, ...]:
    """Return the device of each layer, the output layer last; `HOST` for the CPU."""
    layers = question.model.n_layer + 1
    wanted = layers if question.gpu_layers is None else question.gpu_layers
    offloaded = 0 if question.devices == 0 else min(max(wanted, 0), layers)
    first = layers - offloaded
    shares = question.split or (1.0,) * question.devices
    total = sum(shares)
    bounds = [sofar / total for sofar in accumulate(shares)]
    return tuple(
        HOST
        if layer < first
        else min(bisect_right(bounds, (layer - first) / offloaded), len(bounds) - 1)
        for layer in range(layers)
    )


def plan_weights(question: MemoryQuestion, homes: Sequence[int]) -> WeightPlan:
    """Return the bytes on each device; zero everywhere when the weights are not known."""
    weights = question.model.weights
    devices = [0] * question.devices
    if weights is None:
        return WeightPlan(tuple(devices), 0)
    n_layer = question.model.n_layer
    known = len(weights.layers) == n_layer
    body = weights.total - weights.token_embd - weights.host_tables
    body -= 0 if weights.tied else weights.output
    experts = weights.expert_layers if known else _even(weights.experts, n_layer)
    layers = weights.layers if known else _even(body, n_layer)
    rest = body - sum(layers)  # norms before the output, and an MTP block
    host = weights.token_embd + weights.host_tables
    moved = question.cpu_moe_layers or 0
    for layer in range(n_layer):
        kept = experts[layer] if layer < moved else 0
        if homes[layer] == HOST:
            host += layers[layer]
        else:
            devices[homes[layer]] += layers[layer] - kept
            host += kept
    if homes[n_layer] == HOST:
        host += rest + (0 if weights.tied else weights.output)
    else:
        devices[homes[n_layer]] += rest + weights.output
    return WeightPlan(tuple(devices), host)


def _even(total: int, n_layer: int) -> tuple[int, ...]:
    each, left = divmod(total, n_layer)
    return tuple(each + (1 if layer < left else 0) for layer in range(n_layer))

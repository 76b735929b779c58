"""When one model over two hosts is the slower choice: it fits one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.compiler.launch_config import Warn
from fleet.compiler.placement import SHARED_MODEL
from fleet.sizes import ByteSize

if TYPE_CHECKING:
    from fleet.facts.host_facts import HostFacts
    from fleet.facts.model_facts import ModelFacts
    from fleet.profiles.kinds import Deployment

FITS_SHARE = 0.8  # of a node's memory that weights may take, the rest is for caches and buffers
# two replicas against one model over RPC, measured on two Sparks with 8 to 32 users
REPLICAS, SHARED = "1.30 to 1.91", "1.08"


def pair_advice(
    deployment: Deployment, model: ModelFacts | None, host: HostFacts
) -> tuple[Warn, ...]:
    """Return the advice to run replicas where the weights fit one host; else nothing."""
    present = host.memory_limit or host.memory_total
    weights = model.weights_bytes if model and deployment.topology in SHARED_MODEL else None
    if not weights or not present or weights > FITS_SHARE * present:
        return ()
    message = (
        f"the weights ({ByteSize(weights)}) fit one host ({ByteSize(present)}): two replicas "
        f"give {REPLICAS} times one host's output, a shared model {SHARED}; "
        "write `topology: replicas`"
    )
    return (Warn(code="fits-one-host", message=message),)

"""Single GPUs whose repair or release would let a demand fit."""

from collections.abc import Iterator
from typing import Final

from kubeshare.core import reasons
from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis.hidden_gpuids import readable_paths
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.natural_sort import natural
from kubeshare.core.policies import Policy
from kubeshare.core.units import format_memory

TRIES: Final = 256
"""The most GPUs, and the most nodes, that are tried."""


def repairs(
    policy: Policy, ledger: Ledger, demand: Demand, reader: Demand | None = None
) -> Iterator[str]:
    """Each GPU that would let the demand fit if it were back in service or free, as a clause.

    Args:
        policy: decides whether the demand fits.
        ledger: unchanged afterwards.
        demand: the pending demand.
        reader: the demand whose author reads the clauses; None for a reader who may see all.
    """
    out_of_service = [device for device in ledger.devices.values() if reasons.service(device)]
    out_of_service.sort(key=lambda device: (natural(device.node), natural(device.name)))
    for device in out_of_service[:TRIES]:
        with ledger.what_if():
            ledger.mark(device.id, healthy=True, fenced=False)
            if policy(ledger, demand).outcome == "bound":
                again = "takes holders again" if device.healthy else "is healthy again"
                (path,) = [device.path] if reader is None else readable_paths([device], reader)
                yield f"{path} {again}"
    for name in sorted(ledger.nodes, key=natural)[:TRIES]:
        node = ledger.nodes[name]
        for gpu in sorted(node.kinds.union(node.free)):
            with ledger.what_if():
                ledger.set_free(name, (*node.free, gpu))
                if policy(ledger, demand).outcome == "bound":
                    model = f" of model {gpu.model}" if gpu.model else ""
                    size = format_memory(gpu.memory_bytes)
                    yield f"{name} has one more free GPU{model} with {size}"

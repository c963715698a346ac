"""Whether demands that wait in vain for their vGPUs would find a place without these."""

from collections.abc import Sequence
from typing import Final, Self

import msgspec

from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import VGPU
from kubeshare.api.vgpu_readiness import failure
from kubeshare.core.demand import Demand
from kubeshare.core.gang import place_gang
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy

STUCK_REASONS: Final = frozenset(
    {Reason.GPU_NOT_FREE, Reason.NOT_SHAREABLE, Reason.GPU_UNHEALTHY, Reason.PLACEHOLDER_LOST}
)
"""Reasons for which a vGPU is not there that waiting alone may never mend."""


class StuckDemand(msgspec.Struct, frozen=True, kw_only=True):
    """A demand that waits for a vGPU in vain.

    Attributes:
        demand: who waits, as its author asked: an id in it is one that is wanted.
        vgpu: what it waits for.
        nodes: those that it may go to instead.
        gpuid: the vGPU that is set aside for it; ``""`` where that is all of its node.
    """

    demand: Demand
    vgpu: VGPU
    nodes: frozenset[str]
    gpuid: str

    @classmethod
    def of(cls, demand: Demand, vgpu: VGPU, nodes: frozenset[str]) -> Self:
        """One that may go to some nodes: where a GPU has failed, others of its node may do."""
        if failure(vgpu) is not None:
            return cls(demand=demand, vgpu=vgpu, nodes=nodes, gpuid=vgpu.metadata.name)
        return cls(demand=demand, vgpu=vgpu, nodes=nodes - {vgpu.spec.node_name}, gpuid="")


def fit_elsewhere(policy: Policy, ledger: Ledger, late: Sequence[StuckDemand]) -> bool:
    """There is room for all of them together, were nobody waiting for their vGPUs.

    Args:
        policy: places demands.
        ledger: the cluster as it is now; it is left as it was.
        late: who waits, at least one.
    """
    with ledger.what_if():
        for uid in {holder.demand for each in late for holder in each.vgpu.status.holders}:
            if ledger.held_by(uid):
                ledger.release(uid)
        for name in {each.vgpu.metadata.name for each in late} & ledger.devices.keys():
            ledger.mark(name, fenced=True)
        instead = [msgspec.structs.replace(each.demand, nodes=each.nodes) for each in late]
        return place_gang(policy, ledger, instead, len(late)).whole

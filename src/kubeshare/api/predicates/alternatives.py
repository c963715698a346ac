"""Finds out whether demands on vGPUs that never become ready fit elsewhere."""

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
    {
        Reason.GPU_NOT_FREE,
        Reason.NOT_SHAREABLE,
        Reason.OTHER_MODEL,
        Reason.GPU_UNHEALTHY,
        Reason.PLACEHOLDER_LOST,
        Reason.UNRECORDED_PODS,
        Reason.DRIVER_TOO_OLD,
        Reason.GPUS_OFFERED,
        Reason.GPUS_IN_USE,
        Reason.NODE_OWNED,
    }
)
"""Reasons of blockers that may last for ever."""


class StuckDemand(msgspec.Struct, frozen=True, kw_only=True):
    """A demand whose vGPU may never become ready.

    Attributes:
        demand: the demand of its author: a ``device_id`` in it is required.
        vgpu: the vGPU that it waits for.
        nodes: the nodes that it may use instead.
        gpuid: the GPUID of ``vgpu`` if only that is excluded; ``""`` to exclude its node.
    """

    demand: Demand
    vgpu: VGPU
    nodes: frozenset[str]
    gpuid: str

    @classmethod
    def of(cls, demand: Demand, vgpu: VGPU, nodes: frozenset[str]) -> Self:
        """A stuck demand; if the GPU has failed, other GPUs of its node may be used."""
        if failure(vgpu) is not None:
            return cls(demand=demand, vgpu=vgpu, nodes=nodes, gpuid=vgpu.gpuid)
        return cls(demand=demand, vgpu=vgpu, nodes=nodes - {vgpu.spec.node_name}, gpuid="")


def fit_elsewhere(policy: Policy, ledger: Ledger, stuck: Sequence[StuckDemand]) -> bool:
    """Whether all of them fit together elsewhere, without any holder of their vGPUs.

    Args:
        policy: places demands.
        ledger: the cluster as it is now; it is the same afterwards.
        stuck: at least one demand.
    """
    with ledger.what_if():
        for uid in {holder.demand for each in stuck for holder in each.vgpu.status.holders}:
            if ledger.held_by(uid):
                ledger.release(uid)
        for name in {each.vgpu.metadata.name for each in stuck} & ledger.devices.keys():
            ledger.mark(name, fenced=True)
        instead = [msgspec.structs.replace(each.demand, nodes=each.nodes) for each in stuck]
        return place_gang(policy, ledger, instead, len(stuck)).whole

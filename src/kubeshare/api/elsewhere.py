"""Whether demands that wait in vain for their vGPUs would find a place without these."""

from collections.abc import Sequence

import msgspec

from kubeshare.api.names import GENERATED_ID_PREFIX
from kubeshare.api.v1 import VGPU
from kubeshare.core.demand import Demand
from kubeshare.core.gang import place_gang
from kubeshare.core.ledger import Ledger
from kubeshare.core.policies import Policy


class Late(msgspec.Struct, frozen=True, kw_only=True):
    """A demand that waits for a vGPU in vain.

    Attributes:
        demand: who waits.
        vgpu: what it waits for.
        nodes: those that it may go to instead.
    """

    demand: Demand
    vgpu: VGPU
    nodes: frozenset[str]


def have_others(policy: Policy, ledger: Ledger, late: Sequence[Late]) -> bool:
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
        return place_gang(policy, ledger, [_asked(each) for each in late], len(late)).whole


def _asked(late: Late) -> Demand:
    """What it would ask for: an id that was made for it is none that it wants."""
    given = late.demand.device_id.startswith(GENERATED_ID_PREFIX)
    return msgspec.structs.replace(
        late.demand, device_id="" if given else late.demand.device_id, nodes=late.nodes
    )

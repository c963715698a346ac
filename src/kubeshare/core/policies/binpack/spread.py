"""Spreads shares over the GPUs of a node that asks for it.

The node is chosen as on any other. A share of one GPU of it then goes to the GPU with the most
memory left that fits, the lowest number on ties, not to the fullest.
"""

from functools import partial

import msgspec

from kubeshare.core.constraints.filter import Filter
from kubeshare.core.decision import Decision, LazyReasons
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device
from kubeshare.core.ledger.index.node_devices import NodeDevices
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies.binpack.index import order


def spread(ledger: Ledger, demand: Demand, decision: Decision) -> Decision:
    """The decision for a demand, with another GPU where the chosen node spreads its shares."""
    node = ledger.nodes.get(decision.node or "")
    if node is None or not node.spread or decision.new or len(decision.devices) != 1:
        return decision
    allowed = Filter(ledger, ledger.comparable(demand))
    there = ledger.index(NodeDevices).on(node.name)
    fitting = [device for device in there if not allowed.why_not(device)]
    chosen = min(fitting, key=lambda device: (-device.memory_left, order(device)))
    if chosen.id == decision.devices[0]:
        return decision
    reasons = LazyReasons(partial(_reasons, decision, chosen, fitting))
    return msgspec.structs.replace(decision, devices=(chosen.id,), reasons=reasons)


def _reasons(decision: Decision, chosen: Device, fitting: list[Device]) -> dict[str, str]:
    why = f"fits, but {chosen.path} has more memory left or comes first, and the node spreads"
    others = {device.path: why for device in fitting}
    return {
        place: others.get(place, reason)
        for place, reason in {**others, **decision.reasons}.items()
        if place != chosen.path
    }

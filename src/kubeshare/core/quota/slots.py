"""Bounds the holders of a namespace on vGPUs that others hold too.

A vGPU has a bounded number of slots, one for each holder, and a holder may reserve nothing. So
that no namespace takes all slots of a GPU that another one uses, each takes a quarter at most
there; alone on a vGPU it may take all. The check wraps any policy.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Final

import msgspec

from kubeshare.core.decision import Decision, LazyReasons
from kubeshare.core.demand import Demand, groups_of
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.holder import MAX_HOLDERS
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy

MAX_SLOTS: Final = MAX_HOLDERS // 4
"""The most slots of a vGPU that a namespace takes beside another one."""

_MAX_SHARES: Final = 16
"""The most shares of a demand, in any manifest."""

_FEW: Final = MAX_SLOTS - _MAX_SHARES
"""With as many slots or fewer, a namespace may have any further demand there."""


class CrowdedDevices:
    """An index of a ledger: the devices of several namespaces on which one has many slots."""

    def __init__(self, ledger: Ledger) -> None:
        self._slots: dict[str, dict[str, int]] = defaultdict(dict)
        for device in ledger.devices.values():
            self.device_changed(None, device)

    def of(self, namespace: str) -> Mapping[str, int]:
        """Id of each device on which a namespace has many slots → how many."""
        return self._slots.get(namespace, {})

    def device_changed(self, before: Device | None, after: Device | None) -> None:
        """Count the slots of a device."""
        if before is not None:
            for namespace in _many(before):
                del self._slots[namespace][before.id]
        if after is not None:
            for namespace, slots in _many(after).items():
                self._slots[namespace][after.id] = slots

    def node_changed(self, before: Node | None, after: Node | None) -> None:
        """Ignore a change of a node, which has no slots itself."""


def _many(device: Device) -> dict[str, int]:
    """The namespaces with many slots of a device that another namespace holds too."""
    if len(device.holders) <= _FEW:
        return {}
    slots = Counter([holder.namespace for holder in device.holders])
    return {each: count for each, count in slots.items() if count > _FEW} if len(slots) > 1 else {}


def fence_crowded(ledger: Ledger, demand: Demand) -> dict[str, str]:
    """Take the vGPUs on which a namespace has its slots out of a ledger.

    Args:
        ledger: changed, so the caller is in a ``what_if`` of its own.
        demand: a demand of the namespace.

    Returns:
        path of each vGPU that is fenced only for that → why.
    """
    refused: dict[str, str] = {}
    for device_id, why in _crowded(ledger, demand).items():
        device = ledger.devices[device_id]
        if device.healthy and not device.fenced:
            ledger.mark(device_id, fenced=True)
            refused[device.path] = why
    return refused


def within_slots(policy: Policy) -> Policy:
    """Wrap a policy with the bound.

    Args:
        policy: decides.
    """

    def decide(ledger: Ledger, demand: Demand) -> Decision:
        if not _crowded(ledger, demand):
            return policy(ledger, demand)
        with ledger.what_if():
            refused = fence_crowded(ledger, demand)
            decision = policy(ledger, demand)

        def reasons() -> dict[str, str]:
            return {place: refused.get(place, why) for place, why in decision.reasons.items()}

        return msgspec.structs.replace(decision, reasons=LazyReasons(reasons))

    return decide


def _crowded(ledger: Ledger, demand: Demand) -> dict[str, str]:
    """Id of each device on which the namespace has too many slots for a demand → why."""
    held = ledger.index(CrowdedDevices).of(demand.namespace)
    if not held:
        return {}
    # Shares of one group are on different GPUs, those of different groups may be on one.
    asked = len(set(groups_of(demand.shares).values())) or 1
    return {
        device_id: _reason(slots, asked)
        for device_id, slots in held.items()
        if slots + asked > MAX_SLOTS
    }


def _reason(slots: int, asked: int) -> str:
    several = f", {asked} asked" if asked > 1 else ""
    return (
        f"{slots} of its {MAX_HOLDERS} slots are this namespace's{several}; "
        f"beside another namespace it takes {MAX_SLOTS} at most"
    )

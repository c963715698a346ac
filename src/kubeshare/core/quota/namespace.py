"""Quotas of a namespace over all GPUs: how much time and memory of them it may hold.

What counts is what holders reserve at this moment. A demand that would go beyond is no
error: it waits until something of its namespace is given back, or the quota is changed.

This is a check around a policy, whichever it is.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy
from kubeshare.core.units import format_memory, format_share

FIELD: Final = "quota"
"""The ``field`` of a decision that a quota has made."""


class NamespaceQuota(msgspec.Struct, frozen=True, kw_only=True):
    """One quota of a namespace; of several, all hold.

    Attributes:
        name: for people.
        micros: millionths of a GPU's time, in all; None is any.
        memory: bytes of GPU memory, in all; None is any.
    """

    name: str
    micros: int | None = None
    memory: int | None = None


class Held(msgspec.Struct, frozen=True):
    """What a namespace holds: micros, and bytes."""

    micros: int = 0
    memory: int = 0

    def plus(self, micros: int, memory: int) -> "Held":
        """So much more, or less."""
        return Held(self.micros + micros, self.memory + memory)


class HeldIndex:
    """Follows a ledger: what each namespace holds."""

    def __init__(self, ledger: Ledger) -> None:
        self._held: dict[str, Held] = defaultdict(Held)
        for device in ledger.devices.values():
            self.device_changed(None, device)

    def of(self, namespace: str) -> Held:
        """What a namespace holds."""
        return self._held.get(namespace, Held())

    def device_changed(self, before: Device | None, after: Device | None) -> None:
        """A device came, changed or went."""
        for device, sign in ((before, -1), (after, 1)):
            for holder in device.holders if device is not None else ():
                held = self._held[holder.namespace]
                self._held[holder.namespace] = held.plus(
                    sign * holder.request_micros, sign * holder.memory_bytes
                )

    def node_changed(self, before: Node | None, after: Node | None) -> None:
        """A node holds nothing itself."""


def within_quotas(policy: Policy, quotas: Callable[[str], Sequence[NamespaceQuota]]) -> Policy:
    """A policy that keeps to quotas.

    Args:
        policy: decides.
        quotas: those of a namespace.

    Returns:
        a policy whose decision is ``pending`` with the field ``quota`` where ``policy`` has
        found a place and a quota says no.
    """

    def decide(ledger: Ledger, demand: Demand) -> Decision:
        decision = policy(ledger, demand)
        if decision.node is None:
            return decision
        rows = quotas(demand.namespace)
        why = _exceeded(rows, ledger, demand, decision) if rows else ""
        if not why:
            return decision
        return Decision(outcome="pending", reasons={FIELD: why}, field=FIELD)

    return decide


def _exceeded(
    rows: Sequence[NamespaceQuota], ledger: Ledger, demand: Demand, decision: Decision
) -> str:
    """Which quota a decision would break, with the numbers; ``""`` for none."""
    fresh = {device.id: device.memory_bytes for device in decision.new}
    totals = [
        fresh[gpuid] if gpuid in fresh else ledger.devices[gpuid].memory_bytes
        for gpuid in decision.devices
    ]
    micros = sum(demand.compute_on(total) for total in totals)
    memory = sum(demand.memory.on(total) for total in totals)
    held = ledger.index(HeldIndex).of(demand.namespace)
    for row in rows:
        if row.micros is not None and held.micros + micros > row.micros:
            amounts = (row.micros, held.micros, micros)
            most, has, asks = (format_share(amount) for amount in amounts)
            return f"{row.name} allows {most} GPUs: {has} held, {asks} asked"
        if row.memory is not None and held.memory + memory > row.memory:
            amounts = (row.memory, held.memory, memory)
            most, has, asks = (format_memory(amount) for amount in amounts)
            return f"{row.name} allows {most} of GPU memory: {has} held, {asks} asked"
    return ""

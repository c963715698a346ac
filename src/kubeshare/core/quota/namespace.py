"""Namespace quotas: the compute and memory that a namespace may hold.

What counts is what its holders reserve now. A demand beyond the quota is no error: it stays
pending until its namespace releases something, or the quota changes. The check wraps any policy.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence

import msgspec

from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.holder import Holder
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy
from kubeshare.core.quota.rows import FIELD
from kubeshare.core.units import format_memory, format_share


class NamespaceQuota(msgspec.Struct, frozen=True, kw_only=True):
    """One quota of a namespace; if there are several, all apply.

    Attributes:
        name: the name of the quota, for messages.
        micros: the most micros of all GPUs; None for no bound.
        memory_bytes: the most bytes of GPU memory; None for no bound.
    """

    name: str
    micros: int | None = None
    memory_bytes: int | None = None


class Held(msgspec.Struct, frozen=True):
    """What a namespace holds."""

    micros: int = 0
    memory_bytes: int = 0

    def plus(self, micros: int, memory_bytes: int) -> "Held":
        """This amount and another, which may be negative."""
        return Held(self.micros + micros, self.memory_bytes + memory_bytes)


class HeldIndex:
    """An index of a ledger: what each namespace holds."""

    def __init__(self, ledger: Ledger) -> None:
        self._held: dict[str, Held] = defaultdict(Held)
        for device in ledger.devices.values():
            self.device_changed(None, device)

    def of(self, namespace: str) -> Held:
        """What a namespace holds."""
        return self._held.get(namespace, Held())

    def device_changed(self, before: Device | None, after: Device | None) -> None:
        """Update what the holders of a device reserve."""
        for device, sign in ((before, -1), (after, 1)):
            for holder in device.holders if device is not None else ():
                held = self._held[holder.namespace]
                self._held[holder.namespace] = held.plus(
                    sign * holder.request_micros, sign * holder.memory_bytes
                )

    def node_changed(self, before: Node | None, after: Node | None) -> None:
        """Ignore a change of a node, which holds nothing itself."""


def is_exceeded(rows: Sequence[NamespaceQuota], held: Held) -> bool:
    """Whether a namespace holds more than one of its quotas allows."""
    return any(
        (row.micros is not None and held.micros > row.micros)
        or (row.memory_bytes is not None and held.memory_bytes > row.memory_bytes)
        for row in rows
    )


def within_quotas(policy: Policy, quotas: Callable[[str], Sequence[NamespaceQuota]]) -> Policy:
    """Wrap a policy with quotas.

    Args:
        policy: decides.
        quotas: namespace → its quotas.

    Returns:
        a policy whose outcome is ``pending`` with the field ``quota`` if ``policy`` binds a
        demand that exceeds a quota.
    """

    def decide(ledger: Ledger, demand: Demand) -> Decision:
        decision = policy(ledger, demand)
        if decision.node is None:
            return decision
        rows = quotas(demand.namespace)
        reason = _exceeded(rows, ledger, demand, decision) if rows else ""
        if not reason:
            return decision
        return Decision(outcome="pending", reasons={FIELD: reason}, field=FIELD)

    return decide


def _exceeded(
    rows: Sequence[NamespaceQuota], ledger: Ledger, demand: Demand, decision: Decision
) -> str:
    """The quota that a decision would exceed, with numbers; ``""`` for none."""
    fresh = {device.id: device.memory_bytes for device in decision.new}
    totals = [
        fresh[device_id] if device_id in fresh else ledger.devices[device_id].memory_bytes
        for device_id in decision.devices
    ]
    wanted = [
        Holder.of_share(demand, share, total)
        for share, total in zip(demand.per_gpu(), totals, strict=True)
    ]
    micros = sum(holder.request_micros for holder in wanted)
    memory = sum(holder.memory_bytes for holder in wanted)
    held = ledger.index(HeldIndex).of(demand.namespace)
    for row in rows:
        if row.micros is not None and held.micros + micros > row.micros:
            amounts = (row.micros, held.micros, micros)
            most, has, requested = (format_share(amount) for amount in amounts)
            return f"{row.name} allows {most} GPUs: {has} held, {requested} asked"
        if row.memory_bytes is not None and held.memory_bytes + memory > row.memory_bytes:
            amounts = (row.memory_bytes, held.memory_bytes, memory)
            most, has, requested = (format_memory(amount) for amount in amounts)
            return f"{row.name} allows {most} of GPU memory: {has} held, {requested} asked"
    return ""

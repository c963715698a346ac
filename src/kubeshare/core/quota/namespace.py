"""Namespace quotas: the compute and memory that a namespace may hold.

What counts is what its holders are charged now (:mod:`kubeshare.core.quota.charge`). A demand
beyond the quota is no error: it stays pending until its namespace releases something, or the quota
changes. The check wraps any policy.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

import msgspec

from kubeshare.core.decision import Decision, LazyReasons
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.index.node_devices import NodeDevices
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy
from kubeshare.core.quota.charge import WHOLE_GPU, ExclusiveDevices, Held, added, charges
from kubeshare.core.quota.rows import FIELD
from kubeshare.core.reasons import NOT_ASKED
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


class HeldIndex:
    """An index of a ledger: what each namespace is charged."""

    def __init__(self, ledger: Ledger) -> None:
        self._held: dict[str, Held] = defaultdict(Held)
        for device in ledger.devices.values():
            self.device_changed(None, device)

    def of(self, namespace: str) -> Held:
        """What a namespace is charged."""
        return self._held.get(namespace, Held())

    def device_changed(self, before: Device | None, after: Device | None) -> None:
        """Update what the holders of a device are charged."""
        for device, sign in ((before, -1), (after, 1)):
            if device is None:
                continue
            of_device = charges(device.holders, device.memory_bytes, attrgetter("namespace"))
            for namespace, held in of_device.items():
                self._held[namespace] = self._held[namespace].plus(
                    sign * held.micros, sign * held.memory_bytes
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

    A demand with an exclusion label for which the policy would take GPUs beyond a quota is placed
    beside holders of its label instead, on GPUs that its namespace is charged already.

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
        if demand.exclusion:
            joined = _on_charged_gpus(policy, ledger, demand, reason)
            if (
                joined is not None
                and joined.node is not None
                and not _exceeded(rows, ledger, demand, joined)
            ):
                return joined
        return Decision(outcome="pending", reasons={FIELD: reason}, field=FIELD)

    return decide


def _on_charged_gpus(
    policy: Policy, ledger: Ledger, demand: Demand, reason: str
) -> Decision | None:
    """The decision among the GPUs that the namespace is charged as a whole already.

    Args:
        policy: decides.
        ledger: unchanged afterwards.
        demand: the demand.
        reason: why it may have no other GPU.

    Returns:
        None if too few of them have room, whatever the policy.
    """
    label, shares = ledger.comparable(demand).exclusion, demand.reduced()
    mates = map(
        ledger.devices.__getitem__, ledger.index(ExclusiveDevices).of(demand.namespace, label)
    )
    charged = {
        device.id
        for device in mates
        if (demand.nodes is None or device.node in demand.nodes) and _has_room(device, shares)
    }
    counts = Counter(ledger.devices[each].node for each in charged)
    needed = demand.different_gpus()
    nodes = {node for node, count in counts.items() if count >= needed} & ledger.nodes.keys()
    if not nodes:
        return None
    others: set[str] = set()
    with ledger.what_if():
        for node in sorted(nodes):
            ledger.set_free(node, ())
            for device in tuple(ledger.index(NodeDevices).on(node)):
                if device.id not in charged and device.healthy and not device.fenced:
                    ledger.mark(device.id, fenced=True)
                    others.add(device.path)
        decision = policy(ledger, msgspec.structs.replace(demand, nodes=frozenset(nodes)))

    def reasons() -> dict[str, str]:
        # The policy did not see the other nodes.
        unseen = {place for place, why in decision.reasons.items() if why == NOT_ASKED}
        left_out = others | nodes | (unseen if demand.nodes is None else unseen & demand.nodes)
        return {
            place: reason if place in left_out else why for place, why in decision.reasons.items()
        }

    return msgspec.structs.replace(decision, reasons=LazyReasons(reasons))


def _has_room(device: Device, shares: Iterable[Demand]) -> bool:
    """Whether a device has room for one of some shares."""
    total = device.memory_bytes
    return any(
        share.compute_on(total) <= device.compute_left
        and share.memory.on(total) <= device.memory_left
        for share in shares
    )


def _exceeded(
    rows: Sequence[NamespaceQuota], ledger: Ledger, demand: Demand, decision: Decision
) -> str:
    """The quota that a decision would exceed, with numbers; ``""`` for none."""
    micros, memory = msgspec.structs.astuple(added(ledger, demand, decision))
    why = f", {WHOLE_GPU}" if demand.exclusion else ""
    held = ledger.index(HeldIndex).of(demand.namespace)
    for row in rows:
        if row.micros is not None and held.micros + micros > row.micros:
            amounts = (row.micros, held.micros, micros)
            most, has, requested = (format_share(amount) for amount in amounts)
            return f"{row.name} allows {most} GPUs: {has} held, {requested} asked{why}"
        if row.memory_bytes is not None and held.memory_bytes + memory > row.memory_bytes:
            amounts = (row.memory_bytes, held.memory_bytes, memory)
            most, has, requested = (format_memory(amount) for amount in amounts)
            return f"{row.name} allows {most} of GPU memory: {has} held, {requested} asked{why}"
    return ""

"""Quotas by GPU model, as Gaia has them: how much of which GPUs a namespace may hold.

A row limits what a namespace holds of one model in one pool, or of any model or in any
pool where it names none. A namespace without a row is free. One that has rows may use
only GPUs that some row covers, and of those only while every row that covers them has
room. What counts is the compute that holders reserve at this moment, so nothing of a
refused demand and nothing of an ended one is ever counted.

Besides, the demands of a group stay on the GPU model that the first of them got, and
so do the GPUs of one demand: unlike GPUs do not compute well together.

This is a check around a policy, whichever it is: the policy is asked about the cluster
without the GPUs that are out of bounds, and what it then says is the answer.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from functools import partial

import msgspec

from kubeshare.core import reasons
from kubeshare.core.decision import Decision, LazyReasons
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.history import Snapshot
from kubeshare.core.ledger.holder import Holder
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.natural_sort import natural
from kubeshare.core.policies import Policy
from kubeshare.core.units import format_share


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """One row: how much of some GPUs a namespace may hold.

    Attributes:
        namespace: whose.
        pool: the nodes' pool; "" is any.
        model: of the GPUs; "" is any.
        micros: millionths of a GPU, in all.
    """

    namespace: str
    pool: str = ""
    model: str = ""
    micros: int = 0

    def covers(self, pool: str, model: str) -> bool:
        """It speaks of GPUs of this model in this pool."""
        return self.pool in ("", pool) and self.model in ("", model)

    def __str__(self) -> str:
        gpus = f"{self.model} GPUs" if self.model else "GPUs"
        return f"{gpus} in pool {self.pool}" if self.pool else gpus


class QuotaPolicy:
    """Asks a policy within quotas and groups; it is a policy itself.

    Args:
        policy: decides.
        quotas: all rows.
    """

    def __init__(self, policy: Policy, quotas: Iterable[Quota]) -> None:
        self._policy = policy
        self._rows: dict[str, list[Quota]] = defaultdict(list)
        for quota in quotas:
            self._rows[quota.namespace].append(quota)

    def __call__(self, ledger: Ledger, demand: Demand) -> Decision:
        """Where a demand goes; ``rejected`` with field ``quota`` where only quota says no."""
        rows = self._rows.get(demand.namespace)
        if not rows and not demand.group:
            return self._policy(ledger, demand)
        index = ledger.index(QuotaIndex)
        pinned = index.model_of_group(demand) if demand.group else ""
        if pinned and demand.model not in ("", pinned):
            why = f"group {demand.group} is on {pinned}, and {demand.model} is asked"
            return Decision(outcome="rejected", reasons={"group": why}, field="group")
        if pinned:
            demand = msgspec.structs.replace(demand, model=pinned)
        if not rows:
            return self._policy(ledger, demand)
        return self._within(rows, ledger, index, demand)

    def _within(
        self, rows: list[Quota], ledger: Ledger, index: "QuotaIndex", demand: Demand
    ) -> Decision:
        used = index.used_by(demand.namespace)
        barred: dict[str, dict[FreeGpu, str]] = {}  # node -> kinds of GPUs out of bounds -> why
        open_nodes, refusals = set(), []
        for node in ledger.nodes.values():
            if demand.nodes is not None and node.name not in demand.nodes:
                continue
            kinds = index.kinds_on(node)
            why_not = {kind: _why_not(rows, used, node.pool, kind, demand) for kind in kinds}
            barred[node.name] = {kind: why for kind, why in why_not.items() if why}
            would_do = [kind for kind in kinds if _would_do(kind, demand)]
            if any(not why_not[kind] for kind in would_do):
                open_nodes.add(node.name)
            refusals += [(natural(node.name), kind, why_not[kind]) for kind in would_do]
        told = partial(_tell, ledger.snapshot(), barred)
        if refusals and not open_nodes:
            refusal = {"quota": min(refusals)[2]}
            return Decision(
                outcome="rejected", reasons=LazyReasons(partial(told, refusal)), field="quota"
            )
        if not any(barred.values()):
            return self._policy(ledger, demand)
        bounded = msgspec.structs.replace(demand, nodes=frozenset(open_nodes))
        with ledger.what_if():
            for name in sorted(open_nodes):
                _fence(ledger, index, name, barred[name])
            decision = self._policy(ledger, bounded)
        why = LazyReasons(partial(told, decision.reasons))
        return msgspec.structs.replace(decision, reasons=why)


class QuotaIndex:
    """Follows a ledger: what namespaces hold, on which models groups are, what nodes have."""

    def __init__(self, ledger: Ledger) -> None:
        self._nodes = ledger.nodes
        self._held: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        self._groups: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        self._on_node: dict[str, dict[str, FreeGpu]] = defaultdict(dict)
        for device in ledger.devices.values():
            self.device_changed(None, device)

    def used_by(self, namespace: str) -> Counter[tuple[str, str]]:
        """Micros that a namespace holds, by pool and model."""
        used: Counter[tuple[str, str]] = Counter()
        for (node, model), micros in self._held.get(namespace, Counter()).items():
            known = self._nodes.get(node)
            used[known.pool if known else "", model] += micros
        return used

    def model_of_group(self, demand: Demand) -> str:
        """The model that a demand's group is on; "" where nobody of it holds anything."""
        models = self._groups.get((demand.namespace, demand.group), Counter())
        return min(models, default="")

    def kinds_on(self, node: Node) -> frozenset[FreeGpu]:
        """The kinds of GPUs that a node has, in the pool or free."""
        return frozenset(self._on_node.get(node.name, {}).values()) | set(node.free) | node.kinds

    def devices_on(self, node: str) -> Mapping[str, FreeGpu]:
        """The ids of the devices on a node, and their kinds."""
        return self._on_node.get(node, {})

    def device_changed(self, before: Device | None, after: Device | None) -> None:
        """A device came, changed or went."""
        if before is not None:
            del self._on_node[before.node][before.id]
            for holder in before.holders:
                self._count(before, holder, -1)
        if after is not None:
            self._on_node[after.node][after.id] = FreeGpu(after.model, after.memory_bytes)
            for holder in after.holders:
                self._count(after, holder, 1)

    def node_changed(self, before: Node | None, after: Node | None) -> None:
        """A node came, changed or went; it is asked about when somebody wants to know."""

    def _count(self, device: Device, holder: Holder, sign: int) -> None:
        held = self._held[holder.namespace]
        held[device.node, device.model] += sign * holder.request_micros
        if holder.group and device.model:
            models = self._groups[holder.namespace, holder.group]
            models[device.model] += sign
            if not models[device.model]:
                del models[device.model]


def _would_do(kind: FreeGpu, demand: Demand) -> bool:
    return (
        demand.model in ("", kind.model)
        and demand.memory.on(kind.memory_bytes) <= kind.memory_bytes
    )


def _why_not(
    rows: list[Quota], used: Counter[tuple[str, str]], pool: str, kind: FreeGpu, demand: Demand
) -> str:
    """Why GPUs of a kind are out of bounds for a demand; "" when they are not."""
    covering = [row for row in rows if row.covers(pool, kind.model)]
    asked = demand.compute_on(kind.memory_bytes) * demand.count
    if not covering:
        where = f" in pool {pool}" if pool else ""
        return f"no quota of {demand.namespace} covers {kind.model or 'its'} GPUs{where}"
    for row in covering:
        held = sum(micros for (at, model), micros in used.items() if row.covers(at, model))
        if held + asked > row.micros:
            return (
                f"quota of {demand.namespace} is {format_share(row.micros)} {row}: "
                f"{format_share(held)} held, {format_share(asked)} asked"
            )
    return ""


def _fence(ledger: Ledger, index: QuotaIndex, node: str, kinds: Mapping[FreeGpu, str]) -> None:
    """Take those GPUs out that are out of bounds, of a node that has others too."""
    if not kinds:
        return
    for device_id, kind in sorted(index.devices_on(node).items()):
        if kind in kinds:
            ledger.mark(device_id, fenced=True)
    ledger.set_free(node, tuple(gpu for gpu in ledger.nodes[node].free if gpu not in kinds))


def _tell(
    state: Snapshot, barred: Mapping[str, Mapping[FreeGpu, str]], said: Mapping[str, str]
) -> dict[str, str]:
    """What the policy said, and of each GPU that is out of bounds why it is."""
    ours: dict[str, str] = {}
    devices = [device for device in state.devices.values() if device.node in barred]
    for device in sorted(devices, key=lambda each: (natural(each.node), natural(each.name))):
        why = barred[device.node].get(FreeGpu(device.model, device.memory_bytes))
        if why:
            ours[device.path] = why
    for name in sorted(barred, key=natural):
        free = [barred[name][gpu] for gpu in state.nodes[name].free if gpu in barred[name]]
        if free:
            ours[name] = min(free)
    # The policy was asked about fewer nodes; of the others it knows nothing better to say.
    told = {
        place: why for place, why in said.items() if place not in barred or why != reasons.NOT_ASKED
    }
    return told | ours

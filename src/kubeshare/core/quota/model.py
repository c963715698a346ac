"""Model quotas, as in Gaia: a namespace's limits for each GPU model.

A row limits what a namespace holds of one model in one pool; a row that names no model or no
pool covers all of them. A namespace without rows is unlimited. A namespace with rows may use
only GPUs that some row covers, and only while every covering row has room. What counts is the
compute that holders reserve now, so neither rejected nor ended demands are counted.

In addition, the demands of a group stay on the GPU model that the first of them got, as do the
GPUs of one demand: GPUs of different models do not compute well together.

The check wraps any policy: the policy decides about the cluster without the GPUs that the quota
excludes.
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
        namespace: the namespace that it limits.
        pool: the pool of the nodes; "" is any.
        model: the model of the GPUs; "" is any.
        micros: millionths of a GPU, in all.
    """

    namespace: str
    pool: str = ""
    model: str = ""
    micros: int = 0

    def covers(self, pool: str, model: str) -> bool:
        """Whether the row limits GPUs of this model in this pool."""
        return self.pool in ("", pool) and self.model in ("", model)

    def __str__(self) -> str:
        gpus = f"{self.model} GPUs" if self.model else "GPUs"
        return f"{gpus} in pool {self.pool}" if self.pool else gpus


class QuotaPolicy:
    """A policy that keeps another policy within quotas and groups.

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
        """Decide; ``rejected`` with the field ``quota`` if only a quota prevents placement."""
        rows = self._rows.get(demand.namespace)
        if not rows and not demand.group:
            return self._policy(ledger, demand)
        index = ledger.index(QuotaIndex)
        pinned = index.model_of_group(demand) if demand.group else ""
        if pinned and demand.model not in ("", pinned):
            reason = f"group {demand.group} is on {pinned}, and {demand.model} is asked"
            return Decision(outcome="rejected", reasons={"group": reason}, field="group")
        if pinned:
            demand = msgspec.structs.replace(demand, model=pinned)
        if not rows:
            return self._policy(ledger, demand)
        return self._within(rows, ledger, index, demand)

    def _within(
        self, rows: list[Quota], ledger: Ledger, index: "QuotaIndex", demand: Demand
    ) -> Decision:
        used = index.used_by(demand.namespace)
        excluded: dict[str, dict[FreeGpu, str]] = {}  # node -> excluded kinds of GPUs -> reason
        open_nodes, refusals = set(), []
        for node in ledger.nodes.values():
            if demand.nodes is not None and node.name not in demand.nodes:
                continue
            kinds = index.kinds_on(node)
            why_not = {kind: _why_not(rows, used, node.pool, kind, demand) for kind in kinds}
            excluded[node.name] = {kind: why for kind, why in why_not.items() if why}
            fitting = [kind for kind in kinds if _fits(kind, demand)]
            if any(not why_not[kind] for kind in fitting):
                open_nodes.add(node.name)
            refusals += [(natural(node.name), kind, why_not[kind]) for kind in fitting]
        explain = partial(_explain, ledger.snapshot(), excluded)
        if refusals and not open_nodes:
            refusal = {"quota": min(refusals)[2]}
            return Decision(
                outcome="rejected", reasons=LazyReasons(partial(explain, refusal)), field="quota"
            )
        if not any(excluded.values()):
            return self._policy(ledger, demand)
        bounded = msgspec.structs.replace(demand, nodes=frozenset(open_nodes))
        with ledger.what_if():
            for name in sorted(open_nodes):
                _fence(ledger, index, name, excluded[name])
            decision = self._policy(ledger, bounded)
        explained = LazyReasons(partial(explain, decision.reasons))
        return msgspec.structs.replace(decision, reasons=explained)


class QuotaIndex:
    """An index of a ledger: what namespaces hold, the models of groups, the GPUs of nodes."""

    def __init__(self, ledger: Ledger) -> None:
        self._nodes = ledger.nodes
        self._held: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        self._groups: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        self._on_node: dict[str, dict[str, FreeGpu]] = defaultdict(dict)
        for device in ledger.devices.values():
            self.device_changed(None, device)

    def used_by(self, namespace: str) -> Counter[tuple[str, str]]:
        """The micros that a namespace holds, by pool and model."""
        used: Counter[tuple[str, str]] = Counter()
        for (node, model), micros in self._held.get(namespace, Counter()).items():
            known = self._nodes.get(node)
            used[known.pool if known else "", model] += micros
        return used

    def model_of_group(self, demand: Demand) -> str:
        """The model that a demand's group uses; "" if the group holds nothing."""
        models = self._groups.get((demand.namespace, demand.group), Counter())
        return min(models, default="")

    def kinds_on(self, node: Node) -> frozenset[FreeGpu]:
        """The kinds of the GPUs of a node, vGPUs or free."""
        return frozenset(self._on_node.get(node.name, {}).values()) | set(node.free) | node.kinds

    def devices_on(self, node: str) -> Mapping[str, FreeGpu]:
        """Id → kind of the devices on a node."""
        return self._on_node.get(node, {})

    def device_changed(self, before: Device | None, after: Device | None) -> None:
        """Update the counts of a device and its holders."""
        if before is not None:
            del self._on_node[before.node][before.id]
            for holder in before.holders:
                self._count(before, holder, -1)
        if after is not None:
            self._on_node[after.node][after.id] = FreeGpu(after.model, after.memory_bytes)
            for holder in after.holders:
                self._count(after, holder, 1)

    def node_changed(self, before: Node | None, after: Node | None) -> None:
        """Ignore a change of a node; nodes are read when they are needed."""

    def _count(self, device: Device, holder: Holder, sign: int) -> None:
        held = self._held[holder.namespace]
        held[device.node, device.model] += sign * holder.request_micros
        if holder.group and device.model:
            models = self._groups[holder.namespace, holder.group]
            models[device.model] += sign
            if not models[device.model]:
                del models[device.model]


def _fits(kind: FreeGpu, demand: Demand) -> bool:
    total = kind.memory_bytes
    return demand.model in ("", kind.model) and all(
        wanted.memory.on(total) <= total for wanted in demand.reduced()
    )


def _why_not(
    rows: list[Quota], used: Counter[tuple[str, str]], pool: str, kind: FreeGpu, demand: Demand
) -> str:
    """Why the quota excludes GPUs of a kind for a demand; "" if it does not."""
    covering = [row for row in rows if row.covers(pool, kind.model)]
    requested = sum(
        wanted.compute_on(kind.memory_bytes) * wanted.count for wanted in demand.reduced()
    )
    if not covering:
        where = f" in pool {pool}" if pool else ""
        return f"no quota of {demand.namespace} covers {kind.model or 'its'} GPUs{where}"
    for row in covering:
        held = sum(micros for (at, model), micros in used.items() if row.covers(at, model))
        if held + requested > row.micros:
            return (
                f"quota of {demand.namespace} is {format_share(row.micros)} {row}: "
                f"{format_share(held)} held, {format_share(requested)} asked"
            )
    return ""


def _fence(ledger: Ledger, index: QuotaIndex, node: str, kinds: Mapping[FreeGpu, str]) -> None:
    """Take excluded GPUs of a node out of a ledger."""
    if not kinds:
        return
    for device_id, kind in sorted(index.devices_on(node).items()):
        if kind in kinds:
            ledger.mark(device_id, fenced=True)
    ledger.set_free(node, tuple(gpu for gpu in ledger.nodes[node].free if gpu not in kinds))


def _explain(
    state: Snapshot,
    excluded: Mapping[str, Mapping[FreeGpu, str]],
    of_policy: Mapping[str, str],
) -> dict[str, str]:
    """The reasons of the policy, and the quota's reason for each excluded GPU."""
    ours: dict[str, str] = {}
    devices = [device for device in state.devices.values() if device.node in excluded]
    for device in sorted(devices, key=lambda each: (natural(each.node), natural(each.name))):
        why = excluded[device.node].get(FreeGpu(device.model, device.memory_bytes))
        if why:
            ours[device.path] = why
    for name in sorted(excluded, key=natural):
        free = [excluded[name][gpu] for gpu in state.nodes[name].free if gpu in excluded[name]]
        if free:
            ours[name] = min(free)
    # The policy did not see all nodes: its reason for the others is replaced.
    kept = {
        place: why
        for place, why in of_policy.items()
        if place not in excluded or why != reasons.NOT_ASKED
    }
    return kept | ours

"""Model quotas, as in Gaia: a namespace's limits for each GPU model.

A row limits what a namespace, or a group in it, holds of one model in some pools; a row that
names no model or no pool covers all of them. A namespace without rows is unlimited. A namespace
with rows may use only GPUs that some row covers, and only while every covering row has room.
What counts is the compute that holders are charged now (:mod:`kubeshare.core.quota.charge`), so
neither rejected nor ended demands count.

In addition, the demands of a group stay on the GPU model that the first of them got, as do the
GPUs of one demand: GPUs of different models do not compute well together. Where a row concerns a
demand without a group, its service is one.

The check wraps any policy: the policy decides about the cluster without the GPUs that the quota
excludes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

import msgspec

from kubeshare.core import reasons
from kubeshare.core.decision import Decision, LazyReasons, Outcome
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, FreeGpu
from kubeshare.core.ledger.history import Snapshot
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.natural_sort import natural
from kubeshare.core.policies import Policy
from kubeshare.core.quota.charge import WHOLE_GPU, ExclusiveDevices, added
from kubeshare.core.quota.index import NodeKind, QuotaIndex
from kubeshare.core.quota.rows import (
    FIELD,
    GROUP_FIELD,
    Place,
    Quota,
    concerning,
    exceeded,
    uncovered,
)
from kubeshare.core.units import MICROS


def fixed(quotas: Iterable[Quota]) -> Callable[[str], Sequence[Quota]]:
    """The rows of each namespace where they never change."""
    rows: dict[str, list[Quota]] = {}
    for quota in quotas:
        rows.setdefault(quota.namespace, []).append(quota)
    return lambda namespace: rows.get(namespace, ())


class QuotaPolicy:
    """A policy that keeps another policy within quotas and groups.

    Args:
        policy: decides.
        quotas: namespace → its rows now.
        refusal: the outcome if only a quota or a group prevents placement.
    """

    def __init__(
        self,
        policy: Policy,
        quotas: Callable[[str], Sequence[Quota]],
        refusal: Outcome = "rejected",
    ) -> None:
        self._policy = policy
        self._quotas = quotas
        self._refusal = refusal

    def __call__(self, ledger: Ledger, demand: Demand) -> Decision:
        """Decide; the field of the decision is ``quota`` or ``group`` if only that prevents it."""
        if not demand.group and not self._quotas(demand.namespace):
            return self._policy(ledger, demand)
        decision = self._decide(ledger, demand)
        if not demand.exclusion or decision.node is None:
            return decision
        # How many GPUs its shares are charged for shows when they are placed.
        rows = concerning(self._quotas(demand.namespace), group_of(demand))
        reason = _exceeded_by(rows, ledger, demand, decision)
        if not reason:
            return decision
        return Decision(outcome=self._refusal, reasons={FIELD: reason}, field=FIELD)

    def _decide(self, ledger: Ledger, demand: Demand) -> Decision:
        bounds = self._bounds(ledger, demand)
        if bounds.nodes is None:
            return self._policy(ledger, bounds.demand)
        nodes = bounds.nodes
        explain = partial(_explain, ledger.snapshot(), nodes)
        if bounds.field:
            why = LazyReasons(partial(explain, {bounds.field: bounds.refusal}))
            return Decision(outcome=self._refusal, reasons=why, field=bounds.field)
        with ledger.what_if():
            _fence(ledger, nodes)
            decision = self._policy(ledger, bounds.demand)
        if nodes.refusal and decision.node is None:
            why = LazyReasons(lambda: explain({FIELD: nodes.refusal, **decision.reasons}))
            return Decision(outcome=self._refusal, reasons=why, field=FIELD)
        explained = LazyReasons(partial(explain, decision.reasons))
        return msgspec.structs.replace(decision, reasons=explained)

    def restrict(self, ledger: Ledger, demand: Demand) -> "Restriction":
        """Take what is excluded for a demand out of a ledger, in a ``what_if`` of the caller."""
        bounds = self._bounds(ledger, demand)
        if bounds.nodes is None:
            return Restriction(bounds.demand)
        _fence(ledger, bounds.nodes)
        left = frozenset() if bounds.refusal else bounds.nodes.left
        excluded = {
            node: min(kinds.values())
            for names, kinds in bounds.nodes.excluded
            for node in names - left
        }
        return Restriction(bounds.demand, excluded, bounds.refusal)

    def _bounds(self, ledger: Ledger, demand: Demand) -> "_Bounds":
        rows = concerning(self._quotas(demand.namespace), group_of(demand))
        if not rows and not demand.group:
            return _Bounds(demand)
        pinned = ledger.index(QuotaIndex).model_of_group(demand.namespace, group_of(demand))
        if pinned and demand.model not in ("", pinned):
            why = f"group {group_of(demand)} is on {pinned}, and {demand.model} is asked"
            return _Bounds(demand, _Nodes(), GROUP_FIELD, why)
        if pinned:
            demand = msgspec.structs.replace(demand, model=pinned)
        if not rows:
            return _Bounds(demand)
        return _within(rows, ledger, demand)


class Restriction(msgspec.Struct, frozen=True):
    """What quotas leave of a cluster for a demand.

    Attributes:
        demand: the demand, restricted to what is left.
        excluded: name of each node of which nothing is left → why.
        refusal: why nothing at all is left; "" if something is.
    """

    demand: Demand
    excluded: Mapping[str, str] = {}
    refusal: str = ""


def group_of(demand: Demand) -> str:
    """The group of a demand where a row concerns it."""
    return demand.group or demand.service


class _Nodes(msgspec.Struct):
    """The nodes that a demand asks for, as quotas see them.

    Attributes:
        open: those with a GPU that would take the demand and that is not excluded.
        left: those, and those on which nothing is excluded.
        excluded: the nodes with excluded GPUs, by kind, and why for each kind of GPU.
        refusals: the nodes with a GPU that would take it and that is excluded, and why.
        charged: the ids of vGPUs on which it is charged nothing more; they are not excluded.
        refusal: why it may use no others; "" if it may.
    """

    open: set[str] = msgspec.field(default_factory=set)
    left: set[str] = msgspec.field(default_factory=set)
    excluded: list[tuple[frozenset[str], dict[FreeGpu, str]]] = msgspec.field(default_factory=list)
    refusals: list[tuple[frozenset[str], FreeGpu, str]] = msgspec.field(default_factory=list)
    charged: set[str] = msgspec.field(default_factory=set)
    refusal: str = ""

    @classmethod
    def within(
        cls, rows: list[Quota], index: QuotaIndex, demand: Demand, held: Counter[Place]
    ) -> "_Nodes":
        found = cls()
        for kind, names in index.node_kinds().items():
            asked = frozenset(names if demand.nodes is None else names & demand.nodes)
            if asked:
                found._add(kind, asked, rows, demand, held)
        return found

    def _add(
        self,
        kind: NodeKind,
        names: frozenset[str],
        rows: list[Quota],
        demand: Demand,
        held: Counter[Place],
    ) -> None:
        why_not = {gpu: _why_not(rows, held, kind, gpu, demand) for gpu in kind.gpus}
        excluded = {gpu: why for gpu, why in why_not.items() if why}
        if excluded:
            self.excluded.append((names, excluded))
        fitting = [gpu for gpu in kind.gpus if _fits(gpu, demand)]
        is_open = any(not why_not[gpu] for gpu in fitting)
        if is_open:
            self.open |= names
        if is_open or not excluded:
            self.left |= names
        self.refusals += [(names, gpu, why_not[gpu]) for gpu in fitting if why_not[gpu]]

    def keep(self, device: Device) -> None:
        """Leave a vGPU on which the demand is charged nothing more."""
        self.charged.add(device.id)
        self.open.add(device.node)
        self.left.add(device.node)

    def first_refusal(self) -> str:
        """Why the first of the nodes is refused."""
        return min((min(map(natural, names)), gpu, why) for names, gpu, why in self.refusals)[2]


class _Bounds(msgspec.Struct, frozen=True):
    """What quotas leave of a cluster for a demand.

    Attributes:
        demand: the demand, restricted to the nodes that are left and to the model of its group.
        nodes: the nodes with GPUs that are excluded; None if nothing is.
        field, refusal: what prevents placement as a whole, and why; "" if nothing does.
    """

    demand: Demand
    nodes: _Nodes | None = None
    field: str = ""
    refusal: str = ""


def _within(rows: list[Quota], ledger: Ledger, demand: Demand) -> _Bounds:
    index = ledger.index(QuotaIndex)
    held = index.used_by(demand.namespace)
    nodes = _Nodes.within(rows, index, demand, held)
    if nodes.refusals and not nodes.open:
        nodes.refusal = nodes.first_refusal()
    if demand.exclusion and nodes.excluded:
        for device in _charged(rows, ledger, demand, held):
            nodes.keep(device)
    if nodes.refusal and not nodes.open:
        return _Bounds(demand, nodes, FIELD, nodes.refusal)
    if not nodes.excluded:
        return _Bounds(demand)
    return _Bounds(msgspec.structs.replace(demand, nodes=frozenset(nodes.left)), nodes)


def _fits(kind: FreeGpu, demand: Demand) -> bool:
    total = kind.memory_bytes
    return demand.model in ("", kind.model) and all(
        wanted.memory.on(total) <= total for wanted in demand.reduced()
    )


def _why_not(
    rows: list[Quota], held: Counter[Place], kind: NodeKind, gpu: FreeGpu, demand: Demand
) -> str:
    """Why the quota excludes GPUs of a kind for a demand; "" if it does not."""
    place = kind.place(gpu.model, group_of(demand))
    if demand.exclusion:
        why = exceeded(rows, held, place, demand.different_gpus() * MICROS)
        return uncovered(rows, place) or (why and f"{why}, {WHOLE_GPU}")
    asked = (wanted.compute_on(gpu.memory_bytes) * wanted.count for wanted in demand.reduced())
    return uncovered(rows, place) or exceeded(rows, held, place, sum(asked))


def _charged(
    rows: list[Quota], ledger: Ledger, demand: Demand, held: Counter[Place]
) -> Iterator[Device]:
    """The vGPUs charged to the namespace as a whole that rows let the demand use."""
    devices, group = ledger.index(ExclusiveDevices), group_of(demand)
    label = ledger.comparable(demand).exclusion
    of_group = devices.of(demand.namespace, label, group)
    for device_id in devices.of(demand.namespace, label):
        device = ledger.devices[device_id]
        asked = demand.nodes is None or device.node in demand.nodes
        if not asked or device.node not in ledger.nodes:
            continue
        place = ledger.index(QuotaIndex).place(device.node, device.model, group)
        more = 0 if device_id in of_group else MICROS
        if not (uncovered(rows, place) or _exceeded(rows, held, place, 0, more)):
            yield device


def _exceeded_by(rows: list[Quota], ledger: Ledger, demand: Demand, decision: Decision) -> str:
    """The row that a decision about a demand with an exclusion label exceeds; "" if none does."""
    models = {device.id: device.model for device in decision.new}
    first, group = decision.devices[0], group_of(demand)
    model = models[first] if first in models else ledger.devices[first].model
    index = ledger.index(QuotaIndex)
    whole, of_group = (added(ledger, demand, decision, of).micros for of in ("", group))
    place = index.place(decision.node or "", model, group)
    why = _exceeded(rows, index.used_by(demand.namespace), place, whole, of_group)
    return why and f"{why}, {WHOLE_GPU}"


def _exceeded(
    rows: list[Quota], held: Counter[Place], place: Place, whole: int, of_group: int
) -> str:
    """As :func:`exceeded`, for different charges of the namespace and of the group."""
    of_namespace = [row for row in rows if not row.group]
    of_its_group = [row for row in rows if row.group]
    return exceeded(of_namespace, held, place, whole) or exceeded(
        of_its_group, held, place, of_group
    )


def _fence(ledger: Ledger, nodes: _Nodes) -> None:
    """Take the excluded GPUs of nodes that stay open out of a ledger."""
    index = ledger.index(QuotaIndex)
    for names, kinds in nodes.excluded:
        for node in sorted(names & nodes.left):
            for device_id, kind in sorted(index.devices_on(node).items()):
                if kind in kinds and device_id not in nodes.charged:
                    ledger.mark(device_id, fenced=True)
            free = ledger.nodes[node].free
            if not kinds.keys().isdisjoint(free):
                ledger.set_free(node, tuple(gpu for gpu in free if gpu not in kinds))


def _explain(state: Snapshot, nodes: _Nodes, of_policy: Mapping[str, str]) -> dict[str, str]:
    """The reasons of the policy, and the quota's reason for each excluded GPU."""
    by_node = {node: kinds for names, kinds in nodes.excluded for node in names}
    ours: dict[str, str] = {}
    devices = [device for device in state.devices.values() if device.node in by_node]
    for device in sorted(devices, key=lambda each: (natural(each.node), natural(each.name))):
        why = by_node[device.node].get(FreeGpu(device.model, device.memory_bytes))
        if why and device.id not in nodes.charged:
            ours[device.path] = why
    for name in sorted(by_node, key=natural):
        free = [by_node[name][gpu] for gpu in state.nodes[name].free if gpu in by_node[name]]
        if free:
            ours[name] = min(free)
    # The policy did not see all nodes: its reason for the others is replaced.
    kept = {
        place: why
        for place, why in of_policy.items()
        if place not in by_node or why != reasons.NOT_ASKED
    }
    return kept | ours

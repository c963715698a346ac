"""Reasons of the binpack policy: why it passed over GPUs and nodes."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from kubeshare.core import reasons
from kubeshare.core.constraints.filter import Filter
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.history import Snapshot
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.natural_sort import natural
from kubeshare.core.policies import opening
from kubeshare.core.policies.binpack.index import order


def candidates(state: Ledger | Snapshot, allowed: Filter) -> Iterator[Device]:
    """The devices of known nodes that the demand may use."""
    for device in state.devices.values():
        if device.node in allowed.nodes and allowed.admits(device.node):
            yield device


def explain(
    state: Snapshot,
    demand: Demand,
    chosen: tuple[Device, ...] = (),
    *,
    opened: int = 0,
    infeasible: tuple[str, str] = ("", ""),
) -> dict[str, str]:
    """Why each device and node was passed over, in natural order, devices first.

    Args:
        state: the cluster at the time of the decision.
        demand: the demand.
        chosen: the devices that were chosen, if any.
        opened: how many of them are new, the last ones.
        infeasible: the field that makes the demand infeasible, and why; empty if none does.
    """
    return _Explanation(state, demand, chosen, opened, infeasible[1]).reasons(infeasible[0])


class _Explanation:
    """The explanation of one decision; see :func:`explain`."""

    def __init__(
        self, state: Snapshot, demand: Demand, chosen: tuple[Device, ...], opened: int, never: str
    ) -> None:
        self._demand = demand
        self._allowed = Filter(state, demand)
        self._chosen = chosen
        self._opened = opened
        self._never = never
        self._nodes = state.nodes
        self._devices = sorted(candidates(state, self._allowed), key=order)
        self._why_not = {device.id: self._allowed.why_not(device) for device in self._devices}
        self._there: dict[str, list[Device]] = defaultdict(list)  # node -> its devices
        # node -> model -> GPUs that fit, free ones included
        self._fitting: dict[str, Counter[str]] = defaultdict(Counter)
        for device in self._devices:
            self._there[device.node].append(device)
            if not self._why_not[device.id]:
                self._fitting[device.node][device.model] += 1
        for node in self._nodes.values():
            if node.free and not self._allowed.only:
                models = [kind.model for kind in opening.suitable(node.free, demand)]
                self._fitting[node.name].update(models)

    def reasons(self, field: str) -> dict[str, str]:
        """See :func:`explain`."""
        taken = {device.id for device in self._chosen}
        result = {
            device.path: self._why_not[device.id] or self._never or self._why_others(device)
            for device in self._devices
            if device.id not in taken
        }
        for name in sorted(self._nodes, key=natural):
            reason = self._why_not_on(self._nodes[name])
            if reason:
                result[name] = reason
        return result | ({field: self._never} if field else {})

    def _why_others(self, device: Device) -> str:
        """Why others were chosen over a device that fits."""
        demand, chosen = self._demand, self._chosen
        alike = self._fitting[device.node][device.model]
        if alike < demand.count:
            return f"fits, but only {alike} of {demand.count} of its model on {device.node} do"
        paths = ", ".join(sorted((taken.path for taken in chosen), key=natural))
        if demand.count > 1:
            return f"fits, but {paths} fit closer or come first"
        if device.memory_left > chosen[0].memory_left:
            return f"fits, but {paths} fits closer"
        return f"fits, but {paths} fits as well and comes first"

    def _why_not_on(self, node: Node) -> str | None:
        """Why no new vGPU was opened on a node; None if none was needed."""
        demand, chosen = self._demand, self._chosen
        if not self._allowed.admits(node.name):
            return reasons.NOT_ASKED
        if chosen and (not self._opened or chosen[0].node == node.name):
            return None
        there = self._there[node.name]
        if reasons.lists_all_gpus(node, there):
            return None
        return (
            self._allowed.only
            or reasons.nothing_to_open(node, there, demand)
            or self._never
            or self._why_opened_elsewhere(node)
        )

    def _why_opened_elsewhere(self, node: Node) -> str:
        """Why a node was passed over that has a free GPU that fits."""
        demand = self._demand
        alike = max(self._fitting[node.name].values())
        if alike < demand.count:
            return f"{alike} suitable GPUs of one model, {demand.count} asked"
        first = self._chosen[0]
        if demand.count > 1:
            return f"those on {first.node} fit closer or come first"
        own = opening.suitable(node.free, demand)[0].memory_bytes
        if own > first.memory_bytes:
            here, there = reasons.two_sizes(own, first.memory_bytes)
            return f"its smallest suitable free GPU has {here}, that of {first.node} {there}"
        return f"a free GPU fits, but {first.node} has one as small and comes first by name"

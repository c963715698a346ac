"""Reasons of the binpack policy: why it passed over GPUs and nodes."""

from collections import Counter, defaultdict

from kubeshare.core import reasons
from kubeshare.core.constraints.filter import Filter, State
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.natural_sort import natural
from kubeshare.core.policies import opening
from kubeshare.core.policies.binpack.index import order
from kubeshare.core.policies.rules import Choice, Refusal


def explain(
    state: State, demand: Demand, choice: Choice | None, infeasible: Refusal
) -> dict[str, str]:
    """See :meth:`kubeshare.core.policies.rules.Rules.explain`."""
    return _Explanation(state, demand, choice, infeasible[1]).reasons(infeasible[0])


class _Explanation:
    """The explanation of one decision; see :func:`explain`."""

    def __init__(self, state: State, demand: Demand, choice: Choice | None, never: str) -> None:
        self._demand = demand
        self._allowed = Filter(state, demand)
        self._chosen = choice.devices if choice else ()
        self._opened = bool(choice and choice.new)
        self._never = never
        self._nodes = nodes = self._allowed.nodes
        admits, known = self._allowed.admits, state.devices.values()
        possible = [each for each in known if each.node in nodes and admits(each.node)]
        self._devices = sorted(possible, key=order)
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

"""Reasons of the locality policy: why it passed over GPUs and nodes.

They are computed when they are read, from a snapshot of the ledger at the time of the decision.
Unlike a decision, they go through all devices.
"""

from kubeshare.core.constraints.filter import Filter, State
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.natural_sort import natural
from kubeshare.core.policies.rules import Choice, Refusal


def explain(
    state: State, demand: Demand, choice: Choice | None, infeasible: Refusal
) -> dict[str, str]:
    """See :meth:`kubeshare.core.policies.rules.Rules.explain`; the demand is for one GPU."""
    return _Explanation(state, demand, choice).reasons(*infeasible)


class _Explanation:
    """The explanation of one decision; see :func:`explain`."""

    def __init__(self, state: State, demand: Demand, choice: Choice | None) -> None:
        self._devices = state.devices
        self._filter = Filter(state, demand)
        self._taken = choice.devices[0] if choice and not choice.new else None
        self._new_on = state.nodes[choice.node] if choice and choice.new else None

    def reasons(self, field: str, never: str) -> dict[str, str]:
        """See :func:`explain`."""
        result: dict[str, str] = {}
        nodes, taken = self._filter.nodes, self._taken
        why_chosen = _WhyChosen(taken) if taken else None
        devices = [each for each in self._devices.values() if self._filter.admits(each.node)]
        orders = {name: natural(name) for name in {*nodes, *(device.node for device in devices)}}
        devices.sort(key=lambda device: (orders[device.node], device.order))
        for device in devices:
            if device is not taken:
                why = self._filter.why_not(device) or never
                if not why:
                    assert why_chosen, f"{device.path} fits, and nothing was chosen"
                    why = why_chosen(device)
                result[device.path] = why
        for name in sorted(nodes, key=orders.__getitem__):
            reason = self._why_not_on(nodes[name])
            if reason:
                result[name] = reason
        if field:
            result[field] = never
        return result

    def _why_not_on(self, node: Node) -> str | None:
        """Why no new vGPU was opened on a node; None if none was needed."""
        if self._taken and self._filter.admits(node.name):
            return None
        reason, chosen = self._filter.why_not_new(node), self._new_on
        if reason or chosen is None or node.name == chosen.name:
            return reason
        if len(node.free) == len(chosen.free):
            return f"as many free GPUs as {chosen.name}, whose name comes first"
        return f"{len(node.free)} free GPUs, and {chosen.name} has {len(chosen.free)}"


class _WhyChosen:
    """Why a device was chosen over another that fits."""

    def __init__(self, chosen: Device) -> None:
        self.labelled = bool(chosen.affinities)
        self.left = (chosen.compute_left, chosen.memory_left)
        self.unlabelled = f"{chosen.path} has none"
        self.alike = f"fits, but {chosen.path} fits as well and comes first"
        self.better = (
            f"fits, but {chosen.path} has more left"
            if self.labelled
            else f"fits, but {chosen.path} fits closer"
        )

    def __call__(self, other: Device) -> str:
        if other.affinities and not self.labelled:
            labels = ", ".join(sorted(other.affinities))
            return f"fits, but has affinity {labels}, and {self.unlabelled}"
        alike = (other.compute_left, other.memory_left) == self.left
        return self.alike if alike else self.better

"""Reasons of the locality policy: why it passed over GPUs and nodes.

They are computed when they are read, from a snapshot of the ledger at the time of the decision.
Unlike a decision, they go through all devices.
"""

from collections.abc import Mapping
from typing import Final, Protocol

from kubeshare.core import reasons
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.natural_sort import natural

_FEASIBLE: Final = ("", "")


class State(Protocol):
    """A ledger or a snapshot of one."""

    @property
    def nodes(self) -> Mapping[str, Node]:
        """Name → node."""

    @property
    def devices(self) -> Mapping[str, Device]:
        """GPUID → device."""


def why_not(state: State, demand: Demand, device: Device) -> str | None:
    """Why a device does not fit a demand, regardless of affinity; None if it does."""
    return _out_of_service(state.nodes, device) or _limits(device, demand)


def explain(
    state: State,
    demand: Demand,
    *,
    taken: str = "",
    new_on: str = "",
    infeasible: tuple[str, str] = _FEASIBLE,
) -> dict[str, str]:
    """Why each device and node was passed over: devices first, each in natural order.

    Args:
        state: the cluster at the time of the decision.
        demand: the demand.
        taken: the id of the existing device that was chosen, if any.
        new_on: the node that gets a new vGPU, if any.
        infeasible: the field that makes the demand infeasible, and why; empty if none does.
    """
    return Explanation(state, demand, taken, new_on).reasons(*infeasible)


class Explanation:
    """The explanation of one decision; see :func:`explain`.

    Attributes:
        bound_to: why only certain existing devices may be used and no new one, or "".
    """

    def __init__(self, state: State, demand: Demand, taken: str = "", new_on: str = "") -> None:
        self.state = state
        self.nodes = state.nodes  # reading it from a snapshot has a cost
        self.demand = demand
        self.taken = state.devices[taken] if taken else None
        self.new_on = state.nodes[new_on] if new_on else None
        self.bound_to = self._by_id() or self._by_label()

    def reasons(self, field: str, never: str) -> dict[str, str]:
        """See :func:`explain`."""
        result: dict[str, str] = {}
        nodes = self.nodes
        why_chosen = _WhyChosen(self.taken) if self.taken else None
        devices = [device for device in self.state.devices.values() if self.admits(device.node)]
        orders = {name: natural(name) for name in {*nodes, *(device.node for device in devices)}}
        devices.sort(key=lambda device: (orders[device.node], device.order))
        for device in devices:
            if device is not self.taken:
                why = self.why_not(device) or never
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

    def admits(self, node: str) -> bool:
        """Whether the demand may use this node."""
        return self.demand.nodes is None or node in self.demand.nodes

    def _by_id(self) -> str:
        """A requested vGPU that exists is the only candidate."""
        requested = self.demand.device_id
        return f"vGPU {requested} is asked for" if requested in self.state.devices else ""

    def _by_label(self) -> str:
        """Lines 1-3: vGPUs with the affinity label are the only candidates, in any state."""
        label = self.demand.affinity
        if not label or self.demand.device_id:
            return ""
        carriers = [
            device.path for device in self.state.devices.values() if label in device.affinities
        ]
        if not carriers:
            return ""
        return f"affinity {label} is on {', '.join(sorted(carriers, key=natural))}"

    def why_not(self, device: Device) -> str | None:
        """Why a device does not fit the demand; None if it does."""
        return (
            _out_of_service(self.nodes, device)
            or self._why_not_by_affinity(device)
            or _limits(device, self.demand)
        )

    def _why_not_by_affinity(self, device: Device) -> str | None:
        demand = self.demand
        if demand.device_id:
            return (
                None if device.id == demand.device_id else f"vGPU {demand.device_id} is asked for"
            )
        if self.bound_to:
            return None if demand.affinity in device.affinities else self.bound_to
        # Line 9.
        if demand.affinity and not device.idle:
            return f"occupied, and affinity {demand.affinity} asks for an idle or a new vGPU"
        return None

    def _why_not_on(self, node: Node) -> str | None:
        """Why no new vGPU was opened on a node; None if none was needed."""
        if not self.admits(node.name):
            return reasons.NOT_ASKED
        if self.taken:
            return None
        if self.bound_to:
            return self.bound_to
        reason = reasons.no_free_gpu(node.free, self.demand)
        chosen = self.new_on
        if reason or chosen is None or node.name == chosen.name:
            return reason
        if len(node.free) == len(chosen.free):
            return f"as many free GPUs as {chosen.name}, whose name comes first"
        return f"{len(node.free)} free GPUs, and {chosen.name} has {len(chosen.free)}"


def _out_of_service(nodes: Mapping[str, Node], device: Device) -> str | None:
    if device.node not in nodes:
        return f"node {device.node} is not known"
    return reasons.service(device)


def _limits(device: Device, demand: Demand) -> str | None:
    return (
        reasons.model(device, demand)
        # Lines 4 and 18.
        or reasons.exclusion(device, demand)
        # Lines 5 and 19.
        or reasons.anti_affinity(device, demand)
        # Lines 6 and 20.
        or reasons.room(device, demand)
    )


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

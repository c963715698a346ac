"""Why the locality policy passed over a GPU or a node, in words with numbers.

The words are made when somebody reads them, from a snapshot of the ledger as it was
when the decision was made. They look at everything, which a decision does not.
"""

from collections.abc import Mapping
from typing import Final, Protocol

from kubeshare.core import reasons
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.natural_sort import natural

_NO: Final = ("", "")


class State(Protocol):
    """A ledger or a snapshot of one."""

    @property
    def nodes(self) -> Mapping[str, Node]:
        """Name → node."""

    @property
    def devices(self) -> Mapping[str, Device]:
        """GPUID → device."""


def why_not(state: State, demand: Demand, device: Device) -> str | None:
    """Why a device cannot take a demand, wherever affinity would have it go."""
    return _out_of_service(state.nodes, device) or _limits(device, demand)


def tell(
    state: State, demand: Demand, *, taken: str = "", home: str = "", never: tuple[str, str] = _NO
) -> dict[str, str]:
    """Why each device and node was passed over: devices first, each in natural order.

    Args:
        state: as it was when the decision was made.
        demand: who asked.
        taken: the id of the device of the ledger that was taken, if one was.
        home: the node that gets a new vGPU, if one does.
        never: the field that makes the demand impossible, and why; empty if it is not.
    """
    return Telling(state, demand, taken, home).words(*never)


class Telling:
    """What is the same for all devices and nodes of one answer; see :func:`tell`.

    Attributes:
        bound_to: why only certain existing devices may be used and no new one, or "".
    """

    def __init__(self, state: State, demand: Demand, taken: str = "", home: str = "") -> None:
        self.state = state
        self.nodes = state.nodes  # of a snapshot this is not for nothing
        self.demand = demand
        self.taken = state.devices[taken] if taken else None
        self.home = state.nodes[home] if home else None
        self.bound_to = self._by_id() or self._by_label()

    def words(self, field: str, never: str) -> dict[str, str]:
        """As :func:`tell`."""
        told: dict[str, str] = {}
        nodes = self.nodes
        why_rather = _WhyRather(self.taken) if self.taken else None
        devices = [device for device in self.state.devices.values() if self.admits(device.node)]
        orders = {name: natural(name) for name in {*nodes, *(device.node for device in devices)}}
        devices.sort(key=lambda device: (orders[device.node], device.order))
        for device in devices:
            if device is not self.taken:
                why = self.why_not(device) or never
                if not why:
                    assert why_rather, f"{device.path} fits, and nothing was chosen"
                    why = why_rather(device)
                told[device.path] = why
        for name in sorted(nodes, key=orders.__getitem__):
            reason = self._why_not_on(nodes[name])
            if reason:
                told[name] = reason
        if field:
            told[field] = never
        return told

    def admits(self, node: str) -> bool:
        """The demand may go to this node."""
        return self.demand.nodes is None or node in self.demand.nodes

    def _by_id(self) -> str:
        """A vGPU that is asked for by its id and exists is the only one."""
        wanted = self.demand.device_id
        return f"vGPU {wanted} is asked for" if wanted in self.state.devices else ""

    def _by_label(self) -> str:
        """Lines 1-3: where the affinity label is, whatever else is true of that vGPU."""
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
        """Why a device cannot take the demand, wherever it is; None when it can."""
        return (
            _out_of_service(self.nodes, device)
            or self._why_not_by_affinity(device)
            or _limits(device, self.demand)
        )

    def _why_not_by_affinity(self, device: Device) -> str | None:
        asked = self.demand
        if asked.device_id:
            return None if device.id == asked.device_id else f"vGPU {asked.device_id} is asked for"
        if self.bound_to:
            return None if asked.affinity in device.affinities else self.bound_to
        # Line 9.
        if asked.affinity and not device.idle:
            return f"occupied, and affinity {asked.affinity} asks for an idle or a new vGPU"
        return None

    def _why_not_on(self, node: Node) -> str | None:
        """Why no new vGPU was opened on a node; nothing where none had to be."""
        if not self.admits(node.name):
            return reasons.NOT_ASKED
        if self.taken:
            return None
        if self.bound_to:
            return self.bound_to
        reason = reasons.no_free_gpu(node.free, self.demand)
        home = self.home
        if reason or home is None or node.name == home.name:
            return reason
        if len(node.free) == len(home.free):
            return f"as many free GPUs as {home.name}, whose name comes first"
        return f"{len(node.free)} free GPUs, and {home.name} has {len(home.free)}"


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


class _WhyRather:
    """Why a device was chosen and not another that fits."""

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

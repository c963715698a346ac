"""What the locality policy may choose from, and why it passes over the rest.

Steps 1 and 2 of Algorithm 1. Choosing and explaining ask the same questions in the
same place, so that a reason can never contradict the choice.
"""

from kubeshare.core import reasons
from kubeshare.core.demand import Demand
from kubeshare.core.device import Device, Node, natural
from kubeshare.core.ledger import Ledger


class Search:
    """Steps 1 and 2: which devices may be used, and why the others may not.

    Attributes:
        bound_to: why only certain existing devices may be used and no new one, or "".
        fitting: the devices that may be used.
        passed: those that may not, with the reason.
    """

    def __init__(self, ledger: Ledger, demand: Demand) -> None:
        self.ledger = ledger
        self.demand = demand
        self.bound_to = self._by_id() or self._by_label()
        self.fitting: list[Device] = []
        self.passed: list[tuple[Device, str]] = []
        # Line 16.
        for device in ledger.devices.values():
            if not self.admits(device.node):
                continue
            reason = self._why_not(device)
            if reason:
                self.passed.append((device, reason))
            else:
                self.fitting.append(device)

    def admits(self, node: str) -> bool:
        """The demand may go to this node."""
        return self.demand.nodes is None or node in self.demand.nodes

    def home(self) -> Node | None:
        """Lines 10 and 24: the node that would get a new vGPU."""
        homes = [
            node
            for node in self.ledger.nodes.values()
            if self.admits(node.name) and not reasons.no_free_gpu(node.free, self.demand)
        ]
        return min(homes, key=lambda node: (len(node.free), natural(node.name)), default=None)

    def reasons(
        self, *, chosen: Device | None = None, home: Node | None = None, never: str = ""
    ) -> dict[str, str]:
        """Why each device and node was passed over: devices first, each in natural order.

        Args:
            chosen: the device that was taken, if one was.
            home: the node that gets a new vGPU, if one does.
            never: why the demand is impossible, if it is.
        """
        passed = list(self.passed)
        for device in self.fitting:
            if never:
                passed.append((device, never))
            elif chosen and device.id != chosen.id:
                passed.append((device, _why_rather(chosen, device)))
        passed.sort(key=lambda entry: (natural(entry[0].node), natural(entry[0].id)))
        words = {device.path: reason for device, reason in passed}
        for name in sorted(self.ledger.nodes, key=natural):
            reason = self._why_not_on(self.ledger.nodes[name], chosen, home)
            if reason:
                words[name] = reason
        return words

    def _by_id(self) -> str:
        """A vGPU that is asked for by its id and exists is the only one."""
        wanted = self.demand.device_id
        return f"vGPU {wanted} is asked for" if wanted in self.ledger.devices else ""

    def _by_label(self) -> str:
        """Lines 1-3: where the affinity label is, whatever else is true of that vGPU."""
        label = self.demand.affinity
        if not label or self.demand.device_id:
            return ""
        carriers = [
            device.path for device in self.ledger.devices.values() if label in device.affinities
        ]
        if not carriers:
            return ""
        return f"affinity {label} is on {', '.join(sorted(carriers, key=natural))}"

    def _why_not(self, device: Device) -> str | None:
        demand = self.demand
        if device.node not in self.ledger.nodes:
            return f"node {device.node} is not known"
        return (
            reasons.service(device)
            or self._why_not_by_affinity(device)
            or reasons.model(device, demand)
            # Lines 4 and 18.
            or reasons.exclusion(device, demand)
            # Lines 5 and 19.
            or reasons.anti_affinity(device, demand)
            # Lines 6 and 20.
            or reasons.room(device, demand)
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

    def _why_not_on(self, node: Node, chosen: Device | None, home: Node | None) -> str | None:
        """Why no new vGPU was opened on a node; nothing where none had to be."""
        if not self.admits(node.name):
            return "not among the nodes asked for"
        if chosen:
            return None
        if self.bound_to:
            return self.bound_to
        reason = reasons.no_free_gpu(node.free, self.demand)
        if reason or home is None or node.name == home.name:
            return reason
        if len(node.free) == len(home.free):
            return f"as many free GPUs as {home.name}, whose name comes first"
        return f"{len(node.free)} free GPUs, and {home.name} has {len(home.free)}"


def _why_rather(chosen: Device, other: Device) -> str:
    """Why another device that fits was chosen."""
    if other.affinities and not chosen.affinities:
        labels = ", ".join(sorted(other.affinities))
        return f"fits, but has affinity {labels}, and {chosen.path} has none"
    if (chosen.compute_left, chosen.memory_left) == (other.compute_left, other.memory_left):
        return f"fits, but {chosen.path} fits as well and comes first"
    if chosen.affinities:
        return f"fits, but {chosen.path} has more left"
    return f"fits, but {chosen.path} fits closer"

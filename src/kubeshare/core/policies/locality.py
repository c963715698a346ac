"""Placement by locality: Algorithm 1 of the KubeShare paper (HPDC '20, 4.3), as meant.

Comments name the lines of the printed algorithm. It has slips; where its text
and its print differ the text is followed:

* lines 4-6 print "return -1": here the demand waits, and is told why;
* lines 5 and 19 print a subset: one label is asked, so it is membership;
* line 9 and 10 do not check that the demand fits the device: here it must;
* line 17 prints "false": it is the idle devices that pass unfiltered, and also
  they must have the room;
* line 24 opens a device also where no physical GPU is left: here it waits.

Ties never depend on an order of listing. Best fit is the least compute left,
then the least memory left, then the id; worst fit the most of both, then the id.
"""

from hashlib import blake2b
from itertools import count
from typing import Final

from kubeshare.core import reasons
from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand
from kubeshare.core.device import Device, FreeGpu, Node, natural
from kubeshare.core.ledger import Ledger

RESERVED_PREFIX: Final = "vgpu-"
"""What the ids of generated vGPUs begin with; nobody else may make one up."""


def decide(ledger: Ledger, demand: Demand) -> Decision:
    """Where a demand goes; a pure function of its arguments.

    Returns:
        ``bound`` to a device of the ledger or to a new one, ``pending`` until something
        changes, or ``rejected`` because no GPU of this cluster could ever take it.
    """
    search = _Search(ledger, demand)
    never = _never(ledger, demand)
    if never:
        field, message = never
        return Decision(
            outcome="rejected",
            reasons=search.reasons(never=message) | {field: message},
            field=field,
        )
    chosen = _choose(search.fitting)
    if chosen:
        return Decision(
            outcome="bound",
            node=chosen.node,
            devices=(chosen.id,),
            reasons=search.reasons(chosen=chosen),
        )
    home = None if search.bound_to else search.home()
    if home:
        new = _new_device(ledger, demand, home)
        return Decision(
            outcome="bound",
            node=home.name,
            devices=(new.id,),
            new=(new,),
            reasons=search.reasons(home=home),
        )
    return Decision(outcome="pending", reasons=search.reasons())


class _Search:
    """Steps 1 and 2: which devices may be used, and why the others may not.

    Attributes:
        bound_to: why only certain existing devices may be used and no new one, or "".
        fitting: the devices that may be used.
        passed: those that may not, with the reason.
    """

    def __init__(self, ledger: Ledger, demand: Demand) -> None:
        self.ledger = ledger
        self.demand = demand
        label = demand.affinity
        # Lines 1-2. A vGPU that is asked for by its id is a label that only it can carry.
        self.labelled = sorted(
            (
                device.path
                for device in ledger.devices.values()
                if label and not demand.device_id and label in device.affinities
            ),
            key=natural,
        )
        self.bound_to = self._bound_to()
        self.fitting: list[Device] = []
        self.passed: list[tuple[Device, str]] = []
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

    def _bound_to(self) -> str:
        if self.demand.device_id in self.ledger.devices:
            return f"vGPU {self.demand.device_id} is asked for"
        # Line 3.
        if self.labelled:
            return f"affinity {self.demand.affinity} is on {', '.join(self.labelled)}"
        return ""

    def _why_not(self, device: Device) -> str | None:
        demand = self.demand
        if device.node not in self.ledger.nodes:
            return f"node {device.node} is not known"
        reason = reasons.service(device) or self._why_not_by_affinity(device)
        return (
            reason
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
        if self.labelled:
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


def _choose(fitting: list[Device]) -> Device | None:
    """Step 3, lines 21-23."""
    unlabelled = [device for device in fitting if not device.affinities]
    if unlabelled:
        return min(unlabelled, key=_best_fit)
    return min(fitting, key=_worst_fit, default=None)


def _best_fit(device: Device) -> tuple[object, ...]:
    return (device.compute_left, device.memory_left, natural(device.id))


def _worst_fit(device: Device) -> tuple[object, ...]:
    return (-device.compute_left, -device.memory_left, natural(device.id))


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


def _new_device(ledger: Ledger, demand: Demand, home: Node) -> Device:
    """The smallest free GPU of the node that will do, as an idle vGPU."""
    gpu = min(
        (gpu for gpu in home.free if not reasons.no_free_gpu((gpu,), demand)),
        key=lambda gpu: (gpu.memory, gpu.model),
    )
    return Device(
        id=demand.device_id or _new_id(ledger, demand),
        node=home.name,
        model=gpu.model,
        memory=gpu.memory,
    )


def _new_id(ledger: Ledger, demand: Demand) -> str:
    """An id that follows from the demand alone and that no device has."""
    ids = (_hashed_id(demand.uid, attempt) for attempt in count(demand.attempt))
    return next(new_id for new_id in ids if new_id not in ledger.devices)


def _hashed_id(uid: str, attempt: int) -> str:
    return RESERVED_PREFIX + blake2b(f"{uid}/{attempt}".encode(), digest_size=5).hexdigest()


def _never(ledger: Ledger, demand: Demand) -> tuple[str, str] | None:
    """The field by which no GPU of this cluster can ever take the demand, and why."""
    wanted = demand.device_id
    if demand.count > 1:
        return "count", f"{demand.count} GPUs asked, and the locality policy places one"
    if wanted.startswith(RESERVED_PREFIX) and wanted not in ledger.devices:
        return "id", f"there is no vGPU {wanted}, and new ones of that prefix are not for users"
    kinds = {FreeGpu(device.model, device.memory) for device in ledger.devices.values()}
    for node in ledger.nodes.values():
        kinds |= node.kinds | set(node.free)
    if not kinds:
        # A cluster whose nodes have not been looked at yet says nothing about "ever".
        return None
    sizes = [kind.memory for kind in kinds if demand.model in ("", kind.model)]
    if not sizes:
        return "model", f"no GPU of model {demand.model} in this cluster"
    asked = demand.memory.on(max(sizes))
    if asked > max(sizes):
        has, wants = reasons.two_sizes(max(sizes), asked)
        return "memory", f"{wants} asked, and the largest GPU has {has}"
    return None

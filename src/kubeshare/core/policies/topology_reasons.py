"""Why the topology policy passed over a GPU or a node, in words with numbers.

Choosing works on rankings; explaining looks at every device of a ledger (or of a
snapshot of it) once more and compares what it could have given with what was chosen.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Final, Protocol

from kubeshare.core import reasons
from kubeshare.core.demand import Demand
from kubeshare.core.device import Device, Node, natural
from kubeshare.core.policies.topology_index import Place
from kubeshare.core.policies.topology_state import NodeState, whole_gpus
from kubeshare.core.topology.closest import FragmentScore, Score, SingularScore
from kubeshare.core.topology.links import name_of
from kubeshare.core.topology.subsets import LinkScore


class State(Protocol):
    """A ledger, or a snapshot of one."""

    @property
    def nodes(self) -> Mapping[str, Node]:
        """Name → node."""

    @property
    def devices(self) -> Mapping[str, Device]:
        """GPUID → device."""


def explain(
    state: State,
    demand: Demand,
    place: Place | None = None,
    *,
    impossible: tuple[str, str] = ("", ""),
) -> dict[str, str]:
    """Why each device and node was passed over: devices first, each in natural order.

    Args:
        state: of the cluster when the decision was made.
        demand: who asked.
        place: what was chosen, if anything was.
        impossible: the field that makes the demand impossible, and why; empty if none does.
    """
    field, never = impossible
    devices_of: dict[str, list[Device]] = defaultdict(list)
    for device in state.devices.values():
        devices_of[device.node].append(device)
    names = sorted(state.nodes.keys() | devices_of.keys(), key=natural)
    words: dict[str, str] = {}
    for name in names:
        if demand.nodes is None or name in demand.nodes:
            node = state.nodes.get(name)
            on_node = _OnNode(node, devices_of[name], demand, place, never)
            words |= on_node.reasons() if name in devices_of else {}
    for name in names:
        if demand.nodes is not None and name not in demand.nodes:
            words[name] = "not among the nodes asked for"
        elif not devices_of[name]:
            words[name] = "no GPU"
    return words | ({field: never} if field else {})


class _OnNode:
    """The reasons for the devices of one node."""

    def __init__(
        self,
        node: Node | None,
        devices: list[Device],
        demand: Demand,
        place: Place | None,
        never: str,
    ) -> None:
        self._node = node
        self._demand = demand
        self._place = place
        self._never = never
        self._whole = whole_gpus(demand)
        self._state = NodeState(node or Node(""), devices)
        self._fitting = {
            number: device
            for number, device in self._state.devices.items()
            if not self._why_not(device)
        }

    def reasons(self) -> dict[str, str]:
        """Path → reason, for each device that was not taken."""
        taken = {device.id for device in self._place.devices} if self._place else set()
        return {
            device.path: self._why_not(device) or self._never or self._why_rather(number, device)
            for number, device in sorted(self._state.devices.items())
            if device.id not in taken
        }

    def _why_not(self, device: Device) -> str | None:
        """Why a device cannot be used, whatever else there is."""
        if self._node is None:
            return f"node {device.node} is not known"
        demand = self._demand
        reason = (
            reasons.service(device) or reasons.model(device, demand) or reasons.room(device, demand)
        )
        if not reason and self._whole and not device.idle:
            held = ", ".join(holder.name for holder in device.holders)
            return f"held by {held}, and a whole GPU is asked"
        return reason

    def _why_rather(self, number: int, device: Device) -> str:
        """Why a device that would do was not taken."""
        alike = sum(1 << at for at, other in self._fitting.items() if other.model == device.model)
        if alike.bit_count() < self._whole:
            return f"idle, but {alike.bit_count()} such on this node, {self._whole} asked"
        assert self._place is not None, "what would do is taken"
        chosen = ", ".join(other.path for other in self._place.devices)
        if self._place.score is None:
            return _why_in_use(device, self._place.devices[0])
        own = alike if self._whole > 1 else 1 << number
        best = self._state.closest.best(self._state.idle, own, self._whole)
        assert best is not None, "there are enough"
        if best[0] != self._place.score:
            return f"idle, but {_difference(best[0], self._place.score, chosen)}"
        if device.node != self._place.node:
            return f"idle, but {chosen} is as good, on a node with less left or first by name"
        if self._whole > 1:
            return f"idle, but {chosen} are nearer, break fewer groups or come first"
        return f"idle, but {chosen} is as good and comes first"


def _why_in_use(device: Device, chosen: Device) -> str:
    """Why another device that is in use was taken for a fraction."""
    if device.idle:
        return f"idle, and {chosen.path} is in use and has room"
    if (chosen.compute_left, chosen.memory_left) == (device.compute_left, device.memory_left):
        return f"fits, but {chosen.path} fits as well and comes first"
    return f"fits, but {chosen.path} fits closer"


_COMPARED: Final = {
    (FragmentScore, "cost"): "access cost is {mine}, of {chosen} {theirs}",
    (FragmentScore, "whole"): "the first of its group, and the group of {chosen} is in use",
    (SingularScore, "company"): "the siblings of {chosen} are all busy, and here they are not",
    (SingularScore, "cost"): "access cost is {mine}, of {chosen} {theirs}",
    (SingularScore, "broken"): "breaks {mine} whole groups, {chosen} {theirs}",
    (SingularScore, "around"): "has more idle GPUs around it than {chosen}",
    (LinkScore, "level"): "the best here are linked by {mine}, {chosen} by {theirs}",
    (LinkScore, "total"): "links of the best here cost {mine} in all, of {chosen} {theirs}",
    (LinkScore, "broken"): "the best here break {mine} whole groups, {chosen} {theirs}",
    (LinkScore, "around"): "the best here have more idle GPUs around them than {chosen}",
}


def _difference(mine: Score, theirs: Score, chosen: str) -> str:
    """The first in which two scores of one rule differ."""
    for field in mine._fields:
        here, there = getattr(mine, field), getattr(theirs, field)
        if here != there:
            if field in ("cost", "level"):
                here, there = name_of(here), name_of(there)
            return _COMPARED[type(mine), field].format(mine=here, theirs=there, chosen=chosen)
    raise AssertionError("the scores are equal")

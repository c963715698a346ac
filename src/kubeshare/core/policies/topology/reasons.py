"""Why the topology policy passed over a GPU or a node, in words with numbers.

Choosing works on rankings; explaining looks at every device of a ledger (or of a
snapshot of it) once more and compares what it could have given with what was chosen.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Final, Protocol

from kubeshare.core import reasons
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.natural_sort import natural
from kubeshare.core.policies.topology.index import Place
from kubeshare.core.policies.topology.node_state import NodeState, whole_gpus
from kubeshare.core.topology.links import name_of
from kubeshare.core.topology.selection import FragmentScore, Score, SingularScore
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
    answer = _Answer(demand, place, never)
    for name in names:
        if name in devices_of and (demand.nodes is None or name in demand.nodes):
            words |= _OnNode(state.nodes.get(name), devices_of[name], answer).reasons()
    for name in names:
        if demand.nodes is not None and name not in demand.nodes:
            words[name] = "not among the nodes asked for"
        elif name not in devices_of:
            words[name] = "no GPU"
    return words | ({field: never} if field else {})


class _Answer:
    """What was asked and chosen, and the words that many devices share.

    Attributes:
        demand: who asked.
        whole: how many whole GPUs; 0 is a fraction.
        place: what was chosen, if anything was.
        never: why the demand is impossible, if it is.
        taken: the ids of the chosen devices.
        chosen: their paths, for people.
    """

    def __init__(self, demand: Demand, place: Place | None, never: str) -> None:
        self.demand = demand
        self.whole = whole_gpus(demand)
        self.place = place
        self.never = never
        devices = place.devices if place else ()
        self.taken = {device.id for device in devices}
        self.chosen = ", ".join(device.path for device in devices)
        self._differences: dict[Score, str] = {}

    def difference(self, mine: Score, theirs: Score) -> str:
        """The first in which a score differs from that of what was chosen."""
        if mine not in self._differences:
            self._differences[mine] = _difference(mine, theirs, self.chosen)
        return self._differences[mine]


class _OnNode:
    """The reasons for the devices of one node."""

    def __init__(self, node: Node | None, devices: list[Device], answer: _Answer) -> None:
        self._node = node
        self._answer = answer
        self._state = NodeState(node or Node(""), devices)
        self._unfit = {
            number: self._why_not(device) for number, device in self._state.devices.items()
        }
        self._alike: dict[str, int] = defaultdict(int)  # model -> those that would do, as bits
        for number, device in self._state.devices.items():
            if not self._unfit[number]:
                self._alike[device.model] |= 1 << number

    def reasons(self) -> dict[str, str]:
        """Path → reason, for each device that was not taken."""
        never, taken = self._answer.never, self._answer.taken
        return {
            device.path: self._unfit[number] or never or self._why_rather(number, device)
            for number, device in sorted(self._state.devices.items())
            if device.id not in taken
        }

    def _why_not(self, device: Device) -> str | None:
        """Why a device cannot be used, whatever else there is."""
        if self._node is None:
            return f"node {device.node} is not known"
        demand = self._answer.demand
        reason = (
            reasons.service(device) or reasons.model(device, demand) or reasons.room(device, demand)
        )
        if not reason and self._answer.whole and not device.idle:
            held = ", ".join(holder.name for holder in device.holders)
            return f"held by {held}, and a whole GPU is asked"
        return reason

    def _why_rather(self, number: int, device: Device) -> str:
        """Why a device that would do was not taken."""
        alike = self._alike[device.model]
        whole, place, chosen = self._answer.whole, self._answer.place, self._answer.chosen
        if alike.bit_count() < whole:
            return f"idle, but {alike.bit_count()} such on this node, {whole} asked"
        assert place is not None, "what would do is taken"
        if place.score is None:
            return _why_in_use(device, place.devices[0])
        own = alike if whole > 1 else 1 << number
        best = self._state.closest.best(self._state.idle, own, whole)
        assert best is not None, "there are enough"
        if best[0] != place.score:
            return f"idle, but {self._answer.difference(best[0], place.score)}"
        if device.node != place.node:
            return f"idle, but {chosen} is as good, on a node with less left or first by name"
        if whole > 1:
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

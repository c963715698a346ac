"""Reasons of the topology policy: why it passed over GPUs and nodes.

A decision uses rankings; an explanation goes through every device of a ledger or a snapshot and
compares what it could have given with what was chosen.
"""

from collections import defaultdict
from typing import Final

from kubeshare.core import reasons
from kubeshare.core.constraints.filter import Filter, State
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.natural_sort import natural
from kubeshare.core.policies import opening
from kubeshare.core.policies.rules import Refusal
from kubeshare.core.policies.topology.index import Placement
from kubeshare.core.policies.topology.node_state import NodeState, OpeningScore, whole_gpus
from kubeshare.core.topology.links import name_of, without_counts
from kubeshare.core.topology.selection import FragmentScore, Score, SingularScore
from kubeshare.core.topology.subsets import LinkScore


def explain(
    state: State, demand: Demand, place: Placement | None, infeasible: Refusal
) -> dict[str, str]:
    """See :meth:`kubeshare.core.policies.rules.Rules.explain`."""
    field, never = infeasible
    devices_of: dict[str, list[Device]] = defaultdict(list)
    for device in state.devices.values():
        devices_of[device.node].append(device)
    names = sorted(state.nodes.keys() | devices_of.keys(), key=natural)
    result: dict[str, str] = {}
    of_nodes: dict[str, str] = {}
    decided = _Decided(Filter(state, demand), place, never)
    for name in names:
        if demand.nodes is not None and name not in demand.nodes:
            of_nodes[name] = reasons.NOT_ASKED
            continue
        node = state.nodes.get(name)
        on_node = _OnNode(node, devices_of.get(name, []), decided)
        result |= on_node.reasons()
        why = on_node.why_none_opened(node) if node else None
        if why:
            of_nodes[name] = why
    return result | of_nodes | ({field: never} if field else {})


class _Decided:
    """The demand, the choice, and messages that many devices share.

    Attributes:
        allowed: what the demand may use.
        whole: how many whole GPUs; 0 is a fraction.
        place: what was chosen, if anything.
        never: why the demand is infeasible, if it is.
        taken: the ids of the chosen devices.
        chosen: their paths, for messages.
    """

    def __init__(self, allowed: Filter, place: Placement | None, never: str) -> None:
        self.allowed = allowed
        self.whole = whole_gpus(allowed.demand)
        self.place = place
        self.never = never
        devices = place.devices if place else ()
        self.taken = {device.id for device in devices}
        self.chosen = ", ".join(device.path for device in devices)
        self._differences: dict[Score, str] = {}

    def difference(self, mine: Score, theirs: Score) -> str:
        """How a score first differs from that of the chosen set."""
        if mine not in self._differences:
            self._differences[mine] = _difference(mine, theirs, self.chosen)
        return self._differences[mine]


class _OnNode:
    """The reasons for the devices of one node."""

    def __init__(self, node: Node | None, devices: list[Device], decided: _Decided) -> None:
        self._decided = decided
        self._devices = devices
        self._state = NodeState(node or Node(""), devices)
        self._unfit = {
            number: self._why_not(device) for number, device in self._state.devices.items()
        }
        self._alike: dict[str, int] = defaultdict(int)  # model -> devices that fit, as bits
        for number, device in self._state.devices.items():
            if not self._unfit[number]:
                self._alike[device.model] |= 1 << number

    def reasons(self) -> dict[str, str]:
        """Path → reason, for each device that was not taken."""
        never, taken = self._decided.never, self._decided.taken
        return {
            device.path: self._unfit[number] or never or self._why_others(number, device)
            for number, device in sorted(self._state.devices.items())
            if device.id and device.id not in taken
        }

    def why_none_opened(self, node: Node) -> str | None:
        """Why no new vGPU was opened on this node; None if that is not to be explained."""
        decided, place = self._decided, self._decided.place
        if not (node.free or self._devices or node.total):
            return "no GPU"
        if reasons.lists_all_gpus(node, self._devices):
            return None
        if place is not None and (not place.new or place.node == node.name):
            return None
        allowed = decided.allowed
        reason = allowed.only or reasons.nothing_to_open(node, self._devices, allowed.demand)
        reason = reason or decided.never
        if reason:
            return reason
        whole = max(decided.whole, 1)
        enough = max(map(self._suitable, {kind.model for kind in node.free}))
        if enough < whole:
            return f"{enough} suitable GPUs of one model, {whole} asked"
        assert place is not None, "a GPU that fits would have been chosen"
        return self._why_opened_elsewhere(place)

    def _why_opened_elsewhere(self, place: Placement) -> str:
        """Why new vGPUs were opened on another node, though this one has enough free GPUs."""
        decided = self._decided
        first = decided.chosen
        if isinstance(place.score, OpeningScore) or place.score is None:
            return f"{first} opens fewer vGPUs, is smaller, or is on a node with less left"
        sets = [
            self._state.closest.best(self._state.idle, gpus & self._state.idle, decided.whole)
            for gpus in self._alike.values()
        ]
        best = min((found[0] for found in sets if found), default=None)
        if best is None:
            return f"the device plugin chooses its free GPUs, and {first} could be chosen"
        if best != place.score:
            return decided.difference(best, place.score)
        return f"{first} is as good, on a node with less left or first by name"

    def _suitable(self, model: str) -> int:
        """How many GPUs of one model fit, including those that can be opened."""
        allowed = self._decided.allowed
        if allowed.only:
            return self._alike[model].bit_count()
        unplaced = opening.suitable(self._state.unplaced, allowed.demand)
        opened = sum(kind.model == model for kind in unplaced)
        return self._alike[model].bit_count() + opened

    def _why_not(self, device: Device) -> str | None:
        """Why a device cannot be used, regardless of others."""
        reason = self._decided.allowed.why_not(device)
        if not reason and self._decided.whole and not device.idle:
            held = reasons.readable_names(device.holders, self._decided.allowed.demand.namespace)
            return f"held by {held}, and a whole GPU is asked"
        return reason

    def _why_others(self, number: int, device: Device) -> str:
        """Why a device that fits was not chosen."""
        decided, suitable = self._decided, self._suitable(device.model)
        if suitable < decided.whole:
            return f"idle, but {suitable} such on this node, {decided.whole} asked"
        place, chosen = decided.place, decided.chosen
        assert place is not None, "a device that fits would have been chosen"
        if isinstance(place.score, OpeningScore):
            return f"idle, but {chosen} opens fewer vGPUs, or is on a node with less left"
        if self._alike[device.model].bit_count() < decided.whole:
            return f"idle, but with it a new vGPU is needed, and {chosen} could be chosen"
        if place.score is None:
            return _why_in_use(device, place.devices[0])
        return f"idle, but {self._why_worse(number, device, place)}"

    def _why_worse(self, number: int, device: Device, place: Placement) -> str:
        """Why a set of idle GPUs was chosen over the best one with this device."""
        whole, chosen = self._decided.whole, self._decided.chosen
        own = self._alike[device.model] if whole > 1 else 1 << number
        best = self._state.closest.best(self._state.idle, own, whole)
        assert best is not None, "there are enough"
        assert not isinstance(place.score, OpeningScore | None)
        if best[0] != place.score:
            return self._decided.difference(best[0], place.score)
        if device.node != place.node:
            return f"{chosen} is as good, on a node with less left or first by name"
        if whole > 1:
            return f"{chosen} are nearer, break fewer groups or come first"
        return f"{chosen} is as good and comes first"


def _why_in_use(device: Device, chosen: Device) -> str:
    """Why another device, which is in use, was chosen for a fraction."""
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
    (LinkScore, "nvlinks"): "the best here have weaker NVLinks than {chosen}",
    (LinkScore, "broken"): "the best here break {mine} whole groups, {chosen} {theirs}",
    (LinkScore, "around"): "the best here have more idle GPUs around them than {chosen}",
}


def _difference(mine: Score, theirs: Score, chosen: str) -> str:
    """The first difference of two scores of one rule, as a message."""
    for field in mine._fields:
        here, there = getattr(mine, field), getattr(theirs, field)
        if here != there:
            if field in ("cost", "level"):
                here, there = name_of(here), name_of(there)
            elif field == "total":
                here, there = without_counts(here), without_counts(there)
            rule = field if here != there else "nvlinks"
            return _COMPARED[type(mine), rule].format(mine=here, theirs=there, chosen=chosen)
    raise AssertionError("the scores are equal")

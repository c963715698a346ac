"""``kubeshare plan --defragment``: the moves that free whole GPUs of a scenario."""

import json
from collections.abc import Iterator, Sequence

import msgspec

from kubeshare.core.defragmentation import Move, Step, defragment, demand_of
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.natural_sort import natural
from kubeshare.core.units import MICROS, format_share
from kubeshare.dialects.scenario.scenario import Event, Request, Scenario


class DefragmentationPlan:
    """Notes the requests of a scenario, and afterwards finds moves of those that are placed.

    Args:
        scenario: as it was read.

    Attributes:
        scenario: the same one; its events are to be consumed before :meth:`lines`.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._requests: dict[str, Request] = {}
        noted = self._noted(scenario.events)
        self.scenario = msgspec.structs.replace(scenario, events=noted)

    def lines(self, output: str) -> Iterator[str]:
        """The steps as lines: objects for the format ``json``, otherwise words.

        Args:
            output: the format.
        """
        ledger = self.scenario.ledger
        steps = defragment(ledger, self.scenario.policy, self._movable(ledger))
        if output == "json":
            yield from (json.dumps(_fields(ledger, step)) for step in steps)
        else:
            yield _summary(ledger, steps)
            for step in steps:
                yield from _words(ledger, step)

    def _noted(self, events: Iterator[Event]) -> Iterator[Event]:
        for event in events:
            if isinstance(event, Request):
                self._requests[event.demand.uid] = event
            yield event

    def _movable(self, ledger: Ledger) -> dict[str, Demand]:
        """The demands that hold a share, but for members of a gang that have to stay near."""
        movable = {}
        for device in ledger.devices.values():
            for holder in device.holders:
                request = self._requests.get(holder.demand)
                if request is None:
                    if holder.name:
                        movable[holder.demand] = demand_of(holder, device)
                elif request.standing.gang is None or request.standing.gang.near is None:
                    movable[holder.demand] = request.demand
        return movable


def _summary(ledger: Ledger, steps: Sequence[Step]) -> str:
    usable = [each for each in ledger.devices.values() if each.healthy and not each.fenced]
    idle = sum(each.idle for each in usable) + sum(len(node.free) for node in ledger.nodes.values())
    used = sum(not each.idle for each in usable)
    if not steps:
        return f"defragment: no move frees one of the {used} GPUs in use ({idle} idle)"
    moves, freed = sum(len(step.moves) for step in steps), sum(len(step.frees) for step in steps)
    before_and_after = f"idle: {idle} -> {idle + freed}"
    return f"defragment: {moves} moves free {freed} of {used} GPUs in use ({before_and_after})"


def _words(ledger: Ledger, step: Step) -> Iterator[str]:
    pods = "1 pod" if len(step.moves) == 1 else f"{len(step.moves)} pods"
    yield (
        f"{', '.join(_paths(ledger, step.frees))}: free after {pods} "
        f"with {format_share(step.micros)} of a GPU moved"
    )
    for move in step.moves:
        before, after = _paths(ledger, move.before), _paths(ledger, move.after)
        yield f"    {move.demand.name}: {' '.join(before)} -> {' '.join(after)}"


def _fields(ledger: Ledger, step: Step) -> dict[str, object]:
    return {
        "frees": _paths(ledger, step.frees),
        "pods": len(step.moves),
        "compute": step.micros / MICROS,
        "moves": [_move_fields(ledger, move) for move in step.moves],
    }


def _move_fields(ledger: Ledger, move: Move) -> dict[str, object]:
    return {
        "name": move.demand.name,
        "from": _paths(ledger, move.before),
        "to": _paths(ledger, move.after),
        "compute": move.micros / MICROS,
    }


def _paths(ledger: Ledger, device_ids: Sequence[str]) -> list[str]:
    return sorted({ledger.devices[each].path for each in device_ids}, key=natural)

"""Places the members of a gang in one order, in short steps.

All members are tried on the ledger itself, which others read between two steps. So each step undoes
what it placed, and the next one places it again as decided, which takes half of the time that
deciding takes.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kubeshare.core.decision import Decision, commit
from kubeshare.core.demand import Demand
from kubeshare.core.gang.gang import GangPlacement, PlacedMember
from kubeshare.core.gang.scopes import Scope
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy

AT_ONCE: Final = 128
"""Members that are decided in a step, beside those of earlier steps that are placed again."""


class _Place(NamedTuple):
    """A placed member, and its node and vGPUs as they were when it was decided."""

    member: PlacedMember
    node: Node | None
    devices: tuple[Device | None, ...]


class OneOrder:
    """Where the members fit in the given order; those that do not are passed over.

    The ledger may change between two steps. A member of which the node or a vGPU has changed is
    then decided anew, as is each with an affinity, whose label may be on another GPU by now: there
    is room for the placement in the ledger of its last step, and each is with its label.

    Args:
        policy: places each member.
        ledger: unchanged after each step.
        members: the members, in the order.
        scope: where they are placed; None is anywhere.
        most_misses: the rest is left out when more than so many do not fit; None for all.
    """

    def __init__(
        self,
        policy: Policy,
        ledger: Ledger,
        members: Sequence[Demand],
        scope: Scope | None = None,
        most_misses: int | None = None,
    ) -> None:
        self._policy = policy
        self._ledger = ledger
        self._members = members
        self._scope = scope
        self._most_misses = len(members) if most_misses is None else most_misses
        self._tried = 0
        self._places: list[_Place] = []
        self._unplaced: Decision | None = None
        self._misses = 0

    @property
    def placement(self) -> GangPlacement:
        """The placement of the members that were tried."""
        placed = tuple(place.member for place in self._places)
        return GangPlacement(placed=placed, room_for=len(placed), unplaced=self._unplaced)

    @property
    def done(self) -> bool:
        """Whether no member is left to be tried."""
        return self._tried == len(self._members) or self._misses > self._most_misses

    def step(self) -> None:
        """Place the members of earlier steps again, and decide the next ones."""
        with self._ledger.what_if():
            decide = self._policy if self._scope is None else self._confined(self._scope)
            earlier, self._places = self._places, []
            for place in earlier:
                if not place.member.demand.affinity and self._place(place.member) == place:
                    self._record(place)
                else:
                    self._decide(decide, place.member.demand)
            for demand in self._members[self._tried : self._tried + AT_ONCE]:
                self._decide(decide, demand)
                self._tried += 1
                if self.done:
                    break

    def _decide(self, decide: Policy, demand: Demand) -> None:
        decision = decide(self._ledger, demand)
        if decision.outcome == "bound":
            self._record(self._place(PlacedMember(demand=demand, decision=decision)))
            return
        self._unplaced = self._unplaced or decision
        self._misses += 1

    def _place(self, member: PlacedMember) -> _Place:
        nodes, devices, decision = self._ledger.nodes, self._ledger.devices, member.decision
        found = tuple(map(devices.get, decision.devices))
        return _Place(member, nodes.get(decision.node or ""), found)

    def _record(self, place: _Place) -> None:
        commit(self._ledger, place.member.demand, place.member.decision)
        self._places.append(place)

    def _confined(self, scope: Scope) -> Policy:
        """The policy inside a scope of the ledger, which the caller restores."""
        fenced = scope.confine(self._ledger)

        def decide(ledger: Ledger, demand: Demand) -> Decision:
            return scope.explained(self._policy(ledger, scope.narrow(demand)), demand, fenced)

        return decide

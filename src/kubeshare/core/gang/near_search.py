"""Finds where the members of a near gang are placed together.

Of the scopes, in the order of the policy, the first one with room for all members is taken, else
the one with room for the most. Only if none has room for enough in the given order of the members,
other orders are tried, in the scopes with the most room.

If nearness only ranks, a single node is tried first, then the fewest nodes, then any. So a gang is
placed wherever it would be placed without it.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

import msgspec

from kubeshare.core.decision import Decision, LazyReasons
from kubeshare.core.demand import Demand
from kubeshare.core.gang.gang import GangPlacement
from kubeshare.core.gang.nearness import Nearness
from kubeshare.core.gang.one_order import OneOrder
from kubeshare.core.gang.orders import in_some_order, kind_of
from kubeshare.core.gang.scopes import NOT_NEAR, Scope, Scopes, wide_scopes
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy

SCOPES: Final = 16
"""The scopes in which other orders are tried: those with room for the most members."""
MISSES: Final = 16
"""The members that may not fit before a scope is given up, besides those that are not needed."""
MOST_SCOPES: Final = 1024
"""The most scopes that are tried in the given order of the members."""
NO_PLACE: Final = "no node or switch is near the members that are placed"


class NearSearch:
    """The search for the scope of a gang.

    Args:
        policy, ledger, members, needed, near: as in :func:`placements`.
    """

    def __init__(
        self,
        policy: Policy,
        ledger: Ledger,
        members: Sequence[Demand],
        needed: int,
        near: Nearness,
    ) -> None:
        self._policy = policy
        self._ledger = ledger
        self._members = members
        self._needed = needed
        self._near = near
        kinds = _one_of_each(members)
        wanted = needed if near.binds else len(members)
        self._scopes = Scopes(policy, ledger, kinds, near, wanted)
        self._rooms: dict[Scope, int] = {}  # in the given order of the members
        self._best = GangPlacement(room_for=0)

    def run(self) -> Iterator[GangPlacement]:
        """See :func:`kubeshare.core.gang.placement.placements`."""
        ledger, home = self._ledger, {each.node for each in self._near.home(self._ledger)}
        misses = max(0, len(self._members) - self._needed) + MISSES
        most = len(self._members)
        if self._near.binds:
            most = min(most, max(self._scopes.rooms.values(), default=0))
        for scope in islice(self._scopes, MOST_SCOPES):
            trial = OneOrder(self._policy, ledger, self._members, scope, misses)
            trial.step()
            while not trial.done:
                yield msgspec.structs.replace(self._best, placed=())
                trial.step()
            placement = trial.placement
            self._rooms[scope] = placement.room_for
            enough = placement.room_for >= max(most, self._needed)
            if enough and (not home or scope.nodes <= home):
                yield placement
                return
            yield self._noted(placement)
        for wider, needed in self._wider():
            for placement in in_some_order(self._policy, ledger, self._members, needed, wider):
                if placement.whole:
                    yield placement
                    return
                yield self._noted(placement)
        yield self._refusal()

    def _wider(self) -> Iterator[tuple[Scope | None, int]]:
        """Where all orders are tried, and how many members have to fit there."""
        if self._near.binds:
            by_room = sorted(self._rooms, key=lambda scope: -self._rooms[scope])
            yield from ((scope, self._needed) for scope in by_room[:SCOPES])
            return
        rooms = self._scopes.rooms
        wanted = max(self._needed, min(len(self._members), sum(rooms.values())))
        for scope in wide_scopes(self._ledger, rooms, self._near, wanted):
            yield scope, wanted
        yield None, self._needed

    def _noted(self, placement: GangPlacement) -> GangPlacement:
        """The best answer so far, which is not enough."""
        if self._best.unplaced is None or placement.room_for > self._best.room_for:
            self._best = placement
        return msgspec.structs.replace(self._best, placed=())

    def _refusal(self) -> GangPlacement:
        """The best answer, with the reasons of its scope and the room that others have."""
        apart, best = self._near.apart(self._ledger), self._best.unplaced
        if apart:
            best = Decision(outcome="pending", reasons={"gang": apart})
        if best is None and self._members:
            best = self._policy(self._ledger, self._members[0])
            if self._near.binds and best.outcome == "bound":
                best = Decision(outcome="pending", reasons={"gang": NO_PLACE})
        if best is None or not (self._near.binds and self._rooms):
            return msgspec.structs.replace(self._best, placed=(), unplaced=best)
        inside, rooms, most = best.reasons, self._rooms, self._best.room_for

        def reasons() -> dict[str, str]:
            known = {place: why for place, why in inside.items() if why != NOT_NEAR}
            shown = {place.partition("/")[0] for place in known}
            room_on = Counter[str]()
            for scope, room in rooms.items():
                for name in scope.nodes - shown:
                    room_on[name] = max(room_on[name], room)
            others = {name: f"room for {min(room, most)}" for name, room in room_on.items()}
            return known | others

        best = msgspec.structs.replace(best, reasons=LazyReasons(reasons))
        return msgspec.structs.replace(self._best, placed=(), unplaced=best)


def likely_scopes(
    policy: Policy, ledger: Ledger, members: Sequence[Demand], needed: int, near: Nearness
) -> list[Scope]:
    """The first :data:`SCOPES` scopes in which a gang that has to be near might fit."""
    found = Scopes(policy, ledger, _one_of_each(members), near, needed)
    return list(islice(found, SCOPES))


def _one_of_each(members: Iterable[Demand]) -> list[Demand]:
    """One member of each kind, in their order."""
    kinds: dict[Hashable, Demand] = {}
    for demand in members:
        kinds.setdefault(kind_of(demand), demand)
    return list(kinds.values())

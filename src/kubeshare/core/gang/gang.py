"""A gang, and where its members are placed."""

from collections.abc import Iterable

import msgspec

from kubeshare.core.decision import Decision, LazyReasons
from kubeshare.core.demand import Demand
from kubeshare.core.gang.nearness import WORDS, Near, Nearness


class Gang(msgspec.Struct, frozen=True, kw_only=True):
    """Pods of one namespace that start together or not at all.

    Attributes:
        name: the name of the gang.
        min_available: how many must fit before any starts, at least one.
        headcount: the expected number of members; 0 if unknown.
        near: how near each other the members are placed; None leaves it to the policy.
    """

    name: str
    min_available: int
    headcount: int = 0
    near: Near | None = None

    def nearness(self, mates: Iterable[str]) -> Nearness | None:
        """How near to the members of these uids further ones are placed; None if anywhere."""
        return Nearness(near=self.near, mates=frozenset(mates)) if self.near else None

    def too_few(self, members: int) -> str:
        """Why the gang cannot start with so many members; ``""`` if it can."""
        if members >= self.min_available:
            return ""
        return f"{members} of the {self.min_available} members that it needs are there"

    def no_room(self, needed: int, placement: "GangPlacement") -> str:
        """Why the gang cannot start, if `needed` more members have to be placed."""
        room = self.min_available - needed + placement.room_for
        where = WORDS[self.near] if self.near else ""
        return f"room for {room} of the {self.min_available} members that it needs{where}"

    def pending(self, reason: str, unplaced: Decision | None = None) -> Decision:
        """The decision about each member while the gang cannot start.

        Args:
            reason: why the gang cannot start.
            unplaced: the decision about a member that did not fit.
        """
        more = {} if unplaced is None else unplaced.reasons
        reasons = LazyReasons(lambda: {f"gang {self.name}": reason, **more})
        return Decision(outcome="pending", reasons=reasons)


class PlacedMember(msgspec.Struct, frozen=True, kw_only=True):
    """Where one member is placed.

    Attributes:
        demand: the member.
        decision: bound; valid once the decisions about the members before it are recorded.
    """

    demand: Demand
    decision: Decision


class GangPlacement(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a gang can start, and where its members are placed.

    Attributes:
        placed: the members in the order in which they have to be recorded; empty if fewer
            than needed fit.
        room_for: the most members that fit together in any order tried.
        unplaced: the decision about the first member that did not fit; None if all fit.
    """

    placed: tuple[PlacedMember, ...] = ()
    room_for: int
    unplaced: Decision | None = None

    @property
    def whole(self) -> bool:
        """Whether enough members fit."""
        return bool(self.placed)

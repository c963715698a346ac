"""Gang scheduling: place enough members of a gang, or none.

The members of a gang are demands that are useless without each other. The policy places one
after the other, each in a ledger that holds those before it. The order decides whether all fit:
if one order places too few, another is tried, a bounded number of times. The first order that
places enough of them is the answer.

Source: KubeShare's second version, labels ``sharedgpu/group_name`` and ``min_available``.
"""

from collections.abc import Hashable, Iterator, Sequence
from itertools import islice, permutations
from typing import Final

import msgspec

from kubeshare.core.decision import Decision, LazyReasons, commit
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy

ORDERS: Final = 64
"""The most orders in which the members are tried."""


class Gang(msgspec.Struct, frozen=True, kw_only=True):
    """Pods of one namespace that start together or not at all.

    Attributes:
        name: the name of the gang.
        min_available: how many must fit before any starts, at least one.
        headcount: the expected number of members; 0 if unknown.
    """

    name: str
    min_available: int
    headcount: int = 0

    def too_few(self, members: int) -> str:
        """Why the gang cannot start with so many members; ``""`` if it can."""
        if members >= self.min_available:
            return ""
        return f"{members} of the {self.min_available} members that it needs are there"

    def no_room(self, needed: int, placement: "GangPlacement") -> str:
        """Why the gang cannot start, if `needed` more members have to be placed."""
        room = self.min_available - needed + placement.room_for
        return f"room for {room} of the {self.min_available} members that it needs"

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


def place_gang(
    policy: Policy, ledger: Ledger, members: Sequence[Demand], needed: int
) -> GangPlacement:
    """Place the members of a gang; a pure function of its arguments.

    Args:
        policy: places each member.
        ledger: unchanged afterwards.
        members: those that are not placed yet, in the order that is tried first.
        needed: how many of them have to fit, at least one. If more fit, they are placed too.
    """
    return list(placements(policy, ledger, members, needed))[-1]


def placements(
    policy: Policy, ledger: Ledger, members: Sequence[Demand], needed: int
) -> Iterator[GangPlacement]:
    """Place the members of a gang step by step; the last answer is that of :func:`place_gang`.

    After each order in which the members are tried, the best answer so far. The ledger may change
    between two steps: an answer with which the gang can start is valid for the ledger of its step.
    """
    best = GangPlacement(room_for=-1)
    for order in islice(_orders(members), ORDERS):
        placement = _in_order(policy, ledger, order)
        if placement.room_for > best.room_for:
            best = placement
        if best.room_for >= needed:
            yield best
            return
        yield msgspec.structs.replace(best, placed=())


def _in_order(policy: Policy, ledger: Ledger, members: Sequence[Demand]) -> GangPlacement:
    placed: list[PlacedMember] = []
    unplaced: Decision | None = None
    with ledger.what_if():
        for demand in members:
            decision = policy(ledger, demand)
            if decision.outcome == "bound":
                commit(ledger, demand, decision)
                placed.append(PlacedMember(demand=demand, decision=decision))
            elif unplaced is None:
                unplaced = decision
    return GangPlacement(placed=tuple(placed), room_for=len(placed), unplaced=unplaced)


def _orders(members: Sequence[Demand]) -> Iterator[Sequence[Demand]]:
    """Orders to try: as given, the largest first, then permutations of the kinds of members.

    Members that ask for the same need not change places with each other.
    """
    yield members
    kinds: dict[Hashable, list[Demand]] = {}
    for demand in sorted(members, key=_largest_first):
        kinds.setdefault(_kind(demand), []).append(demand)
    for order in permutations(kinds.values()):
        yield [demand for kind in order for demand in kind]


def _largest_first(demand: Demand) -> tuple[int, int, int, int]:
    shares = demand.per_gpu()
    return (
        -len(shares),
        -sum(share.request_micros for share in shares),
        -sum(share.memory.micros or 0 for share in shares),
        -sum(share.memory.bytes or 0 for share in shares),
    )


def _kind(demand: Demand) -> Hashable:
    """What a demand asks for, without the requester."""
    return msgspec.structs.replace(demand, uid="", name="", attempt=0)

"""Place the members of a gang all in one go, or none of them.

A gang's members are demands that are of no use without each other. Each is placed by the
policy, and the next sees the ledger with those before it: what the policy would do if they
came one after the other and nobody came in between. The order decides whether all fit, so
when one order leaves too many without room another one is tried, a bounded number of
times. The first order that gives enough of them room is the answer.

(KubeShare's second version, the labels ``sharedgpu/group_name`` and ``min_available``.)
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
"""In how many orders the members are tried at most."""


class Gang(msgspec.Struct, frozen=True, kw_only=True):
    """Pods of one namespace that start together or not at all.

    Attributes:
        name: the same for all of them.
        min_available: how many must have room before any starts, at least one.
        headcount: how many there are to be; 0 where that is not said.
    """

    name: str
    min_available: int
    headcount: int = 0

    def too_few(self, there: int) -> str:
        """Why it cannot start with so many members, or ``""``."""
        if there >= self.min_available:
            return ""
        return f"{there} of the {self.min_available} members that it needs are there"

    def no_room(self, needed: int, answer: "GangPlacement") -> str:
        """Why it cannot start with an answer, when so many more members have to be placed."""
        room = self.min_available - needed + answer.room_for
        return f"room for {room} of the {self.min_available} members that it needs"

    def waits(self, words: str, short: Decision | None = None) -> Decision:
        """What each member is told while it waits.

        Args:
            words: why the gang cannot start.
            short: why there is no room for one more.
        """
        why = {} if short is None else short.reasons
        told = LazyReasons(lambda: {f"gang {self.name}": words, **why})
        return Decision(outcome="pending", reasons=told)


class PlacedMember(msgspec.Struct, frozen=True, kw_only=True):
    """Where one member goes.

    Attributes:
        demand: the member.
        decision: bound. It holds when those of the members before it have been carried out.
    """

    demand: Demand
    decision: Decision


class GangPlacement(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a gang can start.

    Attributes:
        placed: where its members go, in the order in which that is to be carried out;
            empty when fewer than needed would fit.
        room_for: how many would fit together, at most, as far as orders were tried.
        short: why not one more, of a member for which there was no room; None where all fit.
    """

    placed: tuple[PlacedMember, ...] = ()
    room_for: int
    short: Decision | None = None

    @property
    def whole(self) -> bool:
        """All that are needed have room."""
        return bool(self.placed)


def place_gang(
    policy: Policy, ledger: Ledger, members: Sequence[Demand], needed: int
) -> GangPlacement:
    """Where the members of a gang go.

    Args:
        policy: places each of them.
        ledger: as it is now; it is the same afterwards.
        members: those that have no room yet, in the order that is tried first.
        needed: how many of them have to fit, at least one. Where more fit, they are
            placed too.

    Returns:
        the answer. It depends on nothing but the arguments.
    """
    best = GangPlacement(room_for=-1)
    for order in islice(_orders(members), ORDERS):
        answer = _in_order(policy, ledger, order)
        if answer.room_for > best.room_for:
            best = answer
        if best.room_for >= needed:
            return best
    return msgspec.structs.replace(best, placed=())


def _in_order(policy: Policy, ledger: Ledger, members: Sequence[Demand]) -> GangPlacement:
    placed: list[PlacedMember] = []
    short: Decision | None = None
    with ledger.what_if():
        for demand in members:
            decision = policy(ledger, demand)
            if decision.outcome == "bound":
                commit(ledger, demand, decision)
                placed.append(PlacedMember(demand=demand, decision=decision))
            elif short is None:
                short = decision
    return GangPlacement(placed=tuple(placed), room_for=len(placed), short=short)


def _orders(members: Sequence[Demand]) -> Iterator[Sequence[Demand]]:
    """Orders that are worth trying: as they are, the largest first, then those of their kinds.

    Members that ask the same need not change places with each other.
    """
    yield members
    kinds: dict[Hashable, list[Demand]] = {}
    for demand in sorted(members, key=_largest_first):
        kinds.setdefault(_kind(demand), []).append(demand)
    for order in permutations(kinds.values()):
        yield [demand for kind in order for demand in kind]


def _largest_first(demand: Demand) -> tuple[int, int, int, int]:
    memory = demand.memory
    return -demand.count, -demand.request_micros, -(memory.micros or 0), -(memory.bytes or 0)


def _kind(demand: Demand) -> Hashable:
    """All that a demand asks, without who asks."""
    return msgspec.structs.replace(demand, uid="", name="", attempt=0)

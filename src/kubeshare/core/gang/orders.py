"""Places the members of a gang one by one, in several orders.

The policy places one after the other, each in a ledger that holds those before it. The order
decides whether all fit: if one order places too few, another is tried, a bounded number of times.
The first order that places enough of them is the answer.
"""

from collections.abc import Hashable, Iterator, Sequence
from itertools import islice, permutations
from typing import Final

import msgspec

from kubeshare.core.demand import Demand
from kubeshare.core.gang.gang import GangPlacement
from kubeshare.core.gang.one_order import OneOrder
from kubeshare.core.gang.scopes import Scope
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy

ORDERS: Final = 64
"""The most orders in which the members are tried."""


def in_some_order(
    policy: Policy,
    ledger: Ledger,
    members: Sequence[Demand],
    needed: int,
    scope: Scope | None = None,
) -> Iterator[GangPlacement]:
    """Place the members in one order after another; after each step the best answer so far.

    The arguments are those of :func:`kubeshare.core.gang.placement.placements`, and the scope in
    which they are placed; None is anywhere.
    """
    best = GangPlacement(room_for=-1)
    for order in islice(_orders(members), ORDERS):
        trial = OneOrder(policy, ledger, order, scope)
        trial.step()
        while not trial.done:
            yield msgspec.structs.replace(best, placed=())
            trial.step()
        placement = trial.placement
        if placement.room_for > best.room_for:
            best = placement
        if best.room_for >= needed:
            yield best
            return
        yield msgspec.structs.replace(best, placed=())


def _orders(members: Sequence[Demand]) -> Iterator[Sequence[Demand]]:
    """Orders to try: as given, the largest first, then permutations of the kinds of members.

    Members that ask for the same need not change places with each other.
    """
    yield members
    kinds: dict[Hashable, list[Demand]] = {}
    for demand in sorted(members, key=_largest_first):
        kinds.setdefault(kind_of(demand), []).append(demand)
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


def kind_of(demand: Demand) -> Hashable:
    """What a demand asks for, without the requester."""
    return msgspec.structs.replace(demand, uid="", name="", attempt=0)

"""Gang scheduling: place enough members of a gang, or none.

The members of a gang are demands that are useless without each other. They are placed by the
policy (:mod:`kubeshare.core.gang.orders`), near each other where the gang asks for it
(:mod:`kubeshare.core.gang.near_search`).

Source: KubeShare's second version, labels ``sharedgpu/group_name`` and ``min_available``.
"""

from collections.abc import Iterator, Sequence

from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand
from kubeshare.core.gang.gang import GangPlacement
from kubeshare.core.gang.near_search import NearSearch
from kubeshare.core.gang.nearness import Nearness
from kubeshare.core.gang.orders import in_some_order
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy


def place_gang(
    policy: Policy,
    ledger: Ledger,
    members: Sequence[Demand],
    needed: int,
    near: Nearness | None = None,
) -> GangPlacement:
    """Place the members of a gang; a pure function of its arguments.

    Args:
        policy: places each member.
        ledger: unchanged afterwards.
        members: those that are not placed yet, in the order that is tried first.
        needed: how many of them have to fit, at least one. If more fit, they are placed too.
        near: how near each other, and to which others, they are placed.
    """
    return list(placements(policy, ledger, members, needed, near))[-1]


def placements(
    policy: Policy,
    ledger: Ledger,
    members: Sequence[Demand],
    needed: int,
    near: Nearness | None = None,
) -> Iterator[GangPlacement]:
    """Place the members of a gang step by step; the last answer is that of :func:`place_gang`.

    After each step of an order in which the members are tried, the best answer so far. The ledger
    may change between two steps: an answer with which the gang can start is valid for the ledger of
    its step.
    """
    if near is None:
        yield from in_some_order(policy, ledger, members, needed)
    else:
        yield from NearSearch(policy, ledger, members, needed, near).run()


def near_to(policy: Policy, near: Nearness) -> Policy:
    """The policy for one more member of a gang: it is placed near those that are placed."""

    def decide(ledger: Ledger, demand: Demand) -> Decision:
        placement = place_gang(policy, ledger, [demand], 1, near)
        if placement.placed:
            return placement.placed[0].decision
        assert placement.unplaced is not None, "there is a member"
        return placement.unplaced

    return decide

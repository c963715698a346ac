"""Preemption: the cheapest set of holders to evict for a demand.

Only holders that allow it may be preempted, and only for a demand of higher priority. Of the
sets that suffice, the cheapest is the one whose highest priority is lowest; then the one with
the fewest holders; then one that holds little of the GPUs.
:mod:`kubeshare.core.diagnosis.explain` finds the holders that are in the way; this module only
restricts which holders it may consider. :mod:`kubeshare.core.gang_preemption` does it for gangs.
"""

from collections.abc import Container, Mapping

import msgspec

from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis.admit import MayLeave
from kubeshare.core.diagnosis.explain import fewest_leaving, leave_clauses
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy


class Preemption(msgspec.Struct, frozen=True, kw_only=True):
    """The holders to evict.

    Attributes:
        leave: the uids of the demands to evict, sorted.
        priority: the highest of their priorities.
        words: each eviction as a clause for the author of the demand: ``q leaves n1/A``.
    """

    leave: tuple[str, ...]
    priority: int
    words: tuple[str, ...]


def cheapest_preemption(
    policy: Policy,
    ledger: Ledger,
    demand: Demand,
    *,
    priority: int,
    preemptible: Mapping[str, int],
) -> Preemption | None:
    """The cheapest set of holders whose eviction lets a pending demand fit.

    Args:
        policy: decides whether the demand fits.
        ledger: unchanged afterwards.
        demand: the pending demand.
        priority: the priority of the demand.
        preemptible: uid of each demand that may be preempted → its priority. Only those below
            the demand's own priority are considered.

    Returns:
        None if no such set was found.
    """
    lower = {uid: value for uid, value in preemptible.items() if value < priority}
    for level in sorted(set(lower.values())):
        may_leave = _one_of({uid for uid, value in lower.items() if value <= level})
        change = fewest_leaving(policy, ledger, demand, may_leave)
        if change is not None:
            highest = max(lower[uid] for uid in change.leave)
            words = leave_clauses(ledger, change.leave, demand)
            return Preemption(leave=change.leave, priority=highest, words=words)
    return None


def _one_of(uids: Container[str]) -> MayLeave:
    return lambda holder: holder.demand in uids

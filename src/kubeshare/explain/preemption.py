"""Reports the pods that a pending demand would preempt, or why none."""

from collections.abc import Sequence

from kubeshare.api.configuration import Configuration
from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis.explain import leave_clauses
from kubeshare.core.gang.nearness import WORDS, Nearness
from kubeshare.core.gang_preemption import cheapest_for_gang
from kubeshare.dialects.priority_and_gang import PREEMPTIBLE
from kubeshare.explain.cluster_reader import Seen
from kubeshare.scheduler.preemption.victims import is_marked, victims_of


def preemption(
    seen: Seen,
    demands: Sequence[Demand],
    needed: int,
    priority: int,
    near: Nearness | None = None,
) -> str:
    """The pods that the scheduler would preempt, as a sentence; ``""`` if preemption is no help.

    Args:
        seen: the cluster.
        demands: the pending demands, restricted to eligible nodes.
        needed: how many of them have to be placed together.
        priority: theirs.
        near: how near each other they must be placed.
    """
    marked = [each for each in seen.pods if is_marked(each)]
    max_priority = (seen.configuration or Configuration()).max_priority.of
    victims = {each.uid: each.priority for each in victims_of(marked, seen.held_by, max_priority)}
    lower = sum(each < priority for each in victims.values())
    known = seen.configuration
    if known is None or not known.preemption:
        why = "cannot be read" if known is None else "does not say preemption: true"
        return f"no pod is preempted: the configuration {why}" if lower else ""
    if not lower:
        return (
            f"no pod is preempted: none of the pods with {PREEMPTIBLE} ({len(marked)}) is of a "
            f"priority below {priority} and was placed by the scheduler"
        )
    found = cheapest_for_gang(
        seen.policy,
        seen.ledger,
        demands,
        needed=needed,
        priority=priority,
        preemptible=victims,
        near=near,
    )
    if found is None:
        where = WORDS[near.near] if near else ""
        return (
            f"no pod is preempted: there would be no room{where} if all left that may be "
            f"preempted and are of a priority below {priority} ({lower})"
        )
    words = ", and ".join(leave_clauses(seen.ledger, found.leave))
    return (
        f"preempted would be, where disruption budgets allow it: {words} "
        f"(priority {found.priority})"
    )

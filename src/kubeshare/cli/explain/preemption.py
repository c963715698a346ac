"""Says whom a pending demand would preempt, or why nobody."""

from collections.abc import Sequence

from kubeshare.cli.explain.cluster_reader import Seen
from kubeshare.core.demand import Demand
from kubeshare.core.preemption import cheapest_for_gang
from kubeshare.dialects.priority_and_gang import PREEMPTIBLE
from kubeshare.scheduler.preemption.victims import is_marked, victims_of


def preemption(seen: Seen, demands: Sequence[Demand], needed: int, priority: int) -> str:
    """Say in a sentence whom the scheduler would preempt; ``""`` where there is nothing to say.

    Args:
        seen: the cluster.
        demands: who waits, for the nodes that they may go to.
        needed: how many of them have to be placed together.
        priority: theirs.
    """
    marked = [each for each in seen.pods if is_marked(each)]
    victims = {each.uid: each.priority for each in victims_of(marked, seen.held_by)}
    lower = sum(each < priority for each in victims.values())
    known = seen.configuration
    if known is None or not known.preemption:
        why = "cannot be read" if known is None else "does not say preemption: true"
        return f"nobody is preempted: the configuration {why}" if lower else ""
    if not lower:
        return (
            f"nobody is preempted: none of the pods with {PREEMPTIBLE} ({len(marked)}) is of a "
            f"priority below {priority} and was placed by the scheduler"
        )
    found = cheapest_for_gang(
        seen.policy, seen.ledger, demands, needed=needed, priority=priority, preemptible=victims
    )
    if found is None:
        return (
            "nobody is preempted: there would be no room if all left that may be preempted and "
            f"are of a priority below {priority} ({lower})"
        )
    return (
        f"preempted would be, where disruption budgets allow it: {', and '.join(found.words)} "
        f"(priority {found.priority})"
    )

"""Sorts the queue: higher priority first, then the oldest.

Unschedulable requesters are queued again, oldest first, by whatever changes in the cluster; a
higher priority overtakes in the queue. A requester that does not fit blocks no other: a demand
of lower priority takes the room that is left, unless that room is reserved by a nomination.
"""

from collections.abc import Callable, Iterable, Mapping

from kubeshare.core.errors import InvalidValueError
from kubeshare.dialects.priority_and_gang import gang_named
from kubeshare.kube.cache.store import DELETED, Change
from kubeshare.kube.meta import metadata_of
from kubeshare.kube.resources import Raw
from kubeshare.scheduler.requesters.base import RequesterKey, RequesterKind


def by_priority(kinds: Mapping[str, RequesterKind]) -> Callable[[RequesterKey], int]:
    """The rank of a requester in the queue: the lowest rank comes first."""

    def rank(key: RequesterKey) -> int:
        requester = kinds[key.kind].get(key.key)
        if requester is None:
            return 0
        try:
            return -requester.standing().priority
        except InvalidValueError:
            return 0

    return rank


def gang_members(kinds: Mapping[str, RequesterKind]) -> Callable[[Raw], Iterable[RequesterKey]]:
    """Maps an object to all members of the gang that it names."""

    def keys(raw: Raw) -> Iterable[RequesterKey]:
        name = gang_named(raw)
        if name:
            for kind in kinds.values():
                for requester in kind.in_gang(metadata_of(raw).namespace, name):
                    yield requester.key

    return keys


def affects_gang(change: Change[Raw]) -> bool:
    """Whether a member was added, deleted or edited, so the other members may be schedulable."""
    if change.initial:
        return False
    old, new = change.old, change.object
    if old is None or change.type == DELETED:
        return True
    return any(
        old["metadata"].get(field) != new["metadata"].get(field)
        for field in ("labels", "generation", "deletionTimestamp")
    )

"""Whose turn it is: those of a higher priority first, of one priority the oldest.

What waits is queued again, oldest first, by whatever changes in the cluster; a higher
priority overtakes in the queue. Nobody is held up by one that does not fit: a demand of
lower priority takes what room is left, as long as nobody's place is kept there.
"""

from collections.abc import Callable, Iterable, Mapping

from kubeshare.core.errors import InvalidValueError
from kubeshare.dialects.priority_and_gang import gang_named
from kubeshare.kube.cache.store import DELETED, Change
from kubeshare.kube.meta import metadata_of
from kubeshare.kube.resources import Raw
from kubeshare.scheduler.requesters.base import RequesterKey, RequesterKind


def by_priority(kinds: Mapping[str, RequesterKind]) -> Callable[[RequesterKey], int]:
    """The rank of askers in the queue: the lower, the sooner."""

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
    """The members of the gang that an object names."""

    def found(raw: Raw) -> Iterable[RequesterKey]:
        name = gang_named(raw)
        if name:
            for kind in kinds.values():
                for requester in kind.in_gang(metadata_of(raw).namespace, name):
                    yield requester.key

    return found


def affects_gang(change: Change[Raw]) -> bool:
    """A member has come, left or become another one, and the others may have to know."""
    if change.initial:
        return False
    old, new = change.old, change.object
    if old is None or change.type == DELETED:
        return True
    return any(
        old["metadata"].get(field) != new["metadata"].get(field)
        for field in ("labels", "generation", "deletionTimestamp")
    )

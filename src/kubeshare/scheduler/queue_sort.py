"""Sorts the queue: higher priority first, then the oldest.

Unschedulable requesters are queued again, oldest first, by whatever changes in the cluster; a
higher priority overtakes in the queue. A requester that does not fit blocks no other: a demand
of lower priority takes the room that is left, unless that room is reserved by a nomination.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from kubeshare.core.errors import InvalidValueError
from kubeshare.dialects.priority_and_gang import gang_named
from kubeshare.kube.cache.store import DELETED, Change
from kubeshare.kube.controller.controller import Controller
from kubeshare.kube.meta import Key, metadata_of
from kubeshare.kube.resources import Raw
from kubeshare.scheduler.requesters.base import RequesterKey, RequesterKind

MEMBERS_AT_ONCE: Final = 50
"""Members of a gang that are queued before other tasks run."""


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


class GangMembers:
    """Queues all members of a gang when one has changed, once for all events in a row.

    Args:
        controller: schedules them.
        kinds: the kinds of requesters.
    """

    def __init__(
        self, controller: Controller[RequesterKey], kinds: Mapping[str, RequesterKind]
    ) -> None:
        self._controller = controller
        self._kinds = kinds
        self._changed: set[Key] = set()
        self._due = False
        self._members: Iterator[RequesterKey] | None = None  # those of a gang to queue next

    def of(self, raw: Raw) -> tuple[()]:
        """Queue the members of the gang that an object names; for ``Controller.watch``."""
        name = gang_named(raw)
        if name and self._controller.running:
            if not self._due:
                self._due = True
                asyncio.get_running_loop().call_soon(self._queue_some)
            self._changed.add(Key(metadata_of(raw).namespace, name))
        return ()

    def _queue_some(self) -> None:
        """Queue some members, and the others after what else is to run."""
        if self._members is None:
            if not self._changed:
                self._due = False
                return
            self._members = self._members_of(self._changed.pop())
        # First, so that an error below ends nothing but this call.
        asyncio.get_running_loop().call_soon(self._queue_some)
        for _ in range(MEMBERS_AT_ONCE):
            key = next(self._members, None)
            if key is None:
                self._members = None
                return
            self._controller.queue.add(key)

    def _members_of(self, gang: Key) -> Iterator[RequesterKey]:
        for kind in self._kinds.values():
            for requester in kind.in_gang(*gang):
                yield requester.key


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

"""Keeps a store equal to the API server by list and watch.

A list returns the state at one resourceVersion, and a watch from there returns each change
(:mod:`.watch_loop`). What makes this reliable is the handling of failures:

1. The list is read in pages to its end, and starts again if its continue token expires.
2. A new list is compared with the store by uid: handlers get a deletion for what is gone, a
   deletion and an addition for a reused name, and nothing for unchanged objects. What was created
   and deleted since the last event is in neither: whoever knows of it is called after each list.
3. 410 causes a new list, and so does any other failure if the store fits into one page; else that
   causes a new watch from the last resourceVersion.
4. Handlers are called while the stream is read, so they must only queue keys.
5. Other tasks run while a long list is stored. They see some objects in their old state and some in
   their new one, as they do when a watch lags.
6. ``synced``, relists, restarts by reason, and the age of the last event are metrics.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeAlias, TypeVar

import structlog

from kubeshare.kube.cache.store import DELETED, Change, Store
from kubeshare.kube.cache.watch import WatchEvent
from kubeshare.kube.cache.watch_loop import IDLE_SECONDS, WatchLoop
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.listing import PAGE
from kubeshare.kube.logs import debugging
from kubeshare.kube.resources import Resource

T = TypeVar("T")
Handler: TypeAlias = Callable[[Change[T]], None]

log = structlog.get_logger(__name__)

OBJECTS_AT_ONCE: Final = 100
"""Objects of a list that are stored before other tasks run."""


class Reflector(Generic[T]):
    """Lists and watches one kind of objects into a store, and calls handlers for each change.

    Args:
        client: of the API server.
        resource: the kind, with the type that its objects are decoded into.
        namespace: ``""`` for all.
        labels: label selector.
        fields: field selector.
        store: the store to fill; a new one by default.
        transform: called with each object before it is stored; what it returns is stored.
        page: objects in a page of a list.
        idle: seconds of silence after which a watch counts as lost.
        draw: returns a random number in [0, 1), for jitter.

    Attributes:
        store: the objects.
        relists: number of lists after the first one.
    """

    def __init__(  # noqa: PLR0913 - the selection and the settings of a watch
        self,
        client: Client,
        resource: Resource[T],
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        store: Store[T] | None = None,
        transform: Callable[[T], T] | None = None,
        page: int = PAGE,
        idle: float = IDLE_SECONDS,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._client = client
        self.resource = resource
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        self._page = page
        self._transform: Callable[[T], T] = transform or _identity
        self._handlers: list[Handler[T]] = []
        self._list_handlers: list[Callable[[], Iterable[Change[T]]]] = []
        self._restore_handlers: list[Callable[[], None]] = []
        self._synced = asyncio.Event()
        self._loop = WatchLoop(
            client,
            resource,
            self._list,
            self._handle,
            namespace=namespace,
            labels=labels,
            fields=fields,
            starts_cheaply=lambda: len(self.store) <= page,
            idle=idle,
            draw=draw,
        )
        self.store: Store[T] = Store() if store is None else store
        self.relists = 0

    @property
    def synced(self) -> bool:
        """Whether the first list is in the store."""
        return self._synced.is_set()

    @property
    def resource_version(self) -> str:
        """The resourceVersion up to which the store is complete; ``""`` if unknown."""
        return self._loop.resource_version

    @property
    def last_event_age(self) -> float | None:
        """Seconds since the last event or bookmark; None before the first list."""
        return self._loop.last_event_age

    @property
    def restarts(self) -> Counter[str]:
        """Number of watches that ended, by reason."""
        return self._loop.restarts

    async def wait_for_sync(self) -> None:
        """Wait until the first list is in the store."""
        await self._synced.wait()

    def subscribe(self, handler: Handler[T]) -> None:
        """Call ``handler`` for each change from now on; before ``run``, for all changes.

        A handler must return at once and must not raise: it queues a key, nothing else.
        """
        self._handlers.append(handler)

    def subscribe_to_lists(self, handler: Callable[[], Iterable[Change[T]]]) -> None:
        """Call ``handler`` after each list; the changes that it returns go to all handlers."""
        self._list_handlers.append(handler)

    def subscribe_to_restores(self, handler: Callable[[], None]) -> None:
        """Call ``handler`` when the API server has gone back to an older state, before the list."""
        self._restore_handlers.append(handler)

    async def run(self) -> None:
        """List and watch until cancelled."""
        await self._loop.run()

    async def _list(self) -> str:
        listing = await self._client.list_each(
            self.resource,
            lambda item: self.store.encode(self._transform(item)),
            self._namespace,
            labels=self._labels,
            fields=self._fields,
            page=self._page,
        )
        if self._loop.has_gone_back(listing.resource_version):
            self._on_restored(listing.resource_version)
        initial = not self.synced
        self.relists += not initial
        steps = self.store.iter_replace(listing.items, keep=listing.unreadable, initial=initial)
        for number, changes in enumerate(steps, start=1):
            self._notify(changes)
            if not number % OBJECTS_AT_ONCE:
                await asyncio.sleep(0)
        # The handlers compare it with the versions of what has been written.
        self._loop.resource_version = listing.resource_version
        for handler in self._list_handlers:
            self._notify(handler())
        self._synced.set()
        if debugging():
            log.debug("listed", resource=self.resource.plural, objects=len(self.store))
        return listing.resource_version

    def _handle(self, event: WatchEvent[T]) -> None:
        current = None if event.object is None else self._transform(event.object)
        if event.type == DELETED:
            self._notify(self.store.remove(event.key, uid=event.identity.uid, last=current))
        elif current is not None:
            self._notify(self.store.put(current))

    def _on_restored(self, resource_version: str) -> None:
        log.warning(
            "the API server has gone back to an older state: listed again",
            resource=self.resource.plural,
            resource_version=resource_version,
        )
        self.restarts["restored"] += 1
        for handler in self._restore_handlers:
            handler()

    def _notify(self, changes: Iterable[Change[T]]) -> None:
        for change in changes:
            for handler in self._handlers:
                handler(change)


def _identity(obj: T) -> T:
    return obj

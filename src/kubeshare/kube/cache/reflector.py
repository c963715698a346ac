"""Keeps a store equal to the API server by list and watch.

A list returns the state at one resourceVersion, and a watch from there returns each change. What
makes this reliable is the handling of failures:

1. The list is read in pages to its end, and starts again if its continue token expires.
2. A new list is compared with the store by uid: handlers get a deletion for what is gone, a
   deletion and an addition for a reused name, and nothing for unchanged objects. What was created
   and deleted since the last event is in neither: whoever knows of it is called after each list.
3. The resourceVersion is opaque; each event, bookmarks included, advances it.
4. The watch asks for bookmarks. The server ends it after 5 to 10 minutes (with jitter, so that
   clients do not reconnect together), and 75 s of silence count as a lost connection.
5. 410, as a status or as an event, causes a new list; any other failure causes a new watch from
   the last resourceVersion.
6. Retries have a backoff and respect ``Retry-After``. Only progress resets the backoff: a watch
   that ends at once without an event is a failure.
7. Handlers are called while the stream is read, so they must only queue keys.
8. ``synced``, relists, restarts by reason, and the age of the last event are metrics.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import aclosing
from typing import Generic, TypeVar

import structlog

from kubeshare.kube.cache.store import DELETED, Change, Store
from kubeshare.kube.cache.watch import WatchEvent
from kubeshare.kube.client.client import PAGE, Client
from kubeshare.kube.client.errors import ApiError, GoneError, UnreachableError
from kubeshare.kube.controller.backoff import Backoff
from kubeshare.kube.resources import Resource

T = TypeVar("T")
Handler = Callable[[Change[T]], None]

log = structlog.get_logger(__name__)

SHORT_WATCH = 1.0
"""A watch without events that lasts less than so many seconds is a failure."""
SLACK = 1.0
"""Silence may be detected so many seconds too early."""


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
        restarts: number of watches that ended, by reason.
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
        idle: float = 75.0,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._client = client
        self.resource = resource
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        self._page = page
        self._transform: Callable[[T], T] = transform or _identity
        self._idle = idle
        self._draw = draw
        self._backoff = Backoff(0.2, 30.0, draw)
        self._handlers: list[Handler[T]] = []
        self._list_handlers: list[Callable[[], Iterable[Change[T]]]] = []
        self._synced = asyncio.Event()
        self._resource_version = ""
        self._last_event: float | None = None
        self.store: Store[T] = Store() if store is None else store
        self.relists = 0
        self.restarts: Counter[str] = Counter()

    @property
    def synced(self) -> bool:
        """Whether the first list is in the store."""
        return self._synced.is_set()

    @property
    def resource_version(self) -> str:
        """The resourceVersion up to which the store is complete; ``""`` if unknown."""
        return self._resource_version

    @property
    def last_event_age(self) -> float | None:
        """Seconds since the last event or bookmark; None before the first list."""
        if self._last_event is None:
            return None
        return asyncio.get_running_loop().time() - self._last_event

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

    async def run(self) -> None:
        """List and watch until cancelled."""
        while True:
            try:
                if not self._resource_version:
                    await self._list()
                await self._watch()
            except GoneError as error:
                self._resource_version = ""
                await self._pause("expired", error)
            except ApiError as error:
                await self._pause(error.reason or str(error.status), error)

    async def _list(self) -> None:
        listing = await self._client.list_each(
            self.resource,
            lambda item: self.store.encode(self._transform(item)),
            self._namespace,
            labels=self._labels,
            fields=self._fields,
            page=self._page,
        )
        initial = not self.synced
        self.relists += not initial
        self._notify(
            self.store.iter_replace(listing.items, keep=listing.unreadable, initial=initial)
        )
        self._resource_version = listing.resource_version
        for handler in self._list_handlers:
            self._notify(handler())
        self._record_activity()
        self._synced.set()

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        events = 0
        stream = self._client.watch(
            self.resource,
            self._namespace,
            resource_version=self._resource_version,
            labels=self._labels,
            fields=self._fields,
            lifetime=300 + 300 * self._draw(),
        )
        try:
            async with asyncio.timeout(self._idle) as silence, aclosing(stream):
                async for event in stream:
                    events += 1
                    self._handle(event)
                    self._backoff.reset()
                    # Rescheduling the timeout costs as much as decoding an event.
                    if loop.time() + self._idle > (silence.when() or 0.0) + SLACK:
                        silence.reschedule(loop.time() + self._idle)
        except TimeoutError:
            message = f"watch {self.resource.plural}: silent for {self._idle:g} s"
            raise UnreachableError(message, sent=True) from None
        if not events and loop.time() - started < SHORT_WATCH:
            await self._pause("empty", None)
            return
        self._backoff.reset()
        self.restarts["ended"] += 1

    def _handle(self, event: WatchEvent[T]) -> None:
        self._record_activity()
        current = None if event.object is None else self._transform(event.object)
        if event.type == DELETED:
            self._notify(self.store.remove(event.key, uid=event.identity.uid, last=current))
        elif current is not None:
            self._notify(self.store.put(current))
        self._resource_version = event.identity.resource_version

    def _notify(self, changes: Iterable[Change[T]]) -> None:
        for change in changes:
            for handler in self._handlers:
                handler(change)

    def _record_activity(self) -> None:
        self._last_event = asyncio.get_running_loop().time()

    async def _pause(self, reason: str, error: ApiError | None) -> None:
        self.restarts[reason] += 1
        wait = self._backoff.next()
        if error is not None and error.retry_after is not None:
            wait = max(wait, error.retry_after)
        log.warning(
            "watch interrupted",
            resource=self.resource.plural,
            reason=reason,
            error=str(error or "the server ended the watch at once"),
            wait_seconds=round(wait, 3),
        )
        await asyncio.sleep(wait)


def _identity(obj: T) -> T:
    return obj

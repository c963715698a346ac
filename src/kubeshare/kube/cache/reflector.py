"""Keeps a store equal to what the API server has, whatever breaks on the way.

A list gives the state at one resourceVersion; a watch from there tells each change.
What makes it reliable is what happens when that breaks:

1. The list is read in pages, all of them, and begun again when it expires.
2. A new list is compared with the store by uid: what vanished meanwhile is told
   as deleted, a reused name as deleted and added, the unchanged not at all.
3. The resourceVersion is opaque; each event, bookmarks too, moves it on.
4. Bookmarks are asked for, the server ends a watch after 5 to 10 minutes (drawn, so
   that not all clients come at once), and 75 s of silence count as a lost connection.
5. 410 (as status or as event) means list again; any other failure means watch again
   from the last resourceVersion.
6. Between attempts it waits, longer each time, and at least what the server asks for.
   Only progress resets that: a watch that ends at once without an event is a failure.
7. Handlers are told changes and must only put keys into queues: they are called in
   the middle of reading the stream.
8. ``synced``, relists, restarts by reason and the age of the last event are there to see.
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
"""Seconds that a watch without any event must have lasted not to count as a failure."""
SLACK = 1.0
"""Seconds by which silence may be noticed too early."""


class Reflector(Generic[T]):
    """Lists and watches one kind of objects into a store.

    Args:
        client: where to ask.
        resource: the kind, and as what its objects are read.
        namespace: ``""`` for all.
        labels: label selector.
        fields: field selector.
        store: to fill; its own by default.
        page: objects a page of a list.
        idle: seconds of silence after which a watch counts as lost.
        draw: random number in [0, 1), for jitter.

    Attributes:
        store: the objects.
        relists: lists after the first one.
        restarts: watches that did not go on, by reason.
    """

    def __init__(  # noqa: PLR0913 - what to watch, and how
        self,
        client: Client,
        resource: Resource[T],
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        store: Store[T] | None = None,
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
        self._idle = idle
        self._draw = draw
        self._backoff = Backoff(0.2, 30.0, draw)
        self._handlers: list[Handler[T]] = []
        self._synced = asyncio.Event()
        self._resource_version = ""
        self._last_event: float | None = None
        self.store: Store[T] = Store() if store is None else store
        self.relists = 0
        self.restarts: Counter[str] = Counter()

    @property
    def synced(self) -> bool:
        """Whether the store has been filled once."""
        return self._synced.is_set()

    @property
    def resource_version(self) -> str:
        """Up to which version everything has been told; ``""`` where that is not known."""
        return self._resource_version

    @property
    def last_event_age(self) -> float | None:
        """Seconds since anything came from the server (bookmarks too); None before."""
        if self._last_event is None:
            return None
        return asyncio.get_running_loop().time() - self._last_event

    async def wait_for_sync(self) -> None:
        """Wait until the store has been filled once."""
        await self._synced.wait()

    def subscribe(self, handler: Handler[T]) -> None:
        """Tell ``handler`` every change from now on; before ``run``, all of them.

        It must return at once and not raise: put a key into a queue, nothing else.
        """
        self._handlers.append(handler)

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
            self.store.encode,
            self._namespace,
            labels=self._labels,
            fields=self._fields,
            page=self._page,
        )
        initial = not self.synced
        self.relists += not initial
        self._tell(self.store.iter_replace(listing.items, keep=listing.unreadable, initial=initial))
        self._resource_version = listing.resource_version
        self._touch()
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
                    self._take(event)
                    self._backoff.reset()
                    # To set a timer anew costs as much as to read an event.
                    if loop.time() + self._idle > (silence.when() or 0.0) + SLACK:
                        silence.reschedule(loop.time() + self._idle)
        except TimeoutError:
            words = f"watch {self.resource.plural}: silent for {self._idle:g} s"
            raise UnreachableError(words, sent=True) from None
        if not events and loop.time() - started < SHORT_WATCH:
            await self._pause("empty", None)
            return
        self._backoff.reset()
        self.restarts["ended"] += 1

    def _take(self, event: WatchEvent[T]) -> None:
        self._touch()
        if event.type == DELETED:
            self._tell(self.store.remove(event.key, uid=event.identity.uid, last=event.object))
        elif event.object is not None:
            self._tell(self.store.put(event.object))
        self._resource_version = event.identity.resource_version

    def _tell(self, changes: Iterable[Change[T]]) -> None:
        for change in changes:
            for handler in self._handlers:
                handler(change)

    def _touch(self) -> None:
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

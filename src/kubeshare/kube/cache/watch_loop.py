"""Watches one kind of objects without end, whatever interrupts the stream.

1. The resourceVersion of each event, bookmarks included, is where the next watch begins.
2. The watch asks for bookmarks. The server ends it after 5 to 10 minutes (with jitter, so that
   clients do not reconnect together), and after 75 s of silence the connection may be lost. The
   next watch begins at once: a kind whose objects never change gets no bookmarks unless etcd
   reports progress, so silence is no failure. Events get none in any case, since the API server
   has no cache of them: of a kind like that, it begins from a version that is not too old.
3. 410, as a status or as an event, asks for a new resourceVersion to start from; any other failure
   causes a new watch from the last one.
4. After a watch that did not last as long as it asked for, the present resourceVersion is read. If
   it is lower than the last one, etcd was restored from an older snapshot: a watch from a version
   that is yet to come gets neither events nor an error, so the loop starts anew. No version shows
   it if the restored API server has passed the last one by then: where a start costs no more than
   that question, the loop starts anew without asking.
5. Retries have a backoff and respect ``Retry-After``. Only progress resets the backoff: a watch
   that ends at once without an event is a failure.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Final, Generic, TypeVar

import structlog

from kubeshare.kube.cache.watch import WatchEvent
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import ApiError, GoneError
from kubeshare.kube.controller.backoff import Backoff
from kubeshare.kube.logs import debugging
from kubeshare.kube.resources import Resource

T = TypeVar("T")

log = structlog.get_logger(__name__)

IDLE_SECONDS: Final = 75.0
"""Seconds of silence after which a watch may be lost; a bookmark comes once a minute."""
SHORT_WATCH: Final = 1.0
"""A watch without events that lasts less than so many seconds is a failure."""
EVENTS_AT_ONCE: Final = 100
"""Events in a row that are handled before other tasks run."""
SLACK: Final = 1.0
"""Silence may be detected so many seconds too early."""


class WatchLoop(Generic[T]):
    """Reads the changes of one kind of objects, from one resourceVersion on.

    Args:
        client: of the API server.
        resource: the kind, with the type that its objects are decoded into.
        start: returns the resourceVersion to watch from, at first and after it has expired.
        handle: called with each event, bookmarks included; it must return at once.
        namespace: ``""`` for all.
        labels: label selector.
        fields: field selector.
        starts_cheaply: whether ``start`` costs about as much as reading the resourceVersion of now.
        latest: of a kind without bookmarks, returns the present resourceVersion.
        idle: seconds of silence after which a watch counts as lost.
        draw: returns a random number in [0, 1), for jitter.

    Attributes:
        resource_version: where the watch is; ``""`` before it starts.
        restarts: number of watches that ended, by reason.
    """

    def __init__(  # noqa: PLR0913 - the selection and the settings of a watch
        self,
        client: Client,
        resource: Resource[T],
        start: Callable[[], Awaitable[str]],
        handle: Callable[[WatchEvent[T]], None],
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        starts_cheaply: Callable[[], bool] = lambda: False,
        latest: Callable[[], Awaitable[str]] | None = None,
        idle: float = IDLE_SECONDS,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._client = client
        self._resource = resource
        self._start = start
        self._handle = handle
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        self._starts_cheaply = starts_cheaply
        self._latest = latest
        self._checked = ""  # what `latest` returned before the watch that is open began
        self._idle = idle
        self._draw = draw
        self._backoff = Backoff(0.2, 30.0, draw)
        self._last_event: float | None = None
        self._interrupted = False
        self._last_seen = ""
        self.resource_version = ""
        self.restarts: Counter[str] = Counter()

    @property
    def last_event_age(self) -> float | None:
        """Seconds since the last event, bookmark or start; None before the first one."""
        if self._last_event is None:
            return None
        return asyncio.get_running_loop().time() - self._last_event

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            try:
                if self._interrupted and self.resource_version:
                    await self._check_history()
                if not self.resource_version:
                    self._advance(await self._start())
                    self._checked = ""
                    self._record_activity()
                self._interrupted = True
                await self._watch()
            except GoneError as error:
                self.resource_version = ""
                await self._pause("expired", error)
            except ApiError as error:
                await self._pause(error.reason or str(error.status), error)

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        started, lifetime = loop.time(), 300 + 300 * self._draw()
        events = 0
        stream = self._client.watch(
            self._resource,
            self._namespace,
            resource_version=self.resource_version,
            labels=self._labels,
            fields=self._fields,
            lifetime=lifetime,
        )
        try:
            async with asyncio.timeout(self._idle) as silence, aclosing(stream):
                async for event in stream:
                    events += 1
                    self._record_activity()
                    self._handle(event)
                    self._advance(event.identity.resource_version)
                    self._backoff.reset()
                    if not events % EVENTS_AT_ONCE:
                        await asyncio.sleep(0)
                    # Rescheduling the timeout costs as much as decoding an event.
                    if loop.time() + self._idle > (silence.when() or 0.0) + SLACK:
                        silence.reschedule(loop.time() + self._idle)
        except TimeoutError:
            self._skip_silence()
            return
        if not events and loop.time() - started < SHORT_WATCH:
            await self._pause("empty", None)
            return
        self._interrupted = loop.time() - started < lifetime - SLACK
        self._backoff.reset()
        self.restarts["ended"] += 1
        if debugging():
            log.debug("watch ended", resource=self._resource.plural, events=events)

    def has_gone_back(self, latest: str) -> bool:
        """Whether ``latest``, the present resourceVersion, is lower than one that was seen before.

        The API server was restored to an older state then.
        """
        return _is_older(latest, self._last_seen)

    def _skip_silence(self) -> None:
        """Let the next watch begin where a silent one can have missed nothing.

        Versions are forgotten after five minutes; of a kind without bookmarks, 410 would cost the
        events since the last one.
        """
        if _is_older(self.resource_version, self._checked):
            self._advance(self._checked)
        self.restarts["silent"] += 1

    async def _check_history(self) -> None:
        """Forget where the watch is if the API server has not come that far, or may not have."""
        if self._starts_cheaply() or self.has_gone_back(await self._present_version()):
            self.resource_version = ""
        self._interrupted = False

    async def _present_version(self) -> str:
        if self._latest is not None:
            self._checked = await self._latest()
            return self._checked
        return await self._client.latest_version(
            self._resource, self._namespace, labels=self._labels, fields=self._fields
        )

    def _advance(self, resource_version: str) -> None:
        self.resource_version = self._last_seen = resource_version

    def _record_activity(self) -> None:
        self._last_event = asyncio.get_running_loop().time()

    async def _pause(self, reason: str, error: ApiError | None) -> None:
        self.restarts[reason] += 1
        wait = self._backoff.next()
        if error is not None and error.retry_after is not None:
            wait = max(wait, error.retry_after)
        log.warning(
            "watch interrupted",
            resource=self._resource.plural,
            reason=reason,
            error=str(error or "the server ended the watch at once"),
            wait_seconds=round(wait, 3),
        )
        await asyncio.sleep(wait)


def _is_older(version: str, other: str) -> bool:
    """Whether a resourceVersion is older than another one; False if either is no number."""
    return version.isdecimal() and other.isdecimal() and int(version) < int(other)

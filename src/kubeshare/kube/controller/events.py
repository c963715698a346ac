"""Records Kubernetes Events: each is written once, and repetitions are counted.

``emit`` never waits and never fails: it queues the event, and ``run`` writes it. The same event
again (same object, type, reason, action and note) becomes a *series*: the first repetition is
written at once, later ones at most every few minutes. Each object has a budget, so that a loop
cannot flood the API server: once it is spent, new events of the object are dropped and counted.
"""

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

import structlog
from msgspec import Struct, to_builtins

from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import AlreadyExistsError, ApiError, NotFoundError
from kubeshare.kube.clock import utc_now
from kubeshare.kube.conditions import micro_timestamp
from kubeshare.kube.controller.workqueue import WorkQueue
from kubeshare.kube.meta import metadata_of
from kubeshare.kube.resources import EVENTS, Resource

log = structlog.get_logger(__name__)

NORMAL = "Normal"
WARNING = "Warning"

NOTE_LIMIT = 1024
SERIES_SECONDS = 360.0
"""A repetition after so many seconds is a new event."""
REFRESH_SECONDS = 300.0
"""A series is written at most once in so many seconds."""
BURST = 25
REFILL_SECONDS = 300.0
"""An object may have ``BURST`` events at once, and one more every so many seconds."""
REMEMBERED = 4096
"""Series and budgets that are kept; the least recently used are dropped first."""
ATTEMPTS = 8


class ObjectReference(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The object that an event is about."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


def reference(resource: Resource[Any], obj: Any) -> ObjectReference:
    """A reference to an object of that resource."""
    metadata = metadata_of(obj)
    return ObjectReference(
        api_version=resource.api_version,
        kind=resource.kind,
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
    )


class _Identity(NamedTuple):
    """The fields by which two events are the same."""

    namespace: str
    name: str
    uid: str
    type: str
    reason: str
    action: str
    note: str
    related: str


class _Series:
    """An event and its number of repetitions."""

    __slots__ = (
        "count",
        "created",
        "event_name",
        "first",
        "last",
        "last_at",
        "regarding",
        "related",
        "written_at",
        "written_count",
    )

    def __init__(self, regarding: ObjectReference, related: ObjectReference | None) -> None:
        self.regarding = regarding
        self.related = related
        # Each label of the name must begin and end with a letter or digit.
        name = regarding.name[:220].rstrip("-.")
        self.event_name = f"{name}.{uuid.uuid4().hex[:16]}"
        self.count = 0
        self.first = ""  # wall clock, as the API has it
        self.last = ""
        self.last_at = 0.0  # monotonic
        self.created = False
        self.written_count = 0
        self.written_at = 0.0  # monotonic


class _Budget:
    """A token bucket."""

    __slots__ = ("_at", "_tokens")

    def __init__(self, now: float) -> None:
        self._tokens = float(BURST)
        self._at = now

    def take(self, now: float) -> bool:
        self._tokens = min(float(BURST), self._tokens + (now - self._at) / REFILL_SECONDS)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class EventRecorder:
    """Queues events and writes them in the background.

    Args:
        client: of the API server.
        controller: the reporting controller, for example ``kubeshare.nthu/scheduler``.
        instance: its replica (the pod's name).
        wall_clock: for the times in the events.

    Attributes:
        dropped: number of events over budget, refused, or failed too often.
    """

    def __init__(
        self,
        client: Client,
        controller: str,
        instance: str,
        *,
        wall_clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._client = client
        self._controller = controller
        self._instance = instance[:128]
        self._wall_clock = wall_clock
        self._series: OrderedDict[_Identity, _Series] = OrderedDict()
        self._budgets: OrderedDict[tuple[str, str, str], _Budget] = OrderedDict()
        self._queue: WorkQueue[_Identity] = WorkQueue(
            f"{controller} events", base_delay=1.0, max_delay=60.0
        )
        # At the end ``flush`` writes beside ``run``: an older count must not be written last.
        self._writing = asyncio.Lock()
        self.dropped = 0

    def emit(  # noqa: PLR0913 - the fields of an event
        self,
        regarding: ObjectReference,
        reason: str,
        action: str,
        note: str,
        *,
        type: str = NORMAL,  # noqa: A002 - its name in the API
        related: ObjectReference | None = None,
    ) -> None:
        """Record an event; returns at once.

        Args:
            regarding: the object that the event is about.
            reason: one CamelCase word.
            action: what the controller did, one CamelCase word.
            note: a sentence: what happened, and what to do next.
            type: ``NORMAL`` or ``WARNING``.
            related: another object that is involved.
        """
        now = asyncio.get_running_loop().time()
        key = _Identity(
            regarding.namespace,
            regarding.name,
            regarding.uid,
            type,
            reason,
            action,
            truncate_note(note),
            related.uid if related else "",
        )
        series = self._series.get(key)
        if series is None or now - series.last_at > SERIES_SECONDS:
            if not self._take_from_budget(key, now):
                return
            self._forget_old(now)
            series = _Series(regarding, related)
            _put_bounded(self._series, key, series)
        self._series.move_to_end(key)
        present = micro_timestamp(self._wall_clock())
        series.first = series.first or present
        series.last, series.last_at = present, now
        series.count += 1
        if series.count <= 2:
            self._queue.add(key)
        else:
            self._queue.add_after(key, series.written_at + REFRESH_SECONDS - now)

    async def run(self) -> None:
        """Write events until cancelled."""
        while True:
            key = await self._queue.get()
            try:
                await self._attempt(key)
            finally:
                self._queue.done(key)

    async def flush(self, seconds: float = 2.0) -> None:
        """Write all queued events, for the end of a program; gives up after ``seconds``."""
        try:
            async with asyncio.timeout(seconds):
                for key, series in list(self._series.items()):
                    if series.written_count < series.count:
                        await self._attempt(key)
        except TimeoutError:
            log.warning("events not written before the end")

    async def _attempt(self, key: _Identity) -> None:
        async with self._writing:
            await self._attempt_alone(key)

    async def _attempt_alone(self, key: _Identity) -> None:
        series = self._series.get(key)
        if series is None or series.written_count == series.count:
            return
        try:
            await self._write(key, series)
        except ApiError as error:
            if 0 < error.status < 429 or self._queue.failures(key) >= ATTEMPTS:
                self._queue.forget(key)
                self._series.pop(key, None)
                self.dropped += 1
                log.warning("event dropped", reason=key.reason, error=str(error))
            else:
                self._queue.add_rate_limited(key)
        else:
            self._queue.forget(key)

    async def _write(self, key: _Identity, series: _Series) -> None:
        count = series.count
        series.written_at = asyncio.get_running_loop().time()
        created = not series.created and await self._create(key, series)
        series.created = True
        if not created and count > 1:
            await self._update(key, series)
        series.written_count = count

    async def _create(self, key: _Identity, series: _Series) -> bool:
        """Create the event; returns False if it exists, maybe with an earlier count."""
        body: dict[str, Any] = {
            "metadata": {"name": series.event_name, "namespace": key.namespace or "default"},
            "eventTime": series.first,
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "type": key.type,
            "reason": key.reason,
            "action": key.action,
            "note": key.note,
            "regarding": to_builtins(series.regarding),
        }
        if series.related is not None:
            body["related"] = to_builtins(series.related)
        if series.count > 1:
            body["series"] = _series_of(series)
        try:
            await self._client.create(EVENTS, body)
        except AlreadyExistsError:  # an earlier attempt succeeded, and its answer was lost
            log.debug("event exists already", name=series.event_name)
            return False
        return True

    async def _update(self, key: _Identity, series: _Series) -> None:
        namespace = key.namespace or "default"
        patch = {"series": _series_of(series)}
        try:
            await self._client.merge_patch(EVENTS, series.event_name, patch, namespace)
        except NotFoundError:  # the API server forgets events after an hour
            await self._create(key, series)

    def _forget_old(self, now: float) -> None:
        """Forget series that are written, and too old for another repetition."""
        while self._series:
            key, oldest = next(iter(self._series.items()))
            unwritten = oldest.written_count < oldest.count
            if unwritten or now - oldest.last_at <= SERIES_SECONDS:
                return
            del self._series[key]

    def _take_from_budget(self, key: _Identity, now: float) -> bool:
        owner = (key.namespace, key.name, key.uid)
        budget = self._budgets.get(owner)
        if budget is None:
            budget = _Budget(now)
            _put_bounded(self._budgets, owner, budget)
        self._budgets.move_to_end(owner)
        if budget.take(now):
            return True
        self.dropped += 1
        return False


def _put_bounded(memory: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    memory[key] = value
    if len(memory) > REMEMBERED:
        memory.popitem(last=False)


def _series_of(series: _Series) -> dict[str, Any]:
    return {"count": series.count, "lastObservedTime": series.last}


def truncate_note(note: str, limit: int = NOTE_LIMIT) -> str:
    """The note in at most ``limit`` bytes, by default as many as the API server takes."""
    encoded = note.encode()
    if len(encoded) <= limit:
        return note
    return encoded[: limit - 3].decode(errors="ignore") + "…"

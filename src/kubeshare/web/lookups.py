"""Reads what is not watched: events, and what running pods used.

There are too many of them to be kept, so they are listed when somebody looks, and remembered
for a moment: however many pages are open, the API server is asked once.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from heapq import nlargest
from typing import Final, Generic, TypeVar

from msgspec import Struct, field

from kubeshare.api.types.share_usage import SHARE_USAGES, ShareUsage
from kubeshare.core.units import MICROS, format_share
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import ApiError
from kubeshare.kube.meta import ObjectMeta
from kubeshare.kube.resources import EVENTS
from kubeshare.web.sources import Sources
from kubeshare.web.use_history import Account, UseHistory
from kubeshare.web.views.nodes import Span, Use

T = TypeVar("T")

MOST_EVENTS: Final = 500
"""Events that are shown, the latest."""
KINDS: Final = ("SharePod", "VGPU", "GPUNode", "GPUQuota")
"""Whose events are shown together; those of a pod are on its page."""
_REMEMBERED: Final = 256
_EVENTS_SECONDS: Final = 5.0
_USAGE_SECONDS: Final = 60.0
_PATIENCE_SECONDS: Final = 10.0


class Remembered(Generic[T]):
    """What a function returned for an argument, for some seconds.

    Args:
        read: the function.
        seconds: after which it is called again.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        read: Callable[[str], Awaitable[T]],
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._seconds = seconds
        self._clock = clock
        self._known: OrderedDict[str, tuple[float, T]] = OrderedDict()
        self._lock = asyncio.Lock()

    async def get(self, argument: str) -> T:
        """What the function returns; one call at a time."""
        async with self._lock:
            known = self._known.get(argument)
            if known is None or self._clock() - known[0] > self._seconds:
                async with asyncio.timeout(_PATIENCE_SECONDS):
                    known = self._clock(), await self._read(argument)
                self._known[argument] = known
                if len(self._known) > _REMEMBERED:
                    self._known.popitem(last=False)
            return known[1]


class Regarding(Struct, frozen=True, gc=False):
    """The object that an event is about."""

    kind: str = ""
    namespace: str = ""
    name: str = ""


class Series(Struct, frozen=True, rename="camel", gc=False):
    """How often an event was repeated, and when at last."""

    count: int = 0
    last_observed_time: str | None = None


class Event(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """The fields of an event that are shown."""

    metadata: ObjectMeta
    event_time: str | None = None
    deprecated_last_timestamp: str | None = None
    type: str = "Normal"
    reason: str = ""
    note: str = ""
    regarding: Regarding = field(default_factory=Regarding)
    series: Series | None = None

    @property
    def at(self) -> str:
        """When it was seen last, as RFC 3339."""
        last = self.series.last_observed_time if self.series else None
        seen = last or self.event_time or self.deprecated_last_timestamp
        return seen or self.metadata.creation_timestamp or ""


class EventRow(Struct, frozen=True, kw_only=True):
    """An event as the page shows it."""

    at: str
    type: str
    reason: str
    note: str
    kind: str
    namespace: str
    name: str
    count: int


class Lookups:
    """Reads events and accounts with the user's rights.

    Args:
        client: has these rights.
        sources: says which namespaces are named.
    """

    def __init__(self, client: Client, sources: Sources) -> None:
        self._client = client
        self._sources = sources
        self._events = Remembered(self._read_events, _EVENTS_SECONDS)
        self._usage = Remembered(self._read_usage, _USAGE_SECONDS)
        self._history = UseHistory()

    async def events(self, namespace: str = "", name: str = "") -> list[EventRow]:
        """The latest events, of all that is KubeShare's or of one object.

        Raises:
            ApiError: they cannot be listed.
            TimeoutError: that takes too long.
        """
        return await self._events.get(f"{namespace}/{name}")

    async def used(self, namespace: str, pods: Collection[str]) -> dict[tuple[str, str], Use]:
        """Namespace and name of these pods → their use; those that run and are known."""
        try:
            accounts = await self._usage.get(namespace)
        except (ApiError, TimeoutError):
            return {}
        return {
            (namespace, pod): _use(account, self._history.spans((namespace, pod), account))
            for pod in pods
            if (account := accounts.get(pod))
        }

    async def _read_events(self, where: str) -> list[EventRow]:
        namespace, _, name = where.partition("/")
        if name:
            selected = [(namespace, f"regarding.name={name}")]
        else:
            places = self._sources.namespaces or ("",)
            selected = [(place, f"regarding.kind={kind}") for place in places for kind in KINDS]
        found: list[EventRow] = []
        for place, fields in selected:
            listed = await self._client.list_each(EVENTS.into(Event), _row, place, fields=fields)
            found = nlargest(MOST_EVENTS, [*found, *listed.items], key=lambda row: row.at)
        return found

    async def _read_usage(self, namespace: str) -> dict[str, Account]:
        """The accounts of the running pods of a namespace, by their names."""
        listed = await self._client.list_each(SHARE_USAGES, _account, namespace)
        return {account.pod: account for account in filter(None, listed.items)}


def _row(event: Event) -> EventRow:
    return EventRow(
        at=event.at,
        type=event.type,
        reason=event.reason,
        note=event.note,
        kind=event.regarding.kind,
        namespace=event.regarding.namespace,
        name=event.regarding.name,
        count=event.series.count if event.series else 1,
    )


def _account(usage: ShareUsage) -> Account | None:
    """The account of a running grant; None for another one."""
    status = usage.status
    if status.ended or not status.duration_ns:
        return None
    used_ns = sum(share.used_ns for share in status.shares)
    return Account(
        *(status.pod, status.grant, status.started_at, status.observed_at),
        used_ns=used_ns,
        duration_ns=status.duration_ns,
    )


def _use(account: Account, spans: tuple[Span, ...]) -> Use:
    hundredths = round(account.used_ns * 100 / account.duration_ns)
    return Use(format_share(hundredths * MICROS // 100), account.observed, spans)

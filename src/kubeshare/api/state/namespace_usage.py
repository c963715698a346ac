"""Knows what a namespace held right after a write of this program.

Two programs that decide at one moment do not see each other's shares, so a namespace with a quota
could get both. The API server orders their writes, and a watch delivers them in that order. So
each waits until its own write is delivered and looks at the sum of that moment: the later writer
sees the share of the earlier one.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from kubeshare.api.types.v1 import VGPU, VGPUS
from kubeshare.core.quota.charge import Held, charges
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import DELETED, Change
from kubeshare.kube.client.client import Client

WATCH_SECONDS: Final = 2.0
"""Seconds to wait for a watch; then all vGPUs are read instead."""

_VGPUS: Final = VGPUS.into(VGPU)
_NAMESPACE: Final = attrgetter("namespace")
_GROUP: Final = attrgetter("group")


class Where(NamedTuple):
    """The node and model of a GPU, and the group that has a share of it; "" for none."""

    node: str
    model: str
    group: str


class Usage(NamedTuple):
    """What a namespace holds.

    Attributes:
        held: what it is charged in all.
        micros: what it is charged at each place; without a group, what the namespace is as a
            whole, its groups included.
        holders: the number of its holders at each place.
    """

    held: Held
    micros: Mapping[Where, int]
    holders: Mapping[Where, int]


class _Places:
    """Counts the holders of a namespace by place."""

    def __init__(self) -> None:
        self._micros: Counter[Where] = Counter()
        self._holders: Counter[Where] = Counter()

    def add(self, vgpu: VGPU, namespace: str, sign: int) -> None:
        """Add the holders of a vGPU, or remove them where ``sign`` is -1."""
        spec = vgpu.spec
        own = [holder for holder in vgpu.status.holders if holder.namespace == namespace]
        grouped = [holder for holder in own if holder.group]
        of_all = charges(own, spec.memory_bytes, lambda _: "")
        for group, held in (of_all | charges(grouped, spec.memory_bytes, _GROUP)).items():
            self._micros[Where(spec.node_name, spec.model, group)] += sign * held.micros
        for holder in own:
            self._holders[Where(spec.node_name, spec.model, holder.group)] += sign

    def with_held(self, held: Held) -> Usage:
        """The counts at this moment."""
        self._micros, self._holders = +self._micros, +self._holders
        return Usage(held, dict(self._micros), dict(self._holders))


class _Waiter(NamedTuple):
    """Who waits for a version of a vGPU, and for which namespace."""

    version: int
    namespace: str
    usage: asyncio.Future[Usage]


class NamespaceUsage:
    """Adds up the holders of each namespace.

    Args:
        client: reads the vGPUs if the watch is late.
        reflector: watches the vGPUs.
    """

    def __init__(self, client: Client, reflector: Reflector[VGPU]) -> None:
        self._client = client
        self._store = reflector.store
        self._held: defaultdict[str, Held] = defaultdict(Held)
        self._places: dict[str, _Places] = {}  # of namespaces that were asked for
        self._waiters: defaultdict[str, list[_Waiter]] = defaultdict(list)
        reflector.subscribe(self._changed)

    async def after(self, written: VGPU, namespace: str) -> Usage:
        """What a namespace held when a vGPU was written, or somewhat later.

        Raises:
            ApiError: the watch is late, and the API server does not answer.
        """
        if namespace not in self._places:
            self._places[namespace] = _count(self._store.snapshot().values(), namespace)
        name, version = written.metadata.name, int(written.metadata.resource_version)
        known = self._store.get(name)
        if known is not None and int(known.metadata.resource_version) >= version:
            return self._now(namespace)
        waiter = _Waiter(version, namespace, asyncio.get_running_loop().create_future())
        self._waiters[name].append(waiter)
        try:
            async with asyncio.timeout(WATCH_SECONDS):
                return await waiter.usage
        except TimeoutError:
            return _sum((await self._client.list(_VGPUS)).items, namespace)
        finally:
            self._forget(name, waiter)

    def _forget(self, name: str, waiter: _Waiter) -> None:
        left = [each for each in self._waiters.pop(name, ()) if each is not waiter]
        if left:
            self._waiters[name] = left

    def _changed(self, change: Change[VGPU]) -> None:
        is_deleted = change.type == DELETED
        before = change.old or (change.object if is_deleted else None)
        for vgpu, sign in ((before, -1), (None if is_deleted else change.object, 1)):
            if vgpu is not None:
                self._add(vgpu, sign)
        metadata = change.object.metadata
        for waiter in self._waiters.get(metadata.name, ()):
            if int(metadata.resource_version) >= waiter.version and not waiter.usage.done():
                waiter.usage.set_result(self._now(waiter.namespace))

    def _add(self, vgpu: VGPU, sign: int) -> None:
        for namespace, held in _charges(vgpu).items():
            micros, memory_bytes = sign * held.micros, sign * held.memory_bytes
            self._held[namespace] = self._held[namespace].plus(micros, memory_bytes)
            if namespace in self._places:
                self._places[namespace].add(vgpu, namespace, sign)

    def _now(self, namespace: str) -> Usage:
        return self._places[namespace].with_held(self._held[namespace])


def _charges(vgpu: VGPU) -> dict[str, Held]:
    """What each namespace is charged for a vGPU."""
    return charges(vgpu.status.holders, vgpu.spec.memory_bytes, _NAMESPACE)


def _count(vgpus: Iterable[VGPU], namespace: str) -> _Places:
    places = _Places()
    for vgpu in vgpus:
        places.add(vgpu, namespace, 1)
    return places


def _sum(vgpus: Sequence[VGPU], namespace: str) -> Usage:
    held = Held()
    for vgpu in vgpus:
        more = _charges(vgpu).get(namespace, Held())
        held = held.plus(more.micros, more.memory_bytes)
    return _count(vgpus, namespace).with_held(held)

"""Knows what a namespace held right after a write of this program.

Two programs that decide at one moment do not see each other's shares, so a namespace with a quota
could get both. The API server orders their writes, and a watch delivers them in that order. So
each waits until its own write is delivered and looks at the sum of that moment: the later writer
sees the share of the earlier one.

The holders of a namespace are counted when it is asked for: first all of them, in steps between
which other tasks run, then each change. A namespace that nobody asks for any more is forgotten, for
instance one that is gone or has no quota any more.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from operator import attrgetter
from typing import Final, NamedTuple

from kubeshare.api.types.v1 import VGPU, VGPUS
from kubeshare.core.quota.charge import Held, charges
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import DELETED, Change
from kubeshare.kube.client.client import Client

WATCH_SECONDS: Final = 2.0
"""Seconds to wait for a watch; then all vGPUs are read instead."""
FORGET_SECONDS: Final = 600.0
"""Seconds without a question after which the counts of a namespace are dropped."""
VGPUS_AT_ONCE: Final = 100
"""vGPUs that are counted before other tasks run."""

_VGPUS: Final = VGPUS.into(VGPU)
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


class _Counts:
    """Counts the holders of a namespace by place.

    Args:
        namespace: the namespace.
        vgpus: names of the vGPUs that exist; they are counted one by one.

    Attributes:
        asked: when somebody asked last, in seconds.
        uncounted: names of the vGPUs that are not counted yet.
    """

    def __init__(self, namespace: str, vgpus: Collection[str]) -> None:
        self.asked = 0.0
        self.uncounted = set(vgpus)
        self._namespace = namespace
        self._held = Held()
        self._micros: Counter[Where] = Counter()
        self._holders: Counter[Where] = Counter()

    def add(self, vgpu: VGPU, sign: int = 1) -> None:
        """Add the holders of a vGPU, or remove them where ``sign`` is -1."""
        spec = vgpu.spec
        own = [holder for holder in vgpu.status.holders if holder.namespace == self._namespace]
        if not own:
            return
        grouped = [holder for holder in own if holder.group]
        of_all = charges(own, spec.memory_bytes, lambda _: "")
        self._held = self._held.plus(sign * of_all[""].micros, sign * of_all[""].memory_bytes)
        for group, held in (of_all | charges(grouped, spec.memory_bytes, _GROUP)).items():
            self._micros[Where(spec.node_name, spec.model, group)] += sign * held.micros
        for holder in own:
            self._holders[Where(spec.node_name, spec.model, holder.group)] += sign

    def change(self, name: str, old: VGPU | None, new: VGPU | None) -> None:
        """Replace what a vGPU held by what it holds; None where it did or does not exist."""
        if old is not None and name not in self.uncounted:
            self.add(old, -1)
        self.uncounted.discard(name)
        if new is not None:
            self.add(new)

    def usage(self) -> Usage:
        """The counts at this moment."""
        self._micros, self._holders = +self._micros, +self._holders
        return Usage(self._held, dict(self._micros), dict(self._holders))


class _Waiter(NamedTuple):
    """Who waits for a version of a vGPU, and the counts of which namespace."""

    version: int
    counts: _Counts
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
        self._counts: dict[str, _Counts] = {}  # by namespace, the one asked for last at the end
        self._waiters: defaultdict[str, list[_Waiter]] = defaultdict(list)
        reflector.subscribe(self._changed)

    async def after(self, written: VGPU, namespace: str) -> Usage:
        """What a namespace held when a vGPU was written, or somewhat later.

        Raises:
            ApiError: the watch is late, and the API server does not answer.
        """
        counts = await self._counted(namespace)
        name, version = written.metadata.name, int(written.metadata.resource_version)
        known = self._store.get(name)
        if known is not None and int(known.metadata.resource_version) >= version:
            return counts.usage()
        waiter = _Waiter(version, counts, asyncio.get_running_loop().create_future())
        self._waiters[name].append(waiter)
        try:
            async with asyncio.timeout(WATCH_SECONDS):
                return await waiter.usage
        except TimeoutError:
            return await self._listed(namespace)
        finally:
            self._forget(name, waiter)

    async def _counted(self, namespace: str) -> _Counts:
        """The counts of a namespace, complete."""
        now = asyncio.get_running_loop().time()
        counts = self._counts.pop(namespace, None)
        if counts is None:
            counts = _Counts(namespace, {key.name for key in self._store.snapshot()})
        counts.asked = now
        self._counts[namespace] = counts
        for name, each in list(self._counts.items()):
            if each.asked >= now - FORGET_SECONDS:
                break
            del self._counts[name]
        # Several who ask at the same time share the work.
        while counts.uncounted:
            for _ in range(min(VGPUS_AT_ONCE, len(counts.uncounted))):
                vgpu = self._store.get(counts.uncounted.pop())
                if vgpu is not None:
                    counts.add(vgpu)
            await asyncio.sleep(0)
        return counts

    async def _listed(self, namespace: str) -> Usage:
        """What a namespace holds according to the API server."""
        counts = _Counts(namespace, ())
        listing = await self._client.list(_VGPUS)
        for number, vgpu in enumerate(listing.items, start=1):
            counts.add(vgpu)
            if not number % VGPUS_AT_ONCE:
                await asyncio.sleep(0)
        return counts.usage()

    def _forget(self, name: str, waiter: _Waiter) -> None:
        left = [each for each in self._waiters.pop(name, ()) if each is not waiter]
        if left:
            self._waiters[name] = left

    def _changed(self, change: Change[VGPU]) -> None:
        is_deleted = change.type == DELETED
        old = change.old or (change.object if is_deleted else None)
        new = None if is_deleted else change.object
        concerned = {
            holder.namespace for vgpu in (old, new) if vgpu for holder in vgpu.status.holders
        }
        metadata = change.object.metadata
        for namespace in concerned & self._counts.keys():
            self._counts[namespace].change(metadata.name, old, new)
        for waiter in self._waiters.get(metadata.name, ()):
            if int(metadata.resource_version) >= waiter.version and not waiter.usage.done():
                waiter.usage.set_result(waiter.counts.usage())

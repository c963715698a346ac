"""Objects, their versions, and what has happened to them."""

import asyncio
import random
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from kubeshare.kube.conditions import timestamp
from kubeshare.simulator.control.json_copy import clone
from kubeshare.simulator.control.patches import Path
from kubeshare.simulator.control.selectors import matches

Raw = dict[str, Any]

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
"""The wall clock's time when a loop's virtual time is 0."""

STATUSLESS = {"events", "leases", "configmaps", "secrets", "serviceaccounts", "deviceclasses"}


class ObjectPath(NamedTuple):
    """Where an object is: its kind's group and plural, its namespace and name."""

    group: str
    plural: str
    namespace: str
    name: str


@dataclass
class HistoryEntry:
    """One entry of the history."""

    version: int
    place: ObjectPath
    old: Raw | None
    new: Raw | None


@dataclass
class Watcher:
    """An open watch; ``queue`` holds lines, None ends it, an exception breaks it.

    One that is ``mute`` tells nothing any more: its connection is gone, and nobody has said so.
    """

    group: str
    plural: str
    namespace: str
    labels: str
    fields: str
    queue: "asyncio.Queue[Raw | Exception | None]"
    mute: bool = False

    def show(self, happening: HistoryEntry) -> None:
        """Tell the watcher, if it selects the object before or after."""
        place = happening.place
        if self.mute:
            return
        if (place.group, place.plural) != (self.group, self.plural):
            return
        if self.namespace and place.namespace != self.namespace:
            return
        before, after = (
            state is not None and matches(state, self.labels, self.fields)
            for state in (happening.old, happening.new)
        )
        if not before and not after:
            return
        kind = ("MODIFIED" if before else "ADDED") if after else "DELETED"
        shown = clone(happening.new or happening.old)
        assert shown is not None
        shown["metadata"]["resourceVersion"] = str(happening.version)
        self.queue.put_nowait({"type": kind, "object": shown})


class Storage:
    """All objects, and the history that watches replay.

    Args:
        seed: of the uids and generated names, so that a story can be told again as it was.
    """

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a repeatable story
        self.objects: dict[ObjectPath, Raw] = {}
        self.version = 100
        self.history: list[HistoryEntry] = []
        self.compacted = 0
        self.watchers: list[Watcher] = []
        self.owners: dict[ObjectPath, dict[str, dict[Path, Any]]] = {}
        self.frozen = False
        self.after_change: list[Callable[[ObjectPath, Raw | None], None]] = []

    def select(
        self, group: str, plural: str, namespace: str, labels: str, fields: str
    ) -> Iterator[Raw]:
        """Objects in the order of their names, as etcd has them."""
        for place in sorted(self.objects):
            if (place.group, place.plural) != (group, plural):
                continue
            if namespace and place.namespace != namespace:
                continue
            if matches(self.objects[place], labels, fields):
                yield self.objects[place]

    def uid(self) -> str:
        """A new one."""
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def create(self, place: ObjectPath, obj: Raw) -> Raw:
        """Store a new object with the metadata that the server gives."""
        metadata = obj.setdefault("metadata", {})
        metadata |= {"name": place.name, "uid": metadata.get("uid") or self.uid()}
        if place.namespace:
            metadata["namespace"] = place.namespace
        metadata.setdefault("creationTimestamp", wall_clock())
        metadata.setdefault("generation", 1)
        return self._write(place, None, obj)

    def update(self, place: ObjectPath, obj: Raw) -> Raw:
        """Store another state; one that differs in nothing is no write."""
        old = self.objects[place]
        metadata, before = obj["metadata"], old["metadata"]
        for fixed in ("uid", "name", "namespace", "creationTimestamp", "resourceVersion"):
            if fixed in before:
                metadata[fixed] = before[fixed]
        waits_for_kubelet = place.plural == "pods" and obj.get("spec", {}).get("nodeName")
        released = before.get("finalizers") and not metadata.get("finalizers")
        if metadata.get("deletionTimestamp") and released and not waits_for_kubelet:
            return self.remove(place)
        if obj == old:
            return old
        if _wish(old) != _wish(obj):
            metadata["generation"] = before.get("generation", 1) + 1
        return self._write(place, old, obj)

    def remove(self, place: ObjectPath) -> Raw:
        """Remove an object for good."""
        old = self.objects.pop(place)
        self.owners.pop(place, None)
        self.version += 1
        self._happened(HistoryEntry(self.version, place, old, None))
        return old

    def _write(self, place: ObjectPath, old: Raw | None, new: Raw) -> Raw:
        self.version += 1
        new["metadata"]["resourceVersion"] = str(self.version)
        self.objects[place] = new
        self._happened(HistoryEntry(self.version, place, old, new))
        return new

    def _happened(self, happening: HistoryEntry) -> None:
        self.history.append(happening)
        if not self.frozen:
            for watcher in self.watchers:
                watcher.show(happening)
        for hook in list(self.after_change):
            hook(happening.place, happening.new)


def _wish(obj: Raw) -> Raw:
    """What counts for ``generation``: all but metadata and status."""
    return {name: value for name, value in obj.items() if name not in {"metadata", "status"}}


def wall_clock(later: float = 0.0) -> str:
    """The virtual time, or so many seconds after it; the beginning where none passes."""
    try:
        passed = asyncio.get_running_loop().time()
    except RuntimeError:
        passed = 0.0
    return timestamp(BEGINNING + timedelta(seconds=passed + later))

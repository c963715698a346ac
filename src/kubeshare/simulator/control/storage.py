"""The objects of the fake API server, their versions and their history."""

import asyncio
import random
import uuid
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from kubeshare.kube.conditions import timestamp
from kubeshare.simulator.control.patches import Path
from kubeshare.simulator.control.selectors import matches

Raw = dict[str, Any]

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
"""The wall clock's time at virtual time 0."""

STATUSLESS = {
    *("events", "leases", "configmaps", "secrets", "serviceaccounts", "deviceclasses"),
    "shareusages",
}
"""The kinds without the subresource ``status``."""

STATUS_DEFAULTS = {"vgpus": {"phase": "Creating"}, "gpunodes": {"mode": "shared"}}
"""What the CRDs of KubeShare set in the status of a new object."""


class ObjectPath(NamedTuple):
    """Identifies an object: group and plural of its kind, namespace and name."""

    group: str
    plural: str
    namespace: str
    name: str


@dataclass
class HistoryEntry:
    """One change of the history; ``old`` or ``new`` is None for a creation or a deletion."""

    version: int
    path: ObjectPath
    old: Raw | None
    new: Raw | None
    _events: dict[str, bytes] = field(default_factory=dict)

    def event(self, kind: str) -> bytes:
        """The line of a watch that reports the change: ``ADDED``, ``MODIFIED`` or ``DELETED``."""
        if kind not in self._events:
            obj = self.new or self.old
            assert obj is not None
            metadata = obj["metadata"] | {"resourceVersion": str(self.version)}
            self._events[kind] = event_line(kind, obj | {"metadata": metadata})
        return self._events[kind]


def event_line(kind: str, obj: Raw) -> bytes:
    """A line of a watch."""
    return msgspec.json.encode({"type": kind, "object": obj}) + b"\n"


@dataclass
class Watcher:
    """An open watch; ``queue`` holds lines, None ends it, an exception breaks it.

    It gets the changes after the version ``after``, even if that is yet to come. A ``mute`` watcher
    gets no more events, as if its connection were half-open.
    """

    group: str
    plural: str
    namespace: str
    labels: str
    fields: str
    queue: "asyncio.Queue[bytes | Exception | None]"
    after: int = 0
    mute: bool = False

    def notify(self, entry: HistoryEntry) -> None:
        """Queue the event of a change if the watch selects the old or the new state."""
        path = entry.path
        if entry.version <= self.after:
            return
        if path.plural != self.plural or path.group != self.group or self.mute:
            return
        if self.namespace and path.namespace != self.namespace:
            return
        before = entry.old is not None and matches(entry.old, self.labels, self.fields)
        after = entry.new is not None and matches(entry.new, self.labels, self.fields)
        if before or after:
            kind = ("MODIFIED" if before else "ADDED") if after else "DELETED"
            self.queue.put_nowait(entry.event(kind))


class Snapshot(NamedTuple):
    """The objects of a storage, the owners of their fields, and the version."""

    objects: dict[ObjectPath, Raw]
    owners: dict[ObjectPath, dict[str, dict[Path, Any]]]
    version: int


class Storage:
    """All objects, and the history that watches replay.

    A stored object is never changed: a new state replaces it. So reading needs no copy.

    Args:
        seed: of uids and generated names, which makes a run repeatable.
    """

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a repeatable story
        self.objects: dict[ObjectPath, Raw] = {}
        self._paths: defaultdict[tuple[str, str], list[ObjectPath]] = defaultdict(list)
        self.version = 100
        self.history: list[HistoryEntry] = []
        self.compacted = 0
        self.watchers: list[Watcher] = []
        self.owners: dict[ObjectPath, dict[str, dict[Path, Any]]] = {}
        self.frozen = False
        self.after_change: list[Callable[[ObjectPath, Raw | None], None]] = []

    def select(
        self, group: str, plural: str, namespace: str, labels: str, fields: str
    ) -> list[Raw]:
        """The selected objects in the order of their names, as in etcd; not to be changed."""
        objects = self.objects
        paths = self._paths[group, plural]
        found = [objects[path] for path in paths if not namespace or path.namespace == namespace]
        return [each for each in found if matches(each, labels, fields)]

    def compact(self) -> None:
        """Forget the history: watches can start only from the present version."""
        self.compacted = self.version
        self.history.clear()

    def snapshot(self) -> Snapshot:
        """The present state."""
        return Snapshot(dict(self.objects), deepcopy(self.owners), self.version)

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a former state and its version, as etcd does that is restored from a file.

        Open watches get no event of it: end them. The history is gone.
        """
        changed = [
            path
            for path in self.objects.keys() | snapshot.objects.keys()
            if self.objects.get(path) is not snapshot.objects.get(path)
        ]
        self.objects = dict(snapshot.objects)
        self.owners = deepcopy(snapshot.owners)
        self.version = snapshot.version
        self.compact()
        self._paths.clear()
        for path in sorted(self.objects):
            self._paths[path.group, path.plural].append(path)
        for path in sorted(changed):
            for hook in list(self.after_change):
                hook(path, self.objects.get(path))

    def uid(self) -> str:
        """A new uid."""
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def create(self, path: ObjectPath, obj: Raw) -> Raw:
        """Store a new object with the metadata that the server sets."""
        metadata = obj.setdefault("metadata", {})
        metadata |= {"name": path.name, "uid": metadata.get("uid") or self.uid()}
        if path.namespace:
            metadata["namespace"] = path.namespace
        metadata.setdefault("creationTimestamp", wall_clock())
        metadata.setdefault("generation", 1)
        if default := STATUS_DEFAULTS.get(path.plural):
            obj["status"] = default | obj.get("status", {})
        insort(self._paths[path.group, path.plural], path)
        return self._write(path, None, obj)

    def update(self, path: ObjectPath, obj: Raw) -> Raw:
        """Store a new state; an unchanged object keeps its resourceVersion."""
        old = self.objects[path]
        metadata, before = obj["metadata"], old["metadata"]
        for fixed in ("uid", "name", "namespace", "creationTimestamp", "resourceVersion"):
            if fixed in before:
                metadata[fixed] = before[fixed]
        on_node = path.plural == "pods" and obj.get("spec", {}).get("nodeName")
        released = before.get("finalizers") and not metadata.get("finalizers")
        if metadata.get("deletionTimestamp") and released and not on_node:
            return self.remove(path)
        if obj == old:
            return old
        if _desired_state(old) != _desired_state(obj):
            metadata["generation"] = before.get("generation", 1) + 1
        return self._write(path, old, obj)

    def remove(self, path: ObjectPath) -> Raw:
        """Remove an object for good."""
        old = self.objects.pop(path)
        paths = self._paths[path.group, path.plural]
        del paths[bisect_left(paths, path)]
        self.owners.pop(path, None)
        self.version += 1
        self._record(HistoryEntry(self.version, path, old, None))
        return old

    def _write(self, path: ObjectPath, old: Raw | None, new: Raw) -> Raw:
        self.version += 1
        new["metadata"]["resourceVersion"] = str(self.version)
        self.objects[path] = new
        self._record(HistoryEntry(self.version, path, old, new))
        return new

    def _record(self, entry: HistoryEntry) -> None:
        self.history.append(entry)
        if not self.frozen:
            for watcher in self.watchers:
                watcher.notify(entry)
        for hook in list(self.after_change):
            hook(entry.path, entry.new)


def _desired_state(obj: Raw) -> Raw:
    """The fields that ``generation`` counts: all but metadata and status."""
    return {name: value for name, value in obj.items() if name not in {"metadata", "status"}}


def wall_clock(later: float = 0.0) -> str:
    """The wall-clock time ``later`` seconds from now; ``BEGINNING`` outside of an event loop."""
    try:
        passed = asyncio.get_running_loop().time()
    except RuntimeError:
        passed = 0.0
    return timestamp(BEGINNING + timedelta(seconds=passed + later))

"""Snapshots of a ledger whose cost is that of the changes since.

Taking a snapshot copies nothing. While it is referenced, the ledger logs the first value that
each write replaces; reading the snapshot copies the present state and restores those values. The
log of a snapshot that is no longer referenced is merged into the one before, or dropped, so the
logs are bounded by the number of referenced snapshots.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final
from weakref import ref

from kubeshare.core.ledger.device import Device, Node

_MIN_COMPACT: Final = 8


class Snapshot:
    """The nodes and devices of a ledger at one moment, unaffected by later changes."""

    __slots__ = ("__weakref__", "_history", "_state")

    def __init__(self, history: "History") -> None:
        self._history: History | None = history
        self._state: tuple[Mapping[str, Node], Mapping[str, Device]] | None = None

    @property
    def nodes(self) -> Mapping[str, Node]:
        """Name → node."""
        return self._read()[0]

    @property
    def devices(self) -> Mapping[str, Device]:
        """Id → device."""
        return self._read()[1]

    @property
    def was_read(self) -> bool:
        """Whether it has been read, and needs the ledger's log no longer."""
        return self._state is not None

    def _read(self) -> tuple[Mapping[str, Node], Mapping[str, Device]]:
        if self._state is None:
            assert self._history is not None
            nodes, devices = self._history.at(self)
            self._state = MappingProxyType(nodes), MappingProxyType(devices)
            self._history = None  # the log is no longer needed
        return self._state


class History:
    """The logs behind the snapshots of two tables.

    Args:
        nodes: the live table, name → node.
        devices: the live table, id → device.
    """

    def __init__(self, nodes: dict[str, Node], devices: dict[str, Device]) -> None:
        self._nodes = nodes
        self._devices = devices
        self._moments: list[_Moment] = []  # oldest first
        self._compact_at = _MIN_COMPACT

    def snapshot(self) -> Snapshot:
        """The present state, to be read now or later."""
        if len(self._moments) >= self._compact_at:
            self._compact()
        taken = Snapshot(self)
        self._moments.append(_Moment(taken))
        return taken

    def log(self, table: dict[str, Any], key: str, before: object) -> None:
        """Log that a write replaces a value in one of the tables; None if there was none."""
        if self._moments:
            newest = self._moments[-1]
            replaced = newest.devices if table is self._devices else newest.nodes
            replaced.setdefault(key, before)

    def at(self, snapshot: Snapshot) -> tuple[dict[str, Node], dict[str, Device]]:
        """Both tables as they were when the snapshot was taken."""
        nodes, devices = dict(self._nodes), dict(self._devices)
        for moment in reversed(self._moments):
            _restore(nodes, moment.nodes)
            _restore(devices, moment.devices)
            if moment.taken() is snapshot:
                break
        return nodes, devices

    def _compact(self) -> None:
        """Merge the logs of snapshots that are no longer needed into the one before."""
        needed: list[_Moment] = []
        for moment in self._moments:
            if moment.needed:
                needed.append(moment)
            elif needed:
                _merge(moment.devices, needed[-1].devices)
                _merge(moment.nodes, needed[-1].nodes)
        self._moments = needed
        # Compacting is worthwhile when about half of the moments are likely to be dropped.
        self._compact_at = _MIN_COMPACT + 2 * len(needed)


class _Moment:
    """A snapshot, and the values replaced between it and the next one."""

    __slots__ = ("devices", "nodes", "taken")

    def __init__(self, taken: Snapshot) -> None:
        self.taken = ref(taken)
        self.nodes: dict[str, object] = {}
        self.devices: dict[str, object] = {}

    @property
    def needed(self) -> bool:
        """Whether the snapshot is referenced and not yet read."""
        taken = self.taken()
        return taken is not None and not taken.was_read


def _merge(newer: dict[str, object], older: dict[str, object]) -> None:
    """Merge a newer log into an older one, whose values were replaced first."""
    for key, value in newer.items():
        older.setdefault(key, value)


def _restore(table: dict[str, Any], replaced: dict[str, object]) -> None:
    for key, value in replaced.items():
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value

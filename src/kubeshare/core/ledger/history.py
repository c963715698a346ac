"""What a ledger said at an earlier moment, at the price of what has changed since.

A snapshot copies nothing when it is taken. As long as somebody has it, the ledger
notes the first value that each write replaces; whoever reads the snapshot gets the
present state with those values put back. Notes of a snapshot that nobody has any
more are handed to the one before, or dropped; so there are never more than a few
notes a device and node for each snapshot that somebody still keeps.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final
from weakref import ref

from kubeshare.core.ledger.device import Device, Node

_FEW: Final = 8


class Snapshot:
    """The nodes and devices of a ledger at one moment, whatever happens to it later."""

    __slots__ = ("__weakref__", "_history", "_seen")

    def __init__(self, history: "History") -> None:
        self._history: History | None = history
        self._seen: tuple[Mapping[str, Node], Mapping[str, Device]] | None = None

    @property
    def nodes(self) -> Mapping[str, Node]:
        """Name → node."""
        return self._look()[0]

    @property
    def devices(self) -> Mapping[str, Device]:
        """GPUID → device."""
        return self._look()[1]

    @property
    def looked_at(self) -> bool:
        """It has been read, and does not need the ledger's notes any more."""
        return self._seen is not None

    def _look(self) -> tuple[Mapping[str, Node], Mapping[str, Device]]:
        if self._seen is None:
            assert self._history is not None
            nodes, devices = self._history.at(self)
            self._seen = MappingProxyType(nodes), MappingProxyType(devices)
            self._history = None  # it needs no notes from here on
        return self._seen


class History:
    """The notes behind the snapshots of two tables.

    Args:
        nodes: the live table, name → node.
        devices: the live table, GPUID → device.
    """

    def __init__(self, nodes: dict[str, Node], devices: dict[str, Device]) -> None:
        self._nodes = nodes
        self._devices = devices
        self._moments: list[_Moment] = []  # oldest first
        self._many = _FEW

    def snapshot(self) -> Snapshot:
        """The present state, to be looked at now or later."""
        if len(self._moments) >= self._many:
            self._forget()
        taken = Snapshot(self)
        self._moments.append(_Moment(taken))
        return taken

    def note(self, table: dict[str, Any], key: str, before: object) -> None:
        """A write replaces a value of one of the tables; None was or is not there."""
        if self._moments:
            newest = self._moments[-1]
            notes = newest.devices if table is self._devices else newest.nodes
            notes.setdefault(key, before)

    def at(self, snapshot: Snapshot) -> tuple[dict[str, Node], dict[str, Device]]:
        """Both tables as they were when the snapshot was taken."""
        nodes, devices = dict(self._nodes), dict(self._devices)
        for moment in reversed(self._moments):
            _put_back(nodes, moment.nodes)
            _put_back(devices, moment.devices)
            if moment.taken() is snapshot:
                break
        return nodes, devices

    def _forget(self) -> None:
        """Hand down the notes of those moments that nobody wants any more."""
        wanted: list[_Moment] = []
        for moment in self._moments:
            if moment.wanted:
                wanted.append(moment)
            elif wanted:
                _hand_down(moment.devices, wanted[-1].devices)
                _hand_down(moment.nodes, wanted[-1].nodes)
        self._moments = wanted
        # Going through all of them is worth it when half of them are likely to go.
        self._many = _FEW + 2 * len(wanted)


class _Moment:
    """A snapshot that was taken, and what has been replaced since, up to the next one."""

    __slots__ = ("devices", "nodes", "taken")

    def __init__(self, taken: Snapshot) -> None:
        self.taken = ref(taken)
        self.nodes: dict[str, object] = {}
        self.devices: dict[str, object] = {}

    @property
    def wanted(self) -> bool:
        """Somebody has the snapshot and may still look."""
        taken = self.taken()
        return taken is not None and not taken.looked_at


def _hand_down(newer: dict[str, object], older: dict[str, object]) -> None:
    """What was replaced first is what the older snapshot shows."""
    for key, value in newer.items():
        older.setdefault(key, value)


def _put_back(table: dict[str, Any], replaced: dict[str, object]) -> None:
    for key, value in replaced.items():
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value

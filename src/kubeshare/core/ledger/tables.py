"""The ledger's tables, and what is updated with each write.

All writes go through one method, so no change is missed by the undo log of a transaction, the
indexes of the policies, and the snapshots that are still referenced.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.history import History

if TYPE_CHECKING:
    from kubeshare.core.ledger.ledger import Ledger


class Index(Protocol):
    """What a policy derives from a ledger for fast answers; the ledger reports each change to it.

    ``Index(ledger)`` builds it from a whole ledger. A change is reported right after it was
    made, and again when it is undone; None stands for an object that is absent.
    """

    def __init__(self, ledger: "Ledger") -> None: ...

    def device_changed(self, before: Device | None, after: Device | None) -> None:
        """A device was added, changed or removed."""

    def node_changed(self, before: Node | None, after: Node | None) -> None:
        """A node was added, changed or removed."""


class Tables:
    """Nodes, devices, and the devices of each demand.

    Attributes:
        nodes: name → node.
        devices: id → device.
        held: uid of a demand → ids of the devices that it holds, sorted.
        indexes: the indexes of the policies, by type.
        history: the snapshots.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.devices: dict[str, Device] = {}
        self.held: dict[str, tuple[str, ...]] = {}
        self.indexes: dict[type[Index], Index] = {}
        self.history = History(self.nodes, self.devices)
        self._undo_log: list[tuple[dict[str, Any], str, object]] = []
        self._depth = 0

    def write(self, table: dict[str, Any], key: str, value: Any) -> None:
        """Write a value into one of the tables; None removes the key."""
        before = table.get(key)
        if self._depth:
            self._undo_log.append((table, key, before))
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
        if table is not self.held:
            self._notify(table, key, before, value)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Keep everything written inside, or nothing if an exception is raised."""
        with self._logged() as mark:
            try:
                yield
            except BaseException:
                self._undo(mark)
                raise

    @contextmanager
    def what_if(self) -> Iterator[None]:
        """Undo everything written inside."""
        with self._logged() as mark:
            try:
                yield
            finally:
                self._undo(mark)

    @contextmanager
    def _logged(self) -> Iterator[int]:
        self._depth += 1
        try:
            yield len(self._undo_log)
        finally:
            self._depth -= 1
            if not self._depth:
                self._undo_log.clear()

    def _undo(self, mark: int) -> None:
        """Write what each key had at the mark, the last one that was changed first.

        Each key is written once, however often it was since: a node is for each of its GPUs.
        """
        undone, self._undo_log[mark:] = self._undo_log[mark:], []
        first: dict[tuple[int, str], tuple[dict[str, Any], str, object]] = {}
        for entry in undone:
            first.setdefault((id(entry[0]), entry[1]), entry)
        depth, self._depth = self._depth, 0
        for table, key, before in reversed(first.values()):
            if table.get(key) is not before:
                self.write(table, key, before)
        self._depth = depth

    def _notify(self, table: dict[str, Any], key: str, before: Any, after: Any) -> None:
        self.history.log(table, key, before)
        if table is self.devices:
            for index in self.indexes.values():
                index.device_changed(before, after)
        else:
            for index in self.indexes.values():
                index.node_changed(before, after)

"""The ledger's tables, and what follows each change of them.

Everything is written in one place, so that no change escapes those who follow: the
notes by which a group of changes can be taken back, the indexes of the policies,
the snapshots that somebody still has.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.history import History

if TYPE_CHECKING:
    from kubeshare.core.ledger.ledger import Ledger


class Index(Protocol):
    """What a policy derives from a ledger to answer quickly; the ledger tells it each change.

    It is made of a whole ledger by ``Index(ledger)``. A change is told right after it
    was made, those that are taken back included; what was or is not there is None.
    """

    def __init__(self, ledger: "Ledger") -> None: ...

    def device_changed(self, before: Device | None, after: Device | None) -> None:
        """A device came, changed or went."""

    def node_changed(self, before: Node | None, after: Node | None) -> None:
        """A node came, changed or went."""


class Tables:
    """Nodes, devices, and who holds which.

    Attributes:
        nodes: name → node.
        devices: GPUID → device.
        held: uid of a demand → ids of the devices of which it has a part, sorted.
        indexes: those that follow.
        history: the snapshots that follow.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.devices: dict[str, Device] = {}
        self.held: dict[str, tuple[str, ...]] = {}
        self.indexes: dict[type[Index], Index] = {}
        self.history = History(self.nodes, self.devices)
        self._notes: list[tuple[dict[str, Any], str, object]] = []
        self._noting = 0

    def write(self, table: dict[str, Any], key: str, value: Any) -> None:
        """Write a value into one of the tables; None removes."""
        before = table.get(key)
        if self._noting:
            self._notes.append((table, key, before))
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
        if table is not self.held:
            self._tell(table, key, before, value)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Everything written inside stays, or, when something raises, none of it."""
        with self._noted() as mark:
            try:
                yield
            except BaseException:
                self._undo(mark)
                raise

    @contextmanager
    def what_if(self) -> Iterator[None]:
        """Nothing written inside stays."""
        with self._noted() as mark:
            try:
                yield
            finally:
                self._undo(mark)

    @contextmanager
    def _noted(self) -> Iterator[int]:
        self._noting += 1
        try:
            yield len(self._notes)
        finally:
            self._noting -= 1
            if not self._noting:
                self._notes.clear()

    def _undo(self, mark: int) -> None:
        noting, self._noting = self._noting, 0
        while len(self._notes) > mark:
            self.write(*self._notes.pop())
        self._noting = noting

    def _tell(self, table: dict[str, Any], key: str, before: Any, after: Any) -> None:
        self.history.note(table, key, before)
        if table is self.devices:
            for index in self.indexes.values():
                index.device_changed(before, after)
        else:
            for index in self.indexes.values():
                index.node_changed(before, after)

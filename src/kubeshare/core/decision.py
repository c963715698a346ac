"""A policy's answer to a demand."""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Literal, TypeAlias

import msgspec

from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device
from kubeshare.core.ledger.ledger import Ledger

Outcome: TypeAlias = Literal["bound", "pending", "rejected"]


class LazyReasons(Mapping[str, str]):
    """Reasons whose words are made when somebody reads them.

    Deciding costs microseconds, and telling of every GPU why it was not the one costs as
    much as there are GPUs.

    Args:
        tell: makes the words; it looks at a snapshot, so it may do so at any time.
    """

    def __init__(self, tell: Callable[[], Mapping[str, str]]) -> None:
        self._tell = tell

    @cached_property
    def _told(self) -> Mapping[str, str]:
        told = self._tell()
        del self._tell  # and with it the snapshot
        return told

    def __getitem__(self, place: str) -> str:
        return self._told[place]

    def __iter__(self) -> Iterator[str]:
        return iter(self._told)

    def __len__(self) -> int:
        return len(self._told)

    def __repr__(self) -> str:
        return f"Reasons({dict(self)})"


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Where a demand goes, or why it goes nowhere.

    Attributes:
        outcome: ``bound``; ``pending``: not now; ``rejected``: never, in this cluster.
        node: the node, when bound.
        devices: the ids of the devices, when bound.
        new: those of them that do not exist yet, without holders; the caller makes them.
        reasons: ``node/id`` or ``node`` → why it was passed over, in words with numbers;
            a dict, or :class:`LazyReasons` where making the words takes a while.
        field: the field of the demand that makes it impossible, when rejected.
    """

    outcome: Outcome
    node: str | None = None
    devices: tuple[str, ...] = ()
    new: tuple[Device, ...] = ()
    reasons: Mapping[str, str]
    field: str | None = None

    @property
    def created(self) -> bool:
        """A new vGPU is to be made."""
        return bool(self.new)


def commit(ledger: Ledger, demand: Demand, decision: Decision) -> None:
    """Record a bound decision: open its new devices, then place the demand.

    Lines 7, 11-13 and 25 of Algorithm 1, and what they leave out: compute and memory are
    deducted too. A device's labels are those of its holders, so they come and go with them.

    Raises:
        LedgerError: the ledger has changed since and the decision no longer holds;
            nothing was recorded.
    """
    if not decision.new:
        ledger.place(demand, *decision.devices)
        return
    with ledger.whole():
        for device in decision.new:
            ledger.open_device(device)
        ledger.place(demand, *decision.devices)

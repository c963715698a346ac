"""A policy's answer to a demand."""

from typing import Literal, TypeAlias

import msgspec

from kubeshare.core.demand import Demand
from kubeshare.core.device import Device
from kubeshare.core.ledger import Ledger

Outcome: TypeAlias = Literal["bound", "pending", "rejected"]


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Where a demand goes, or why it goes nowhere.

    Attributes:
        outcome: ``bound``; ``pending``: not now; ``rejected``: never, in this cluster.
        node: the node, when bound.
        devices: the ids of the devices, when bound.
        new: those of them that do not exist yet, without holders; the caller makes them.
        reasons: ``node/id`` or ``node`` → why it was passed over, in words with numbers.
        field: the field of the demand that makes it impossible, when rejected.
    """

    outcome: Outcome
    node: str | None = None
    devices: tuple[str, ...] = ()
    new: tuple[Device, ...] = ()
    reasons: dict[str, str]
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
    with ledger.whole():
        for device in decision.new:
            ledger.open_device(device)
        ledger.place(demand, *decision.devices)

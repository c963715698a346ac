"""Decisions: where a policy places a demand, or why it does not."""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Literal, TypeAlias

import msgspec

from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.natural_sort import natural

Outcome: TypeAlias = Literal["bound", "pending", "rejected"]


class LazyReasons(Mapping[str, str]):
    """Reasons that are computed when they are first read.

    A decision takes microseconds; the reasons for every GPU take time in proportion to the
    number of GPUs.

    Args:
        explain: computes the reasons from a snapshot, so it may be called at any time.
    """

    def __init__(self, explain: Callable[[], Mapping[str, str]]) -> None:
        self._explain = explain

    @cached_property
    def _reasons(self) -> Mapping[str, str]:
        reasons = self._explain()
        del self._explain  # and with it the snapshot
        return reasons

    def __getitem__(self, place: str) -> str:
        return self._reasons[place]

    def __iter__(self) -> Iterator[str]:
        return iter(self._reasons)

    def __len__(self) -> int:
        return len(self._reasons)

    def __repr__(self) -> str:
        return f"Reasons({dict(self)})"


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Where a demand is placed, or why it is not.

    Attributes:
        outcome: ``bound``; ``pending``: not now; ``rejected``: never, in this cluster.
        node: the node, when bound.
        devices: the ids of the devices, when bound: one for each share, in the order of
            :meth:`kubeshare.core.demand.Demand.per_gpu`; different shares may be on one device.
        shares: the names of these shares; empty if the demand has the short form.
        new: devices among them that do not exist yet, without holders; the caller creates them.
        reasons: ``node/id`` or ``node`` → why it was passed over, with numbers; a dict, or
            :class:`LazyReasons` where computing them takes long.
        field: the field of the demand that makes it infeasible, when rejected.
    """

    outcome: Outcome
    node: str | None = None
    devices: tuple[str, ...] = ()
    shares: tuple[str, ...] = ()
    new: tuple[Device, ...] = ()
    reasons: Mapping[str, str]
    field: str | None = None

    def placements(self) -> Iterator[tuple[str, str]]:
        """The name of each share and the id of its device; in the short form the name is ""."""
        return zip(self.shares or ("",) * len(self.devices), self.devices, strict=True)

    @property
    def created(self) -> bool:
        """Whether a new vGPU has to be created."""
        return bool(self.new)


def device_names(decision: Decision, devices: Mapping[str, Device]) -> tuple[str, ...]:
    """The names that its devices have on their node: sorted, or in the order of its shares.

    Args:
        decision: a decision.
        devices: those of the ledger; they need not contain the new ones.
    """
    opened = {device.id: device for device in decision.new}
    names = tuple((opened.get(each) or devices[each]).name for each in decision.devices)
    return names if decision.shares else tuple(sorted(names, key=natural))


def commit(ledger: Ledger, demand: Demand, decision: Decision) -> None:
    """Record a bound decision in a ledger: open its new devices, then place the demand.

    Lines 7, 11-13 and 25 of Algorithm 1. Unlike the printed algorithm, it deducts compute and
    memory too; the labels of a device follow from its holders.

    Raises:
        LedgerError: the ledger has changed and the decision no longer holds; nothing was
            recorded.
    """
    ledger.place(demand, *decision.devices, new=decision.new)

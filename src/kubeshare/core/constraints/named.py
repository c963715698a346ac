"""Finds the vGPUs of a named GPUID that a demand may use."""

from kubeshare.core.constraints.filter import Filter
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device
from kubeshare.core.ledger.index.gpuids import GpuidIndex
from kubeshare.core.ledger.ledger import Ledger


def named_devices(ledger: Ledger, demand: Demand) -> list[Device] | None:
    """The devices of the requested GPUID that fit a demand; None if none exists.

    Where one exists, no other is opened.
    """
    named = ledger.index(GpuidIndex).named(demand)
    if not named:
        return None
    allowed = Filter(ledger, demand)
    return [each for each in named if allowed.admits(each.node) and not allowed.why_not(each)]

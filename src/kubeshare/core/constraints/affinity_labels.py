"""Counts the devices that have each affinity label."""

from collections import Counter
from typing import TYPE_CHECKING

from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.totals import NO_LABELS

if TYPE_CHECKING:
    from kubeshare.core.demand import Demand
    from kubeshare.core.ledger.ledger import Ledger


class AffinityLabels:
    """An index of a ledger: affinity label → the number of devices with it, in any state."""

    def __init__(self, ledger: "Ledger") -> None:
        self._counts: Counter[str] = Counter()
        for device in ledger.devices.values():
            self._counts.update(device.affinities)

    def __contains__(self, label: str) -> bool:
        return label in self._counts

    def device_changed(self, before: Device | None, after: Device | None) -> None:
        """Update the counts of a device's labels."""
        old = before.totals.affinities if before is not None else NO_LABELS
        new = after.totals.affinities if after is not None else NO_LABELS
        if old is new or old == new:
            return
        for label in old - new:
            self._counts[label] -= 1
            if not self._counts[label]:
                del self._counts[label]
        self._counts.update(new - old)

    def node_changed(self, before: Node | None, after: Node | None) -> None:
        """Ignore a change of a node; labels are counted on any node."""


def is_label_in_use(ledger: "Ledger", demand: "Demand") -> bool:
    """Whether a device has the demand's affinity label; False for a demand without one."""
    return bool(demand.affinity) and demand.affinity in ledger.index(AffinityLabels)

"""Writes GPUs for a reader, without the GPUIDs that others chose.

Whoever reads a condition or an event of a requester may not be allowed to read other namespaces,
and a GPUID can be the name of a project. Such GPUs are counted.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from kubeshare.core.constraints.filter import label_is_on
from kubeshare.core.demand import Demand
from kubeshare.core.gpuid import is_generated
from kubeshare.core.ledger.device import Device
from kubeshare.core.ledger.index.gpuids import GpuidIndex
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.natural_sort import natural


class ReadableReason(NamedTuple):
    """A reason of a decision, as the author of the demand may read it.

    Attributes:
        place: what was passed over.
        why: the reason.
        node: the node of the places, or what else the decision names.
        number: how many places these are.
    """

    place: str
    why: str
    node: str
    number: int = 1


def readable_paths(devices: Iterable[Device], reader: Demand) -> list[str]:
    """The paths of devices in natural order, then how many there are of others on each node."""
    paths, hidden = [], Counter[str]()
    for device in devices:
        if _is_hidden(device, reader):
            hidden[device.node] += 1
        else:
            paths.append(device.path)
    counted = (_counted(node, hidden[node]) for node in sorted(hidden, key=natural))
    return [*sorted(paths, key=natural), *counted]


def readable_reasons(
    reasons: Iterable[tuple[str, str]], ledger: Ledger, reader: Demand, mates: Iterable[Demand] = ()
) -> Iterator[ReadableReason]:
    """The reasons of a decision in their order; of hidden GPUs in a row with one reason, one.

    Args:
        reasons: place and reason, as a :class:`kubeshare.core.decision.Decision` has them.
        ledger: the cluster as it was decided.
        reader: the demand of the decision.
        mates: others of its gang, of whose demand the decision may be instead.
    """
    found = ledger.index(GpuidIndex)
    labels = _Labels(ledger, reader, {each.affinity for each in (reader, *mates)} - {""})

    def where(place: str) -> tuple[str, bool]:
        """The place or, of a hidden GPU, its node; and whether it is hidden."""
        node, _, name = place.partition("/")
        if not name or node not in ledger.nodes:
            return place, False
        hidden = any(_is_hidden(device, reader) for device in found.find(node, name))
        return (node, True) if hidden else (place, False)

    known = ((*where(place), labels.readable(why)) for place, why in reasons)
    for (place, hidden, why), alike in groupby(known):
        count = sum(1 for _ in alike)
        node = place.partition("/")[0]
        yield ReadableReason(_counted(node, count) if hidden else place, why, node, count)


class _Labels:
    """Rewrites the reasons that name the GPUs with an affinity label."""

    def __init__(self, ledger: Ledger, reader: Demand, labels: Iterable[str]) -> None:
        self._ledger = ledger
        self._reader = reader
        self._labels = {label_is_on(label, ""): label for label in labels}
        self._known: dict[str, str] = {}

    def readable(self, why: str) -> str:
        if why not in self._known:
            own = (self._of(self._labels[each]) for each in self._labels if why.startswith(each))
            self._known[why] = next(own, why)
        return self._known[why]

    def _of(self, label: str) -> str:
        devices = self._ledger.devices.values()
        labelled = (device for device in devices if label in device.affinities)
        paths = ", ".join(readable_paths(labelled, self._reader))
        # Of a gang, a member that was placed while it was decided may be the only one.
        return label_is_on(label, paths or "other GPUs")


def _is_hidden(device: Device, reader: Demand) -> bool:
    """Whether only other namespaces hold it, and one of them chose its GPUID."""
    return (
        device.index is None
        and not is_generated(device.name)
        and not device.idle
        and device.name != reader.device_id
        and all(holder.namespace != reader.namespace for holder in device.holders)
    )


def _counted(node: str, count: int) -> str:
    if count == 1:
        return f"a GPU on {node} that another namespace named"
    return f"{count} GPUs on {node} that other namespaces named"

"""What quotas charge for the shares of a GPU.

A holder is charged what it reserves. One with an exclusion label keeps everybody without that
label off the GPU, so whoever has one there is charged the GPU as a whole, once for all of its
holders there. That goes for a namespace and for a group in it alike.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from collections.abc import Set as AbstractSet
from typing import Final, Protocol, TypeVar

import msgspec

from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.holder import Holder
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.units import MICROS

WHOLE_GPU: Final = "charged as a whole GPU for its exclusion label"
"""Why a quota asks more of a demand than its request, for messages."""

_NONE: Final[frozenset[str]] = frozenset()


class Held(msgspec.Struct, frozen=True):
    """What a namespace, or a group in it, is charged."""

    micros: int = 0
    memory_bytes: int = 0

    def plus(self, micros: int, memory_bytes: int) -> "Held":
        """This amount and another, which may be negative."""
        return Held(self.micros + micros, self.memory_bytes + memory_bytes)


class Charged(Protocol):
    """A holder, of the ledger or of a VGPU object."""

    @property
    def namespace(self) -> str:
        """The namespace of its demand."""

    @property
    def group(self) -> str:
        """The group or service of its demand; "" for none."""

    @property
    def request_micros(self) -> int:
        """The micros that it reserves."""

    @property
    def memory_bytes(self) -> int:
        """The bytes that it reserves."""

    @property
    def exclusion(self) -> str:
        """Its exclusion label; "" for none."""


AHolder = TypeVar("AHolder", bound=Charged)
Who = TypeVar("Who", bound=Hashable)


def charges(
    holders: Iterable[AHolder], gpu_memory_bytes: int, who: Callable[[AHolder], Who]
) -> dict[Who, Held]:
    """What the holders of one GPU are charged.

    Args:
        holders: those that count.
        gpu_memory_bytes: the memory of the GPU.
        who: whom a holder is charged to.
    """
    reserved: dict[Who, tuple[int, int]] = {}
    whole: dict[Who, Held] = {}
    for holder in holders:
        key = who(holder)
        micros, memory = reserved.get(key, (0, 0))
        reserved[key] = micros + holder.request_micros, memory + holder.memory_bytes
        if holder.exclusion:
            whole[key] = Held(MICROS, gpu_memory_bytes)
    return {key: whole.get(key) or Held(*sums) for key, sums in reserved.items()}


class ExclusiveDevices:
    """An index of a ledger: the devices that are charged to somebody as a whole."""

    def __init__(self, ledger: Ledger) -> None:
        self._ids: dict[tuple[str, str, str], set[str]] = defaultdict(set)
        for device in ledger.devices.values():
            self.device_changed(None, device)

    def of(self, namespace: str, label: str, group: str = "") -> AbstractSet[str]:
        """The ids of those with an exclusion label that are charged to a namespace.

        Args:
            namespace: the namespace.
            label: as the ledger compares it (:meth:`Ledger.comparable`).
            group: a group in the namespace; "" for all of it.
        """
        return self._ids.get((namespace, label, group), _NONE)

    def device_changed(self, before: Device | None, after: Device | None) -> None:
        """Update whom a device is charged to."""
        if before is not None:
            for key in _exclusive(before):
                self._ids[key].discard(before.id)
        if after is not None:
            for key in _exclusive(after):
                self._ids[key].add(after.id)

    def node_changed(self, before: Node | None, after: Node | None) -> None:
        """Ignore a change of a node, which holds nothing itself."""


def _exclusive(device: Device) -> set[tuple[str, str, str]]:
    """The namespaces, and the groups in them, with a holder that has an exclusion label."""
    labels = device.exclusions - {""}
    if not labels:
        return set()
    labelled = [holder for holder in device.holders if holder.exclusion]
    return {
        (holder.namespace, label, group)
        for holder in labelled
        for label in labels
        for group in ("", holder.group)
    }


def added(ledger: Ledger, demand: Demand, decision: Decision, group: str = "") -> Held:
    """What a bound decision adds to the charge of the demand's namespace.

    Args:
        ledger: the state that the decision was made from.
        demand: the demand.
        decision: where it is placed.
        group: a group in the namespace, for the charge of that group.
    """
    sizes = {device.id: device.memory_bytes for device in decision.new}
    placed = [
        (device_id, share, sizes.get(device_id) or ledger.devices[device_id].memory_bytes)
        for share, device_id in zip(demand.per_gpu(), decision.devices, strict=True)
    ]
    if demand.exclusion:
        label = ledger.comparable(demand).exclusion
        charged = ledger.index(ExclusiveDevices).of(demand.namespace, label, group)
        opened = {device_id: size for device_id, _, size in placed if device_id not in charged}
        return Held(len(opened) * MICROS, sum(opened.values()))
    wanted = [Holder.of_share(demand, share, size) for _, share, size in placed]
    return Held(
        sum(holder.request_micros for holder in wanted),
        sum(holder.memory_bytes for holder in wanted),
    )

"""Finds the first devices of each node that a demand may use.

A policy that scores thousands of nodes keeps the devices of each one sorted. The rules are those
of :mod:`kubeshare.core.constraints.checks`. Devices of equal size, model and labels are of one
*class*, for which the rules are applied once; the loop over all devices compares two numbers.

Such a loop waits for memory more than it computes. So what it reads of a node is in few objects,
and equal numbers and classes are the same object.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from kubeshare.core.constraints.affinity_labels import is_label_in_use
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.units import MICROS

Key: TypeAlias = tuple[Any, ...]
"""What a policy sorts devices by: a number that is the same for all of one list, an amount, and
more, so that no two devices have the same."""


class _Class(NamedTuple):
    """What devices have in common for all rules but the room.

    Attributes:
        memory_bytes: as in :class:`Device`, like `model`.
        exclusion: the exclusion label of all holders; None if it is idle.
        anti_affinities, affinities: the labels of the holders.
    """

    memory_bytes: int
    model: str
    exclusion: str | None
    anti_affinities: frozenset[str]
    affinities: frozenset[str]


_NEVER: Final = (MICROS + 1, 0)


class SortedDevices(NamedTuple):
    """Devices of one node that take holders, as parallel tuples.

    Attributes:
        keys: ascending.
        amounts: the second part of each key, by which they are ordered first.
        facts: three for each device: its class, and the compute and memory left.
        devices: the devices themselves.
    """

    keys: tuple[Key, ...]
    amounts: tuple[int, ...]
    facts: tuple[Any, ...]
    devices: tuple[Device, ...]

    @classmethod
    def of(cls, devices: Iterable[tuple[Key, Device]]) -> "SortedDevices":
        """Sort devices that have a group (:func:`.checks.groups`), each with its key."""
        ordered = sorted(devices)
        return cls(
            tuple([key for key, _ in ordered]),
            tuple([_shared(key[1]) for key, _ in ordered]),
            tuple([fact for _, device in ordered for fact in _facts(device)]),
            tuple([device for _, device in ordered]),
        )


class Found(NamedTuple):
    """A device that fits, and its key."""

    key: Key
    device: Device


class DeviceSearch:
    """The search for one demand.

    Args:
        ledger: the cluster.
        demand: the demand.

    Attributes:
        label_in_use: whether a device of the cluster has the demand's affinity label.
        keys: for one GPU, node → the key of the first device that was found there.
        several: for several GPUs, node → model → all devices that were found there, in order.
    """

    def __init__(self, ledger: Ledger, demand: Demand) -> None:
        self.label_in_use = is_label_in_use(ledger, demand)
        self.keys: dict[str, Key] = {}
        self.several: dict[str, dict[str, list[Found]]] = {}
        self._demand = demand
        self._needs: dict[int, tuple[int, int]] = {}  # id of a class -> compute and memory

    def run(
        self, devices_of: Mapping[str, SortedDevices], nodes: Iterable[str], least: int
    ) -> None:
        """Find the first device on each node, or all if the demand is for several GPUs.

        Args:
            devices_of: node → its devices; others have none.
            nodes: the nodes.
            least: devices with a smaller amount are skipped.
        """
        found, several, is_single = self.keys, self.several, self._demand.count == 1
        needs = self._needs
        for name in nodes:
            sorted_devices = devices_of.get(name)
            if sorted_devices is None:
                continue
            keys, amounts, facts, devices = sorted_devices
            for at in range(bisect_left(amounts, least), len(keys)):
                its_class = facts[3 * at]
                need = needs.get(id(its_class))
                if need is None:
                    need = needs[id(its_class)] = self._need(its_class)
                if need[1] <= facts[3 * at + 2] and need[0] <= facts[3 * at + 1]:
                    if is_single:
                        found[name] = keys[at]
                        break
                    of_model = several.setdefault(name, {}).setdefault(its_class.model, [])
                    of_model.append(Found(keys[at], devices[at]))

    def _need(self, its_class: _Class) -> tuple[int, int]:
        """The compute and memory that must be left of a device; more than there is for never."""
        demand, total = self._demand, its_class.memory_bytes
        if demand.model not in ("", its_class.model):
            return _NEVER
        if its_class.exclusion is None:
            admitted = not self.label_in_use
        else:
            admitted = (
                its_class.exclusion == demand.exclusion
                and (not demand.affinity or demand.affinity in its_class.affinities)
                and demand.anti_affinity not in its_class.anti_affinities
            )
        return (demand.compute_on(total), demand.memory.on(total)) if admitted else _NEVER


def _facts(device: Device) -> tuple[_Class, int, int]:
    its_class = _class(
        device.memory_bytes,
        device.model,
        None if device.idle else min(device.exclusions),
        device.anti_affinities,
        device.affinities,
    )
    return its_class, _shared(device.compute_left), _shared(device.memory_left)


_class = lru_cache(maxsize=1 << 12)(_Class)


@lru_cache(maxsize=1 << 14)
def _shared(number: int) -> int:
    """One object for equal numbers."""
    return number

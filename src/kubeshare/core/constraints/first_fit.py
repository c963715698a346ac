"""Finds the first devices of each node that a demand may use.

A policy that scores thousands of nodes keeps the devices of each one sorted. The rules are those
of :mod:`kubeshare.core.constraints.checks`, in one loop that calls nothing for a device.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from kubeshare.core.constraints.affinity_labels import is_label_in_use
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device
from kubeshare.core.ledger.ledger import Ledger

Key: TypeAlias = tuple[Any, ...]
"""What a policy sorts devices by: a number that is the same for all of one list, an amount, and
more, so that no two devices have the same."""

_Facts: TypeAlias = tuple[int, int, int, str, str | None, frozenset[str], frozenset[str]]
"""Memory; compute and memory left; model; exclusion, None if idle; anti-affinities, affinities."""


class SortedDevices(NamedTuple):
    """Devices of one node that take holders, as parallel tuples, which are near in memory.

    Attributes:
        keys: ascending.
        amounts: the second part of each key, by which they are ordered first.
        facts: what the rules need.
        devices: the devices themselves.
    """

    keys: tuple[Key, ...]
    amounts: tuple[int, ...]
    facts: tuple[_Facts, ...]
    devices: tuple[Device, ...]

    @classmethod
    def of(cls, devices: Iterable[tuple[Key, Device]]) -> "SortedDevices":
        """Sort devices that have a group (:func:`.checks.groups`), each with its key."""
        ordered = sorted(devices)
        return cls(
            tuple([key for key, _ in ordered]),
            tuple([key[1] for key, _ in ordered]),
            tuple([_facts(device) for _, device in ordered]),
            tuple([device for _, device in ordered]),
        )


class Found(NamedTuple):
    """A device that fits, and its key."""

    key: Key
    device: Device


class FirstFit:
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

    def search(
        self, devices_of: Mapping[str, SortedDevices], nodes: Iterable[str], least: int
    ) -> None:
        """Find the first device on each node, or all if the demand is for several GPUs.

        Args:
            devices_of: node → its devices; others have none.
            nodes: the nodes.
            least: devices with a smaller amount are skipped.
        """
        demand, idle_admitted, found = self._demand, not self.label_in_use, self.keys
        wanted, label = demand.model, demand.affinity
        anti_affinity, exclusion = demand.anti_affinity, demand.exclusion
        is_single, several = demand.count == 1, self.several
        known = compute = memory = -1
        for name in nodes:
            sorted_devices = devices_of.get(name)
            if sorted_devices is None:
                continue
            keys, amounts, facts, devices = sorted_devices
            at = bisect_left(amounts, least)
            while at < len(keys):
                total, compute_left, memory_left, model, present, repelled, labels = facts[at]
                if total != known:
                    known = total
                    compute, memory = demand.compute_on(total), demand.memory.on(total)
                if (
                    memory <= memory_left
                    and compute <= compute_left
                    and (not wanted or model == wanted)
                    and (
                        idle_admitted
                        if present is None
                        else present == exclusion
                        and (not label or label in labels)
                        and anti_affinity not in repelled
                    )
                ):
                    if is_single:
                        found[name] = keys[at]
                        break
                    of_model = several.setdefault(name, {}).setdefault(model, [])
                    of_model.append(Found(keys[at], devices[at]))
                at += 1


def _facts(device: Device) -> _Facts:
    return (
        device.memory_bytes,
        device.compute_left,
        device.memory_left,
        device.model,
        None if device.idle else min(device.exclusions),
        device.anti_affinities,
        device.affinities,
    )

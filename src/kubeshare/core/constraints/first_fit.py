"""Finds the first device of each node that a demand may use.

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
"""What a policy sorts devices by; no two devices of a node have the same."""

_Facts: TypeAlias = tuple[int, int, int, str, str | None, frozenset[str], frozenset[str]]
"""Memory; compute and memory left; model; exclusion, None if idle; anti-affinities, affinities."""


class SortedDevices(NamedTuple):
    """Devices of one node that take holders, as parallel lists.

    Attributes:
        keys: ascending.
        amounts: the first number of each key that is not the same for all.
        facts: what the rules need.
    """

    keys: list[Key]
    amounts: list[int]
    facts: list[_Facts]

    @classmethod
    def of(cls, step: int, devices: Iterable[tuple[Key, Device]]) -> "SortedDevices":
        """Sort devices that have a group (:func:`.checks.groups`).

        Args:
            step: put before each key.
            devices: each with the rest of its key, which begins with an amount.
        """
        ordered = sorted(devices)
        return cls(
            [(step, *key) for key, _ in ordered],
            [key[0] for key, _ in ordered],
            [_facts(device) for _, device in ordered],
        )


class FirstFit:
    """The search for one demand.

    Args:
        ledger: the cluster.
        demand: the demand.

    Attributes:
        label_in_use: whether a device of the cluster has the demand's affinity label.
        keys: node → the key of the first device that was found there.
    """

    def __init__(self, ledger: Ledger, demand: Demand) -> None:
        self.label_in_use = is_label_in_use(ledger, demand)
        self.keys: dict[str, Key] = {}
        self._demand = demand

    def search(
        self, devices_of: Mapping[str, SortedDevices], nodes: Iterable[str], least: int
    ) -> None:
        """Find the first device on each node.

        Args:
            devices_of: node → its devices; others have none.
            nodes: the nodes.
            least: devices with a smaller amount are skipped.
        """
        demand, idle_admitted, found = self._demand, not self.label_in_use, self.keys
        wanted, label = demand.model, demand.affinity
        anti_affinity, exclusion = demand.anti_affinity, demand.exclusion
        known = compute = memory = -1
        for name in nodes:
            devices = devices_of.get(name)
            if devices is None:
                continue
            keys, amounts, facts = devices
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
                    found[name] = keys[at]
                    break
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

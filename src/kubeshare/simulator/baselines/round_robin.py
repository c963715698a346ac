"""Sharing by a scaling factor: nodes are counted, GPUs taken in turn.

Section 3.1 and figure 3a of the KubeShare paper. A device plugin announces each GPU many times.
kube-scheduler counts units of a node and knows no GPU; the plugin hands out the next GPU in turn.
So one GPU of a node may be promised more than it has while another is idle. In the ledger such a
share reserves nothing and has what is promised as its limit.
"""

from collections import Counter, defaultdict
from typing import Final

import msgspec

from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.holder import MAX_HOLDERS
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.natural_sort import natural_name
from kubeshare.core.units import MICROS, Memory

_NO_MEMORY: Final = Memory(bytes=0)


def promised(demand: Demand) -> Demand:
    """A demand that reserves nothing, and is promised what it asks for."""
    return msgspec.structs.replace(
        demand,
        request_micros=0,
        limit_micros=max(1, demand.request_micros),
        limit_alone_micros=None,
        memory=_NO_MEMORY,
        affinity="",
        anti_affinity="",
        exclusion="",
    )


class RoundRobin:
    """Places each job on the node with the least promised, and on its next GPUs."""

    def __init__(self) -> None:
        self._next: Counter[str] = Counter()  # node -> how many GPUs were handed out there

    def __call__(self, ledger: Ledger, demand: Demand) -> Decision:
        """Place a demand."""
        promises = ledger.index(_Promises)
        asked = demand.limit_micros * demand.count
        fitting = [
            (units / (len(promises.gpus[name]) * MICROS), natural_name(name), name)
            for name, units in promises.units.items()
            if (demand.nodes is None or name in demand.nodes)
            and demand.model in ("", promises.models[name])
            and len(promises.gpus[name]) >= demand.count
            and units + asked <= len(promises.gpus[name]) * MICROS
        ]
        for _, _, name in sorted(fitting):
            gpus, first = promises.gpus[name], self._next[name]
            chosen = [gpus[(first + turn) % len(gpus)] for turn in range(demand.count)]
            if all(len(ledger.devices[each].holders) < MAX_HOLDERS for each in chosen):
                self._next[name] = (first + demand.count) % len(gpus)
                return Decision(outcome="bound", node=name, devices=tuple(chosen), reasons={})
        return Decision(outcome="pending", reasons={"gpus": "no node has enough units left"})


class _Promises:
    """An index of a ledger: what is promised of the GPUs of each node, in micros."""

    def __init__(self, ledger: Ledger) -> None:
        self.units: dict[str, int] = {}
        self.gpus: dict[str, list[str]] = defaultdict(list)
        self.models: dict[str, str] = {}
        for device in sorted(ledger.devices.values(), key=_place):
            self.units.setdefault(device.node, 0)
            self.gpus[device.node].append(device.id)
            self.models[device.node] = device.model
            self.units[device.node] += _promised_of(device)

    def device_changed(self, before: Device | None, after: Device | None) -> None:
        """Count what a device is promised more or less; the GPUs stay as they are."""
        if before is not None and after is not None:
            self.units[after.node] += _promised_of(after) - _promised_of(before)

    def node_changed(self, before: Node | None, after: Node | None) -> None:
        """Ignore a change of a node: its vGPUs do not change with it."""


def _promised_of(device: Device) -> int:
    return sum(holder.limit_micros for holder in device.holders)


def _place(device: Device) -> tuple[str, int]:
    return natural_name(device.node), device.index or 0

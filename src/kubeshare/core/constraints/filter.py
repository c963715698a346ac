"""Says why a demand cannot use a GPU, for all policies.

A decision about one GPU searches an index instead (:mod:`kubeshare.core.constraints.checks`);
this filter goes through devices one by one, for explanations and for demands that no index
supports. Both apply the same rules.
"""

from collections.abc import Mapping
from typing import Protocol

from kubeshare.core import reasons
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.index.gpuids import exists, is_named
from kubeshare.core.natural_sort import natural


class State(Protocol):
    """A ledger, or a snapshot of one."""

    @property
    def nodes(self) -> Mapping[str, Node]:
        """Name → node."""

    @property
    def devices(self) -> Mapping[str, Device]:
        """Id → device."""


class Filter:
    """What a demand may use in one state of a cluster.

    Args:
        state: the cluster.
        demand: the demand, as the ledger compares its labels
            (:meth:`kubeshare.core.ledger.ledger.Ledger.comparable`).

    Attributes:
        nodes: the nodes of the cluster.
        demand: the demand.
        only: why only certain existing devices may be used and no new one, or "".
    """

    def __init__(self, state: State, demand: Demand) -> None:
        self.nodes = state.nodes  # reading it from a snapshot has a cost
        self.demand = demand
        self.only = _only_by_id(state, demand) or _only_by_label(state, demand)

    def admits(self, node: str) -> bool:
        """Whether the demand may use this node."""
        return self.demand.nodes is None or node in self.demand.nodes

    def why_not(self, device: Device) -> str | None:
        """Why a device of an admitted node does not fit the demand; None if it does."""
        demand = self.demand
        if device.node not in self.nodes:
            return f"node {device.node} is not known"
        return (
            reasons.service(device)
            or self._why_not_this(device)
            or reasons.model(device, demand)
            or reasons.exclusion(device, demand)
            or reasons.anti_affinity(device, demand)
            or reasons.room(device, demand)
        )

    def why_not_new(self, node: Node) -> str | None:
        """Why no new vGPU can be opened on a node; None if one can."""
        if not self.admits(node.name):
            return reasons.NOT_ASKED
        return self.only or reasons.no_free_gpu(node.free, self.demand)

    def _why_not_this(self, device: Device) -> str | None:
        """Why another device is required, by its id or by the affinity label."""
        demand = self.demand
        if demand.device_id:
            named = is_named(device, demand)
            return None if named else f"vGPU {demand.device_id} is asked for"
        if self.only:
            return None if demand.affinity in device.affinities else self.only
        if demand.affinity and not device.idle:
            return f"occupied, and affinity {demand.affinity} asks for an idle or a new vGPU"
        return None


def _only_by_id(state: State, demand: Demand) -> str:
    """Requested vGPUs that exist are the only candidates."""
    known = demand.device_id and exists(state, demand)
    return f"vGPU {demand.device_id} is asked for" if known else ""


def _only_by_label(state: State, demand: Demand) -> str:
    """Lines 1-3 of Algorithm 1: the devices with the affinity label, in any state."""
    label = demand.affinity
    if not label or demand.device_id:
        return ""
    labelled = [device.path for device in state.devices.values() if label in device.affinities]
    if not labelled:
        return ""
    return label_is_on(label, ", ".join(sorted(labelled, key=natural)))


def label_is_on(label: str, paths: str) -> str:
    """The reason against GPUs without an affinity label that other GPUs have."""
    return f"affinity {label} is on {paths}"

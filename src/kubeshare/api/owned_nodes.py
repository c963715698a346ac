"""Tells the modes of nodes apart: shared with Kubernetes, or owned.

An administrator asks for an owned node by a label or a selector of the configuration. The mode in
force is recorded in the status of the GPUNode, and everything else goes by that record.
"""

import re
from collections import Counter
from collections.abc import Collection
from typing import Final

from kubeshare.api.configuration import OwnedConfiguration
from kubeshare.api.types.constants import (
    CONDITION_OWNED,
    GPUS_OWNED,
    LABEL_FAMILY,
    LABEL_GPUS,
    MODE_OWNED,
    VGPU_RESOURCE,
)
from kubeshare.api.types.core_v1 import Node, Pod
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import VGPU, GPUNode
from kubeshare.core.gpuid import RESERVED_PREFIX
from kubeshare.dialects import families
from kubeshare.kube.conditions import find_condition, is_true

_NVIDIA_PARTS: Final = re.compile(r"nvidia\.com/(gpu\.shared|mig-.+)")
"""The resources by which NVIDIA's device plugin offers parts of GPUs."""


def is_requested(node: Node, configuration: OwnedConfiguration) -> bool:
    """Whether the administrator wants KubeShare to own the GPUs of a node."""
    labels = node.metadata.labels
    if LABEL_GPUS in labels:
        return labels[LABEL_GPUS] == GPUS_OWNED
    return any(_matches(selector, labels) for selector in configuration.selectors)


def is_owned(found: GPUNode | None) -> bool:
    """Whether KubeShare owns the GPUs of a node: the mode in force."""
    return found is not None and found.status.mode == MODE_OWNED


def accepts_holders(found: GPUNode | None) -> bool:
    """Whether the static vGPUs of a node accept holders."""
    return (
        found is not None and is_owned(found) and is_true(found.status.conditions, CONDITION_OWNED)
    )


def is_migrating(found: GPUNode | None) -> bool:
    """Whether the pods of another device plugin are being recorded before a node is taken over."""
    owned = find_condition(found.status.conditions, CONDITION_OWNED) if found else None
    return owned is not None and owned.reason == Reason.MIGRATING


def offers_families(found: GPUNode) -> bool:
    """Whether the node agent, and no other device plugin, offers the resource of a family."""
    return is_owned(found) and not is_migrating(found)


def static_name(uuid: str) -> str:
    """The name of the static vGPU of a GPU.

    It follows from the UUID, so the API server refuses a second one.
    """
    return RESERVED_PREFIX + uuid.removeprefix("GPU-").lower()


def keeps_off(node: Node, family: str, configuration: OwnedConfiguration) -> str:
    """Why the pods of a manifest family may not use a node; ``""`` if they may.

    An owned node may be dedicated to one family, so that memory and whole GPUs are not counted on
    the same node; the pods of that family use no other node. Nodes that are not dedicated are
    open to SharePods and pods with KubeShare's annotations, whose family is ``""``.
    """
    dedicated = family_of(node) if is_requested(node, configuration) else ""
    if dedicated == family or (not family and configuration.mixed):
        return ""
    return f"not dedicated to {family} pods" if family else f"dedicated to {dedicated} pods"


def family_of(node: Node) -> str:
    """The manifest family to which a node is dedicated if it is owned; ``""`` if to none."""
    labels = node.metadata.labels
    if LABEL_FAMILY in labels:
        return labels[LABEL_FAMILY]
    found = (
        family.name
        for family in families.FAMILIES
        if any(label in labels.items() for label in family.node_labels)
    )
    return next(found, "")


def offered_parts(node: Node, *, owned: bool) -> tuple[str, ...]:
    """The resources by which another device plugin offers parts of a node's GPUs, sorted.

    Args:
        node: the node.
        owned: whether KubeShare owns the GPUs of the node, and so offers the resource of a family.
    """
    offered = (name for name, amount in node.status.allocatable.items() if str(amount) != "0")
    return tuple(sorted(filter(lambda name: _is_part(name, owned=owned), offered)))


def parts_of(pod: Pod) -> frozenset[str]:
    """The resources by which another device plugin has given a pod parts of GPUs."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    resources = {name for container in containers for name in container.resources.limits}
    ours = VGPU_RESOURCE in resources
    return frozenset(name for name in resources if _is_part(name, owned=ours))


def is_legacy(pod: Pod) -> bool:
    """Whether a pod has its GPUs from the device plugin of a manifest family, and nothing else."""
    parts = parts_of(pod)
    return bool(parts) and parts <= families.RESOURCES and not pod.whole_gpus


def recorded_pods(vgpus: Collection[VGPU]) -> set[str]:
    """The uids of the pods all of whose holders are on these vGPUs."""
    parts = {
        holder.pod_uid: holder.parts
        for vgpu in vgpus
        for holder in vgpu.status.holders
        if holder.pod_uid
    }
    found = Counter(holder.pod_uid for vgpu in vgpus for holder in vgpu.status.holders)
    return {uid for uid, wanted in parts.items() if found[uid] >= wanted}


def _is_part(resource: str, *, owned: bool) -> bool:
    """Whether a resource is a part of a GPU; one of a family is not where KubeShare offers it."""
    of_family = resource in families.RESOURCES and not owned
    return of_family or _NVIDIA_PARTS.fullmatch(resource) is not None


def _matches(selector: str, labels: dict[str, str]) -> bool:
    """Whether labels match a selector: ``key=value`` terms, separated by commas."""
    terms = (term.partition("=") for term in selector.split(","))
    return all(labels.get(key) == value for key, _, value in terms)

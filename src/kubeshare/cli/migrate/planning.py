"""Plans what moving gpushare's or gpu-manager's nodes takes. Pure.

A *legacy* pod was placed by one of these systems. The plan gives it a holder for what it has of
each GPU, as its annotations say; KubeShare then places nothing into that. Annotations that do
not agree with the pod, the node or each other are problems, which a person has to solve.
"""

from collections.abc import Collection, Iterable, Sequence

from kubeshare.api import pod_state
from kubeshare.api.owned_nodes import (
    accepts_holders,
    is_legacy,
    is_migrating,
    is_owned,
    is_requested,
    offered_parts,
    parts_of,
)
from kubeshare.api.types.constants import ANNOTATION_PUBLISHED_LABELS, LABEL_FAMILY
from kubeshare.api.types.core_v1 import Node, Pod
from kubeshare.api.types.v1 import GPUDevice, GPUNode
from kubeshare.cli.migrate.model import Cluster, NodePlan, Plan
from kubeshare.cli.migrate.names import shortened
from kubeshare.cli.migrate.pod_records import legacy_pods
from kubeshare.cli.migrate.units import unit_problem
from kubeshare.dialects.families import Family
from kubeshare.kube.resources import Raw


def plan(family: Family, cluster: Cluster, names: Collection[str] = ()) -> Plan:
    """Plan the move of some nodes, by default of all that a family's system manages."""
    known = [(raw, pod_state.view(raw)) for raw in cluster.pods]
    here = [(raw, pod) for raw, pod in known if pod.spec.node_name]
    nodes = sorted(cluster.nodes, key=lambda node: node.metadata.name)
    wanted = [
        node
        for node in nodes
        if (node.metadata.name in names if names else _is_managed(node, family, here, cluster))
    ]
    waiting = sorted(
        str(pod.metadata.key)
        for _, pod in known
        if not pod.spec.node_name and not pod.gated and parts_of(pod) & {*family.resources}
    )
    return Plan(
        family=family,
        nodes=tuple(_of_node(family, node, here, cluster) for node in wanted),
        waiting=tuple(waiting),
    )


def has_gpu_from(pod: Pod, family: Family) -> bool:
    """Whether a pod has its GPUs from the device plugin of a family's system."""
    return is_legacy(pod) and bool(parts_of(pod) & {*family.resources})


def _is_managed(
    node: Node, family: Family, here: Sequence[tuple[Raw, Pod]], cluster: Cluster
) -> bool:
    name = node.metadata.name
    return bool({*_offered(node, cluster.gpunodes.get(name))} & {*family.resources}) or any(
        pod.spec.node_name == name and has_gpu_from(pod, family) for _, pod in here
    )


def _offered(node: Node, found: GPUNode | None) -> tuple[str, ...]:
    """The resources by which another device plugin offers parts of a node's GPUs."""
    return offered_parts(node, owned=is_owned(found) and not is_migrating(found))


def _of_node(
    family: Family, node: Node, here: Sequence[tuple[Raw, Pod]], cluster: Cluster
) -> NodePlan:
    name = node.metadata.name
    found = cluster.gpunodes.get(name)
    vgpus = [vgpu for vgpu in cluster.vgpus if vgpu.spec.node_name == name]
    on_node = [(raw, pod) for raw, pod in here if pod.spec.node_name == name]
    legacy = [raw for raw, pod in on_node if has_gpu_from(pod, family)]
    devices = _by_number(found)
    unit = cluster.configuration.gpushare.unit_bytes
    return NodePlan(
        name=name,
        cordoned=node.spec.unschedulable,
        requested=is_requested(node, cluster.configuration.owned),
        accepts=accepts_holders(found),
        offered=_offered(node, found),
        published_labels=published_labels(node, family),
        uuids={number: gpu.uuid for number, gpu in devices.items()},
        pods=tuple(legacy_pods(family, legacy, devices, vgpus, unit)),
        problems=tuple(_problems(family, node, found, on_node, cluster)),
    )


def published_labels(node: Node, family: Family) -> tuple[str, ...]:
    """The labels that a node has of those by which a family's system selects its nodes."""
    labels = node.metadata.labels.items()
    return tuple(label[0] for label in family.node_labels if label in labels)


def former_labels(node: Node, family: Family) -> tuple[str, ...]:
    """The same, with those that it had before the move; if none are known, the first one."""
    written = node.metadata.annotations.get(ANNOTATION_PUBLISHED_LABELS, "").split(",")
    known = {*written, *published_labels(node, family)}
    keys = [key for key, _ in family.node_labels]
    return tuple(key for key in keys if key in known) or (keys[0],)


def _by_number(found: GPUNode | None) -> dict[int, GPUDevice]:
    """The GPUs of a node by the numbers of their device files; healthy ones win."""
    devices = sorted(found.spec.devices, key=lambda gpu: gpu.healthy) if found else ()
    return {gpu.minor: gpu for gpu in devices}


def _problems(
    family: Family,
    node: Node,
    found: GPUNode | None,
    on_node: Sequence[tuple[Raw, Pod]],
    cluster: Cluster,
) -> Iterable[str]:
    """Why a node cannot be moved, whatever its legacy pods have."""
    name, labels = node.metadata.name, node.metadata.labels
    if found is None or not found.spec.devices:
        yield f"nothing is known of the GPUs of node {name}: no node agent of KubeShare runs there"
    elif not found.spec.supports_owned:
        yield f"the node agent of {name} is of an earlier release: update it"
    if labels.get(LABEL_FAMILY, family.name) != family.name:
        yield f"the node is dedicated to {labels[LABEL_FAMILY]} pods by its label {LABEL_FAMILY}"
    if node.whole_gpus or (found is not None and found.spec.dra_count):
        yield "something offers its GPUs as whole ones too: stop that first"
    if others := [each for each in _offered(node, found) if each not in family.resources]:
        yield f"another device plugin offers {', '.join(others)} there: stop that first"
    strangers = [
        str(pod.metadata.key)
        for _, pod in on_node
        if (pod.whole_gpus or parts_of(pod))
        and not pod.is_managed
        and not has_gpu_from(pod, family)
    ]
    if strangers:
        yield f"other pods use its GPUs: {shortened(strangers)}. Delete them, or wait for their end"
    if problem := unit_problem(family, node, found, cluster.configuration.gpushare):
        yield problem

"""Gives nodes back: removes the holders of legacy pods, nothing else.

First the label that asks for the node goes. Only when the static vGPUs of the node accept no
holders any more are those of the legacy pods removed, so nothing is placed into what they use.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from msgspec import Struct

from kubeshare.api import holders, pod_state
from kubeshare.api.owned_nodes import accepts_holders, is_requested
from kubeshare.api.types.constants import ANNOTATION_PUBLISHED_LABELS, LABEL_FAMILY, LABEL_GPUS
from kubeshare.api.types.core_v1 import NODES
from kubeshare.api.types.v1 import VGPU, VGPUS
from kubeshare.cli.migrate.cluster_reader import MigrationError, read_cluster
from kubeshare.cli.migrate.model import Cluster, NodePlan
from kubeshare.cli.migrate.planning import former_labels, has_gpu_from, plan
from kubeshare.cli.migrate.recording import FIELD_MANAGER, Say
from kubeshare.cli.migrate.waiting import until
from kubeshare.dialects.families import Family
from kubeshare.kube.client.errors import ConflictError, NotFoundError

if TYPE_CHECKING:
    from kubeshare.kube.client.client import Client

_ATTEMPTS = 20


class GivenBack(Struct, frozen=True, kw_only=True):
    """A node that is given back.

    Attributes:
        name: of the node.
        released: the legacy pods without holders now.
        sharing: the pods that still have a share of KubeShare there.
        former_labels: the labels by which the system's plugin selected it before the move.
        is_noted: whether an annotation of the node names them.
    """

    name: str
    released: tuple[str, ...]
    sharing: tuple[str, ...]
    former_labels: tuple[str, ...]
    is_noted: bool


async def give_back(
    client: "Client", family: Family, names: Collection[str], say: Say
) -> list[GivenBack]:
    """Give the nodes of a family back, without ending a pod.

    Args:
        client: the cluster, as its administrator.
        family: the family.
        names: the nodes; by default those with holders of legacy pods.
        say: shown a line for each step.

    Raises:
        MigrationError: there is no such node, the configuration still asks for one, or the device
            manager does not answer.
        ApiError: the API server cannot be reached, or refuses.
    """
    cluster = await read_cluster(client, names)
    return [
        await _give_back_node(client, family, node, cluster, say)
        for node in plan(family, cluster, names).nodes
        if names or node.requested or _recorded(node)
    ]


async def _give_back_node(
    client: "Client", family: Family, node: NodePlan, cluster: Cluster, say: Say
) -> GivenBack:
    name = node.name
    labels = dict.fromkeys((LABEL_GPUS, LABEL_FAMILY))
    patch = {"metadata": {"labels": labels}, "spec": {"unschedulable": True}}
    live = await client.merge_patch(NODES, name, patch, field_manager=FIELD_MANAGER)
    if is_requested(live, cluster.configuration.owned):
        raise MigrationError(
            f"a selector of the configuration (owned.selectors) asks for node {name}: remove "
            f"it, or run `kubectl label node {name} {LABEL_GPUS}=shared`, and run this again"
        )
    say(f"{name}: cordoned, and no longer asked for")
    vgpus = await until(
        client,
        name,
        lambda state: not accepts_holders(state[0]),
        "it still accepts pods",
    )
    legacy = {pod.uid: pod.title for pod in node.pods}
    released = set()
    for vgpu in vgpus:
        for demand in {each.demand for each in vgpu.status.holders if each.pod_uid in legacy}:
            await _remove(client, vgpu.metadata.name, demand)
            released.add(legacy[demand])
            say(f"{name}: the holder of pod {legacy[demand]} is removed")
    on_node = [each for each in map(pod_state.view, cluster.pods) if each.spec.node_name == name]
    ours = {str(each.metadata.key) for each in on_node if not has_gpu_from(each, family)}
    held = {f"{each.namespace}/{each.name}" for vgpu in vgpus for each in vgpu.status.holders}
    return GivenBack(
        name=name,
        released=tuple(sorted(released)),
        sharing=tuple(sorted(ours & held)),
        former_labels=former_labels(live, family),
        is_noted=ANNOTATION_PUBLISHED_LABELS in live.metadata.annotations,
    )


def _recorded(node: NodePlan) -> bool:
    return any(record.stored for pod in node.pods for record in pod.records)


async def _remove(client: "Client", name: str, demand: str) -> None:
    """Remove the holders of a demand from a vGPU, if it has them."""
    resource = VGPUS.into(VGPU)
    for _ in range(_ATTEMPTS):
        try:
            vgpu = await client.get(resource, name)
            operations = holders.remove(vgpu, demand)
            await client.json_patch(
                resource, name, operations, subresource="status", field_manager=FIELD_MANAGER
            )
        except ConflictError:
            continue
        except (holders.HolderMissingError, NotFoundError):
            return
        return
    raise ConflictError(f"vGPU {name} changed at each of {_ATTEMPTS} attempts: run this again")

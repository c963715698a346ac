"""Records legacy pods as holders, so nothing takes their room.

Every step can be repeated: a run that was cut off anywhere goes on where it stopped. No pod is
written. The order keeps each GPU from being given away twice:

1. the node is cordoned and labelled, in one write;
2. the device manager creates its static vGPUs, which accept no holders of other pods
   (reason ``Migrating``) as long as a legacy pod of the node has none;
3. each holder is added by a patch that tests the present ones; the API server refuses what
   does not fit.
"""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from kubeshare.api import holders
from kubeshare.api.types.constants import (
    ANNOTATION_PUBLISHED_LABELS,
    GPUS_OWNED,
    LABEL_FAMILY,
    LABEL_GPUS,
)
from kubeshare.api.types.core_v1 import NODES
from kubeshare.api.types.v1 import VGPU, VGPUS
from kubeshare.cli.migrate.cluster_reader import MigrationError, read_cluster
from kubeshare.cli.migrate.model import LegacyPod, NodePlan, Plan, Record
from kubeshare.cli.migrate.planning import plan
from kubeshare.cli.migrate.waiting import State, until
from kubeshare.dialects.families import Family
from kubeshare.kube.client.errors import ConflictError, InvalidError

if TYPE_CHECKING:
    from kubeshare.kube.client.client import Client

Say = Callable[[str], None]

FIELD_MANAGER: Final = "kubeshare-migrate"
_ATTEMPTS: Final = 20
"""Attempts of one patch; each fails only if another program has changed the vGPU."""


async def record_pods(client: "Client", family: Family, names: Collection[str], say: Say) -> Plan:
    """Prepare the nodes of a family and record their legacy pods.

    Args:
        client: the cluster, as its administrator.
        family: the family.
        names: the nodes; by default all that the family's system manages.
        say: shown a line for each step.

    Returns:
        the plan of what is left.

    Raises:
        MigrationError: there is no such node, or the device manager does not answer.
        ApiError: the API server cannot be reached, or refuses.
    """
    first = plan(family, await read_cluster(client, names), names)
    for node in first.nodes:
        if node.problems:
            say(f"{node.name}: left as it is: {'; '.join(node.problems)}")
            continue
        if node.state == "unprepared":
            await _prepare(client, family, node)
            say(f"{node.name}: cordoned, and labelled for {family.name} pods")
        await _record_node(client, family, node.name, say)
    return plan(family, await read_cluster(client, names), names)


async def _prepare(client: "Client", family: Family, node: NodePlan) -> None:
    """Ask KubeShare to own the GPUs of a node, and keep new pods from it meanwhile."""
    metadata = {"labels": {LABEL_GPUS: GPUS_OWNED, LABEL_FAMILY: family.name}}
    if node.published_labels:
        # They go with the former device plugin, and come back with it.
        labels = ",".join(node.published_labels)
        metadata["annotations"] = {ANNOTATION_PUBLISHED_LABELS: labels}
    patch = {"metadata": metadata, "spec": {"unschedulable": True}}
    await client.merge_patch(NODES, node.name, patch, field_manager=FIELD_MANAGER)


async def _record_node(client: "Client", family: Family, name: str, say: Say) -> None:
    [node] = plan(family, await read_cluster(client, [name]), [name]).nodes
    left = [pod for pod in node.pods if not (pod.recorded or pod.problem)]
    if not left:
        return
    needed = {record.uuid for pod in left for record in pod.records}

    def created(state: State) -> bool:
        return needed <= {vgpu.spec.uuid for vgpu in state[1] if vgpu.spec.is_static}

    vgpus = await until(client, name, created, "its GPUs have no static vGPUs")
    names = {vgpu.spec.uuid: vgpu.metadata.name for vgpu in vgpus}
    for number, pod in enumerate(left, 1):
        await _record_pod(client, node, pod, names)
        gpus = ", ".join(str(record.gpu) for record in pod.records)
        say(f"{name}: {number} of {len(left)}: pod {pod.title} is recorded on GPU {gpus}")


async def _record_pod(
    client: "Client", node: NodePlan, pod: LegacyPod, names: dict[str, str]
) -> None:
    for record in pod.records:
        try:
            await _add(client, names[record.uuid], record)
        except InvalidError as error:
            raise MigrationError(
                f"pod {pod.title} does not fit on GPU {record.gpu} of node {node.name} any more: "
                f"{error.message}; run `--plan` again"
            ) from error


async def _add(client: "Client", name: str, record: Record) -> None:
    """Add a holder unless the vGPU has it."""
    resource = VGPUS.into(VGPU)
    for _ in range(_ATTEMPTS):
        vgpu = await client.get(resource, name)
        identity = (record.holder.demand, record.holder.share)
        if identity in {(each.demand, each.share) for each in vgpu.status.holders}:
            return
        operations = holders.add(vgpu, record.holder)
        try:
            await client.json_patch(
                resource, name, operations, subresource="status", field_manager=FIELD_MANAGER
            )
        except ConflictError:
            continue
        return
    raise ConflictError(f"vGPU {name} changed at each of {_ATTEMPTS} attempts: run this again")

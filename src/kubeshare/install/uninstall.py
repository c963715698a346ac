"""Removes KubeShare from a cluster without ending running pods.

Deleting the kinds would delete the SharePods, and that their pods; without the node
agent a pod that ends could not leave its node; without its placeholder a GPU would be
given to others. So it goes in this order, and may be cut off anywhere and begun again:

1. scheduler and device manager end, so that nothing is made or taken away any more;
2. pods are freed from their SharePods, SharePods from finalizers, and these are deleted;
3. parts of which nothing has ever run are taken off the vGPUs; the others are the
   nodes' to release, when their containers have stopped;
4. vGPUs without holders are deleted: each takes no holders from its phase Deleting on, so that
   a device manager that is back goes on with it; then goes its placeholder, which the policies
   let the device manager delete, so it is deleted in its name. A GPU that runs pods which no
   holder names, as after a restore of etcd, is kept as well;
5. when none is left, so do the node programs, the policies, the kinds and all else.

As long as pods run, it stops before the last step: their shares are held and their
GPUs are kept.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from kubeshare.api import holders
from kubeshare.api.holders import one_of_each_demand
from kubeshare.api.owned_nodes import is_owned
from kubeshare.api.state.ledger_builder import DELETING
from kubeshare.api.types.constants import (
    DRA_DRIVER,
    GATE,
    GROUP,
    LABEL_ROLE,
    NAMESPACE,
    ROLE_POD,
    placeholder_name,
)
from kubeshare.api.types.core_v1 import NODES, PODS
from kubeshare.api.types.v1 import GPUNODES, SHAREPODS, VGPU, VGPUS, GPUNode
from kubeshare.dialects.gpushare import GPU_COUNT
from kubeshare.install.manifests import Manifest, resource_of
from kubeshare.install.rollout import TOKEN_DAEMON, Say
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import ConflictError, InvalidError, NotFoundError
from kubeshare.kube.meta import ObjectMeta, metadata_of
from kubeshare.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, RESOURCE_SLICES, Resource

_VGPUS: Final = VGPUS.into(VGPU)
_POLL_SECONDS: Final = 0.5
_ROUNDS: Final = 5
NAMED: Final = 10
"""Pods that are named where there are more."""
DEVICE_MANAGER: Final = f"system:serviceaccount:{NAMESPACE}:kubeshare-device-manager"
"""The only user whom the policies let delete a placeholder, besides Kubernetes."""
_LAST: Final = ("CustomResourceDefinition", "Namespace")
"""Kinds that go after all others."""


class RemovalError(Exception):
    """Something could not be removed; the message says what."""

    exit_code = 1


async def uninstall(  # noqa: PLR0913 - two clients, and what to remove how
    client: Client,
    device_manager: Client,
    manifests: list[Manifest],
    *,
    wait: float,
    deadline: float,
    say: Say,
) -> list[str]:
    """Remove everything that no running pod needs.

    Args:
        client: the cluster, as its administrator.
        device_manager: the cluster, as :data:`DEVICE_MANAGER`: deletes placeholders.
        manifests: from ``manifests.load``.
        wait: seconds to wait for pods that share a GPU to end by themselves.
        deadline: seconds that each of KubeShare's own objects may take to go.
        say: shown a line for each step.

    Returns:
        the pods (``NAMESPACE/NAME on NODE``) for which the node programs stay; none when
        all is gone.

    Raises:
        RemovalError: an object is still there after the deadline.
        ApiError: the API server cannot be reached, or refuses.
    """
    deployments = [one for one in manifests if one["kind"] == "Deployment"]
    await _remove_all(client, deployments, deadline)
    say("scheduler and device manager are gone: nothing is placed any more")
    if gated := await _gated(client):
        say(
            f"{len(gated)} pods wait behind the gate {GATE}, which is not removed any more: delete "
            f"them, or what makes them ({', '.join(gated[:NAMED])}{' …' if gated[NAMED:] else ''})"
        )
    if await _serves(client, SHAREPODS):
        freed = await _free_pods(client)
        asked = await _remove_sharepods(client)
        say(f"{asked} SharePods deleted, {freed} pods go on without one")
    if await _serves(client, VGPUS):
        running = await _until_given_back(client, device_manager, wait, deadline)
        if running:
            return running
        say("every GPU is given back")
    counted = await _nodes_with_count(client)
    await _remove_rest(client, manifests, deadline)
    # Afterwards: the node agents would write it again.
    for node in counted:
        await _remove_count(client, node)
    say("KubeShare is gone")
    return []


async def _nodes_with_count(client: Client) -> list[str]:
    """The nodes in whose status a node agent has written gpushare's number of GPUs."""
    if not await _serves(client, GPUNODES):
        return []
    owned = {
        found.metadata.name
        for found in (await client.list(GPUNODES.into(GPUNode))).items
        if is_owned(found)
    }
    nodes = (await client.list(NODES)).items
    names = (node.metadata.name for node in nodes if GPU_COUNT in node.status.allocatable)
    return sorted(owned.intersection(names))


async def _remove_count(client: Client, node: str) -> None:
    removed = {"status": {"capacity": {GPU_COUNT: None}, "allocatable": {GPU_COUNT: None}}}
    with suppress(NotFoundError):
        await client.merge_patch(NODES, node, removed, subresource="status")


async def _gated(client: Client) -> list[str]:
    """The plain pods that wait for a part of a GPU: ``NAMESPACE/NAME``."""
    pods = (await client.list(PODS, labels=f"{LABEL_ROLE}={ROLE_POD}")).items
    return sorted(str(pod.metadata.key) for pod in pods if pod.gated)


async def _serves(client: Client, resource: Resource[Any]) -> bool:
    """Whether the kind is there; a removal that was cut off may have taken it already."""
    try:
        await client.get(CUSTOM_RESOURCE_DEFINITIONS, f"{resource.plural}.{resource.group}")
    except NotFoundError:
        return False
    return True


async def _free_pods(client: Client) -> int:
    """Take SharePods out of the owners of all pods."""
    freed = 0
    for pod in (await client.list(PODS)).items:
        freed += await _free_pod(client, pod.metadata)
    return freed


async def _free_pod(client: Client, metadata: ObjectMeta) -> bool:
    for _ in range(_ROUNDS):
        kept = [one for one in metadata.owner_references if not _is_ours(one.api_version)]
        if len(kept) == len(metadata.owner_references):
            return False
        # By its place in the list: an owner has more fields than are read here.
        numbers = [
            number
            for number, owner in enumerate(metadata.owner_references)
            if _is_ours(owner.api_version)
        ]
        operations = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": metadata.resource_version},
            *(
                {"op": "remove", "path": f"/metadata/ownerReferences/{number}"}
                for number in reversed(numbers)
            ),
        ]
        try:
            await client.json_patch(PODS, metadata.name, operations, metadata.namespace)
        except NotFoundError:
            return False
        except ConflictError:
            try:
                metadata = (await client.get(PODS, metadata.name, metadata.namespace)).metadata
            except NotFoundError:
                return False
        else:
            return True
    raise RemovalError(f"pod {metadata.key} changes all the time: try again")


def _is_ours(api_version: str) -> bool:
    return api_version.partition("/")[0] == GROUP


async def _remove_sharepods(client: Client) -> int:
    listed = (await client.list(SHAREPODS)).items
    for raw in listed:
        metadata = metadata_of(raw)
        # One that is going already goes with its last finalizer.
        with suppress(NotFoundError):
            if metadata.finalizers:
                free = {"metadata": {"finalizers": None}}
                await client.merge_patch(SHAREPODS, metadata.name, free, metadata.namespace)
            await client.delete(SHAREPODS, metadata.name, metadata.namespace)
    return len(listed)


async def _until_given_back(
    client: Client, device_manager: Client, wait: float, deadline: float
) -> list[str]:
    """Delete the vGPUs without holders; return the pods that hold the others."""
    loop = asyncio.get_running_loop()
    patient, end = loop.time() + wait, loop.time() + wait + deadline
    while True:
        vgpus = (await client.list(_VGPUS)).items
        unrecorded = await _unrecorded(client)
        looks = [await _give_back(client, device_manager, vgpu, unrecorded) for vgpu in vgpus]
        named = {pod for pods in looks for pod in pods or ()}
        running = sorted(named.union(*unrecorded.values()))
        now = loop.time()
        if not (vgpus or running) or (now >= patient and all(looks)):
            return running
        if now >= end:
            names = ", ".join(vgpu.metadata.name for vgpu in vgpus)
            raise RemovalError(f"still there after {deadline:.0f} s: vGPUs {names}")
        await asyncio.sleep(_POLL_SECONDS)


async def _unrecorded(client: Client) -> dict[str, list[str]]:
    """UUID → the pods that run on the GPU although no vGPU has a holder for them."""
    if not await _serves(client, GPUNODES):
        return {}
    return {
        gpu.uuid: [f"{pod} on {found.metadata.name}" for pod in gpu.unrecorded_pods]
        for found in (await client.list(GPUNODES.into(GPUNode))).items
        for gpu in found.spec.devices
        if gpu.unrecorded_pods
    }


async def _give_back(
    client: Client, device_manager: Client, vgpu: VGPU, unrecorded: Mapping[str, list[str]]
) -> list[str] | None:
    """The pods that have a share of a vGPU; None where a step was taken towards its end."""
    name = vgpu.metadata.name
    # Somebody was faster, or the API server has not noticed yet what a guard lets go: look again.
    with suppress(ConflictError, NotFoundError, InvalidError):
        for holder in vgpu.status.holders:
            if not holder.pod_uid:
                operations = holders.remove(vgpu, holder.demand)
                await client.json_patch(_VGPUS, name, operations, subresource="status")
                return None
        if vgpu.status.holders:
            return [
                f"{holder.namespace}/{holder.name} on {vgpu.spec.node_name}"
                for holder in one_of_each_demand(vgpu)
            ]
        if pods := unrecorded.get(vgpu.spec.uuid or vgpu.spec.selected_uuid):
            return pods
        if vgpu.metadata.finalizers:
            await client.merge_patch(VGPUS, name, {"metadata": {"finalizers": None}})
        elif vgpu.status.phase != DELETING:
            operations = holders.set_phase(vgpu, DELETING)
            await client.json_patch(_VGPUS, name, operations, subresource="status")
        # The placeholder first: a vGPU never says less than what is taken.
        elif not await _delete(device_manager, PODS, placeholder_name(name), NAMESPACE, grace=1):
            version = vgpu.metadata.resource_version
            await _delete(client, VGPUS, name, resource_version=version)
    return None


async def _delete(
    client: Client, resource: Resource[Any], name: str, namespace: str = "", **options: Any
) -> bool:
    """Ask for an object's deletion; False when it is gone."""
    try:
        await client.delete(resource, name, namespace, **options)
    except NotFoundError:
        return False
    return True


async def _remove_rest(client: Client, manifests: list[Manifest], deadline: float) -> None:
    last = [one for one in manifests if one["kind"] in _LAST]
    bindings = [one for one in manifests if one["kind"].endswith("PolicyBinding")]
    # The rules go first: one of them keeps the kinds from being deleted.
    await _remove_all(client, bindings, deadline)
    # The node agent unmounts the run folder as it ends, unless a token daemon serves it.
    daemons = [one for one in manifests if one["kind"] == "DaemonSet"]
    daemons = [one for one in daemons if one["metadata"]["name"] == TOKEN_DAEMON]
    await _remove_all(client, daemons, deadline)
    rest = [one for one in manifests if one not in last and one not in bindings]
    await _remove_all(client, list(reversed(rest)), deadline)
    slices = await client.list(RESOURCE_SLICES, fields=f"spec.driver={DRA_DRIVER}")
    for one in slices.items:
        await _delete(client, RESOURCE_SLICES, one["metadata"]["name"])
    await _remove_all(client, list(reversed(last)), deadline)


async def _remove_all(client: Client, manifests: list[Manifest], deadline: float) -> None:
    """Delete objects with all that hangs on them, and wait until they are gone."""
    for manifest in manifests:
        metadata = manifest["metadata"]
        place = metadata["name"], metadata.get("namespace", "")
        await _delete(client, resource_of(manifest), *place, propagation="Foreground")
    try:
        async with asyncio.timeout(deadline):
            for manifest in manifests:
                await _until_gone(client, manifest)
    except TimeoutError:
        raise RemovalError(
            f"{manifest['kind']} {manifest['metadata']['name']} is still there after "
            f"{deadline:.0f} s: see what keeps it, and try again"
        ) from None


async def _until_gone(client: Client, manifest: Manifest) -> None:
    metadata = manifest["metadata"]
    with suppress(NotFoundError):
        while True:
            await client.get(resource_of(manifest), metadata["name"], metadata.get("namespace", ""))
            await asyncio.sleep(_POLL_SECONDS)

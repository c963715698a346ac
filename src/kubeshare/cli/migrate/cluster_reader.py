"""Reads the objects of a plan from the API server."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from kubeshare.api import configuration, pod_state
from kubeshare.api.configuration import KEY, ConfigMap, Configuration
from kubeshare.api.owned_nodes import parts_of
from kubeshare.api.types.constants import NAMESPACE, VGPU_RESOURCE
from kubeshare.api.types.core_v1 import NODES
from kubeshare.api.types.v1 import GPUNODES, VGPU, VGPUS, GPUNode
from kubeshare.cli.migrate.model import Cluster
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.resources import CONFIG_MAPS, PODS, Raw

if TYPE_CHECKING:
    from kubeshare.kube.client.client import Client


class MigrationError(Exception):
    """The move cannot go on; the message says why and what to do."""

    exit_code = 1


class WaitedError(MigrationError):
    """Another program has not done its part in time."""

    exit_code = 3


async def read_cluster(client: "Client", names: Collection[str] = ()) -> Cluster:
    """Read what a plan is made from.

    Args:
        client: the API server.
        names: nodes that must be there.

    Raises:
        MigrationError: there is no such node, or KubeShare is not installed.
        ApiError: the cluster cannot be read.
    """
    nodes = (await client.list(NODES)).items
    missing = {*names} - {node.metadata.name for node in nodes}
    if missing:
        raise MigrationError(f"there is no node {', '.join(sorted(missing))}")
    try:
        gpunodes = (await client.list(GPUNODES.into(GPUNode))).items
        vgpus = (await client.list(VGPUS.into(VGPU))).items
    except NotFoundError as error:
        message = "KubeShare is not installed on this cluster: run `kubeshare install` first"
        raise MigrationError(message) from error
    listed = (await client.list_each(PODS, lambda raw: raw if _uses_gpus(raw) else None)).items
    return Cluster(
        nodes=nodes,
        gpunodes={found.metadata.name: found for found in gpunodes},
        vgpus=vgpus,
        pods=[raw for raw in listed if raw is not None],
        configuration=await read_configuration(client),
    )


async def read_configuration(client: "Client") -> Configuration:
    """KubeShare's configuration; the defaults if there is none.

    Raises:
        InvalidValueError: it is not valid.
    """
    try:
        found = await client.get(CONFIG_MAPS.into(ConfigMap), configuration.NAME, NAMESPACE)
    except NotFoundError:
        return Configuration()
    return configuration.parse(found.data.get(KEY, ""))


def _uses_gpus(raw: Raw) -> bool:
    """Whether a pod has not ended, and uses GPUs with or without KubeShare."""
    pod = pod_state.view(raw)
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    shares = any(VGPU_RESOURCE in container.resources.limits for container in containers)
    return not pod.terminal and bool(shares or pod.whole_gpus or parts_of(pod))

"""Creates filler pods, which keep free GPUs from a placeholder."""

from typing import Any, Final

from kubeshare.api.affinity_terms import require_node
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.types.constants import (
    ANNOTATION_NODE,
    ANNOTATION_SAFE_TO_EVICT,
    FILLER_PREFIX,
    LABEL_ROLE,
    MANAGER_DEVICES,
    NAMESPACE,
    PLACEHOLDER_PRIORITY_CLASS,
    ROLE_FILLER,
)
from kubeshare.api.types.core_v1 import PODS, Pod
from kubeshare.device_manager.placeholder.pods import idle_pod, tolerate_all
from kubeshare.kube.cache.store import Store
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import NotFoundError

_BY_NODE: Final = "filler of node"


class Fillers:
    """The filler pods of the cluster.

    Args:
        client: creates and deletes them.
        cluster_state: gets the pods that the watch has not delivered yet.
        pods: the watched pods; gets an index.
        image: the image of the pods; it needs ``sh`` and ``sleep``.
    """

    def __init__(
        self, client: Client, cluster_state: ClusterState, pods: Store[Pod], image: str
    ) -> None:
        self._client = client
        self._cluster_state = cluster_state
        self._pods = pods
        self._created: dict[str, list[Pod]] = {}  # node -> those not watched yet
        self._pods.add_index(_BY_NODE, lambda pod: [pod.filler_of] if pod.filler_of else [])
        self._image = image

    def of(self, node: str) -> list[Pod]:
        """The filler pods of a node, by name."""
        is_unobserved = self._cluster_state.is_unobserved
        created = [pod for pod in self._created.pop(node, ()) if is_unobserved(pod.metadata.key)]
        if created:
            self._created[node] = created
        watched = self._pods.by_index(_BY_NODE, node)
        return sorted([*watched, *created], key=lambda pod: pod.metadata.name)

    async def create(self, node: str) -> None:
        """Create a filler pod of a node."""
        created = await self._client.create(
            PODS, manifest(node, self._image), field_manager=MANAGER_DEVICES
        )
        self._cluster_state.assume_pod(created)
        self._created.setdefault(node, []).append(created)

    async def remove(self, pod: Pod) -> None:
        """Delete a filler pod."""
        try:
            await self._client.delete(
                PODS, pod.metadata.name, NAMESPACE, uid=pod.metadata.uid, grace=1
            )
        except NotFoundError:
            self._cluster_state.forget_pod(pod)


def manifest(node: str, image: str) -> dict[str, Any]:
    """A filler pod of a node.

    Its name is the API server's, so no later filler has the name of an earlier one: what the
    node agent has reported of that one does not count for it.
    """
    pod = idle_pod("", {LABEL_ROLE: ROLE_FILLER}, PLACEHOLDER_PRIORITY_CLASS, image)
    metadata = pod["metadata"]
    del metadata["name"]
    metadata["generateName"] = FILLER_PREFIX
    metadata["annotations"] = {ANNOTATION_NODE: node, ANNOTATION_SAFE_TO_EVICT: "true"}
    pod["spec"]["affinity"] = require_node({}, node)
    tolerate_all(pod)
    return pod

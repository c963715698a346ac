"""Publishes the ResourceSlice that offers this node's driver to kube-scheduler.

The slice has one device, ``slots``, which allows any number of allocations: it only means
that the node has the driver, because KubeShare itself decides how much of which GPU a pod
gets. The kubelet deletes the slices of a driver that has been away for half a minute, so
the slice is published at every start and watched afterwards.
"""

from typing import Any

import structlog
from msgspec import Struct

from kubeshare.api.types.constants import DRA_DRIVER, MANAGER_NODE
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.client.client import Client
from kubeshare.kube.controller.controller import Controller, RequeueAfter
from kubeshare.kube.meta import ObjectMeta
from kubeshare.kube.resources import RESOURCE_SLICES
from kubeshare.node.node_object import owner_of, uid_of

log = structlog.get_logger(__name__)

DEVICE = "slots"


class _Named(Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta


_SLICES = RESOURCE_SLICES.into(_Named)


def slice_body(node: str, node_uid: str) -> dict[str, Any]:
    """The ResourceSlice of a node, owned by the Node object."""
    return {
        "metadata": {
            "name": f"{node}-{DRA_DRIVER}",
            "ownerReferences": [owner_of(node, node_uid)],
        },
        "spec": {
            "driver": DRA_DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": DEVICE, "allowMultipleAllocations": True}],
        },
    }


class SlicePublisher:
    """Publishes this node's ResourceSlice, and again whenever it is deleted.

    Attributes:
        reflector: watches the slice.
        controller: publishes it at the start and when it is gone.
    """

    def __init__(self, client: Client, node: str) -> None:
        self._client = client
        self._node = node
        self.reflector: Reflector[_Named] = Reflector(
            client, _SLICES, fields=f"spec.driver={DRA_DRIVER},spec.nodeName={node}"
        )
        self.controller: Controller[str] = Controller("resource-slice", self._reconcile)
        self.controller.watch(self.reflector, lambda _slice: (node,))
        self.controller.queue.add(node)

    async def _reconcile(self, node: str) -> RequeueAfter | None:
        body = slice_body(node, await uid_of(self._client, node))
        if self.reflector.store.get(body["metadata"]["name"]) is None:
            await self._client.apply(_SLICES, body, field_manager=MANAGER_NODE, force=True)
            log.info("ResourceSlice published")
        return None

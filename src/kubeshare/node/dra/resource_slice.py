"""Publishes the ResourceSlice that offers this node's driver to kube-scheduler.

The slice has one device, ``slots``, which allows any number of allocations: it only means
that the node has the driver, because KubeShare itself decides how much of which GPU a pod
gets. The kubelet deletes the slices of a driver that has been away for half a minute, so
the slice is published at every start and watched afterwards. A slice that says something else, as
one of another release may, is replaced under the next generation of its pool: kube-scheduler takes
the newest generation for the whole pool.
"""

from typing import Any, Final

import structlog
from msgspec import Struct, field

from kubeshare.api.types.constants import DRA_DRIVER, MANAGER_NODE
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.client.client import Client
from kubeshare.kube.controller.controller import Controller, RequeueAfter
from kubeshare.kube.meta import ObjectMeta
from kubeshare.kube.resources import RESOURCE_SLICES
from kubeshare.node.node_object import owner_of, uid_of

log = structlog.get_logger(__name__)

DEVICE = "slots"


class _Pool(Struct, frozen=True, kw_only=True, rename="camel"):
    generation: int = 0
    resource_slice_count: int = 0


class _Spec(Struct, frozen=True, kw_only=True):
    pool: _Pool = field(default_factory=_Pool)
    devices: tuple[dict[str, Any], ...] = ()


class _Slice(Struct, frozen=True, kw_only=True):
    """The fields of a ResourceSlice that can be wrong: the others select it or never change."""

    metadata: ObjectMeta
    spec: _Spec = field(default_factory=_Spec)


_SLICES = RESOURCE_SLICES.into(_Slice)
_DEVICES: Final = ({"name": DEVICE, "allowMultipleAllocations": True},)


def slice_body(node: str, node_uid: str, generation: int = 1) -> dict[str, Any]:
    """The ResourceSlice of a node, owned by the Node object."""
    return {
        "metadata": {
            "name": _name(node),
            "ownerReferences": [owner_of(node, node_uid)],
        },
        "spec": {
            "driver": DRA_DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": generation, "resourceSliceCount": 1},
            "devices": list(_DEVICES),
        },
    }


class SlicePublisher:
    """Publishes this node's ResourceSlice, and again whenever it is deleted or changed.

    Attributes:
        reflector: watches the slice.
        controller: publishes it at the start and when it is gone or says something else.
    """

    def __init__(self, client: Client, node: str) -> None:
        self._client = client
        self._altered: tuple[dict[str, Any], ...] | None = None  # what the API server made of ours
        self.reflector: Reflector[_Slice] = Reflector(
            client, _SLICES, fields=f"spec.driver={DRA_DRIVER},spec.nodeName={node}"
        )
        self.controller: Controller[str] = Controller("resource-slice", self._reconcile)
        self.controller.watch(self.reflector, lambda _slice: (node,))
        self.controller.queue.add(node)

    async def _reconcile(self, node: str) -> RequeueAfter | None:
        uid = await uid_of(self._client, node)
        there = self.reflector.store.get(_name(node))
        if there is not None and _is_current(there, uid, self._altered):
            return None
        generation = there.spec.pool.generation + 1 if there else 1
        body = slice_body(node, uid, generation)
        stored = await self._client.apply(_SLICES, body, field_manager=MANAGER_NODE, force=True)
        log.info("ResourceSlice published", generation=generation)
        if stored.spec.devices != _DEVICES:
            # A feature gate is off, or a webhook changes it: written again, it is changed again.
            self._altered = stored.spec.devices
            log.warning("the API server has changed the ResourceSlice", devices=self._altered)
        return None


def _name(node: str) -> str:
    return f"{node}-{DRA_DRIVER}"


def _is_current(there: _Slice, node_uid: str, altered: tuple[dict[str, Any], ...] | None) -> bool:
    """Whether a slice says what :func:`slice_body` says, or what the API server makes of that.

    A Node that joins again has a new uid.
    """
    owned = any(owner.uid == node_uid for owner in there.metadata.owner_references)
    spec = there.spec
    return owned and spec.devices in (_DEVICES, altered) and spec.pool.resource_slice_count == 1

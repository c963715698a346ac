"""Gives up the decision about a SharePod, so that Sched decides again.

First one conditional write clears the decision and records which node or vGPU is excluded until
when; then the holders are removed. If the program stops in between, the SharePod no longer
names its holders, and they are garbage-collected.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from kubeshare.api import sharepods
from kubeshare.api.configuration import DynamicConfiguration
from kubeshare.api.predicates import exclusions
from kubeshare.api.state.vgpu_store import VGPUStore
from kubeshare.api.types.constants import MANAGER_DEVICES
from kubeshare.api.types.v1 import SHAREPODS, ExcludedNode, SharePod
from kubeshare.device_manager.events import Events
from kubeshare.dialects.share_fields import ANNOTATIONS
from kubeshare.kube.client.client import Client
from kubeshare.kube.meta import annotation_path
from kubeshare.kube.resources import Raw


class Rescheduler:
    """Reschedules SharePods of which nothing runs.

    Args:
        client: writes the SharePods.
        pool: the vGPUs.
        events: records that a SharePod is rescheduled.
        configuration: how long a node is excluded.
        wall_clock: the current time, timezone-aware.
    """

    def __init__(
        self,
        client: Client,
        pool: VGPUStore,
        events: Events,
        *,
        configuration: DynamicConfiguration,
        wall_clock: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._pool = pool
        self._events = events
        self._configuration = configuration
        self._wall_clock = wall_clock

    def times_rescheduled(self, sharepod: SharePod) -> int:
        """How often a SharePod was rescheduled, as far as its exclusions are remembered."""
        return exclusions.reschedules(sharepod.spec.gpu.set_aside, self._wall_clock())

    async def reschedule(self, raw: Raw, sharepod: SharePod, why: str, *, gpuid: str = "") -> None:
        """Give up the decision about a SharePod, and exclude its node for a while.

        Args:
            raw: the SharePod as the API server returned it.
            sharepod: the view of it.
            why: what is wrong with the chosen node.
            gpuid: the GPUID to exclude instead of the whole node; ``""`` for the node.

        Raises:
            ConflictError: the SharePod has changed in between.
        """
        pause = timedelta(seconds=self._configuration.now().set_aside_seconds)
        set_aside = exclusions.add(
            sharepod.spec.gpu.set_aside,
            sharepod.spec.node_name,
            why,
            self._wall_clock(),
            pause,
            gpuid=gpuid,
        )
        uid, gpuids = sharepod.metadata.uid, sharepods.gpuids(sharepod)
        await clear_decision(self._client, raw, set_aside)
        self._events.excluded(sharepod, set_aside[-1])
        for vgpu in self._pool.named(sharepod.spec.node_name, gpuids, uid):
            await self._pool.release(vgpu.metadata.name, uid)


async def clear_decision(client: Client, raw: Raw, set_aside: Sequence[ExcludedNode] = ()) -> None:
    """Remove Sched's decision from a SharePod: GPUIDs and node, but what its author has given.

    The published GPUID that Sched has written goes too. ``spec.gpu.attempt`` stays, so that Sched
    goes on counting.

    Args:
        client: writes the SharePod.
        raw: the SharePod as the API server returned it.
        set_aside: the exclusions to record; none leaves the present ones.

    Raises:
        ConflictError: the SharePod has changed in between.
        ApiError: the API server refuses for another reason.
    """
    metadata = raw["metadata"]
    gpu = dict(raw["spec"].get("gpu") or {})
    if not gpu.get("idGiven"):
        gpu.pop("id", None)
        gpu.pop("ids", None)
    if set_aside:
        gpu["setAside"] = msgspec.to_builtins(set_aside)
    operations: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]},
        {"op": "add", "path": "/spec/gpu", "value": gpu},
    ]
    if ANNOTATIONS["id"] in (metadata.get("annotations") or {}) and not gpu.get("idGiven"):
        operations.append({"op": "remove", "path": annotation_path(ANNOTATIONS["id"])})
    if not gpu.get("nodeGiven"):
        operations.append({"op": "remove", "path": "/spec/nodeName"})
    await client.json_patch(
        SHAREPODS,
        metadata["name"],
        operations,
        metadata["namespace"],
        field_manager=MANAGER_DEVICES,
    )

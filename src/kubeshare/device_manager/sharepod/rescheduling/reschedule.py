"""A SharePod moves on: its decision is undone, and its node or vGPU set aside for a while.

First the SharePod is told, in one conditional write, that the decision holds no more and
what is set aside until when; then its parts are given back. Whoever is killed in
between leaves parts that the SharePod does not name, which Sched takes back.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from kubeshare.api import sharepods
from kubeshare.api.configuration import DynamicConfiguration
from kubeshare.api.predicates import exclusions
from kubeshare.api.state.vgpu_store import VGPUStore
from kubeshare.api.types.v1 import SharePod
from kubeshare.device_manager.events import Events
from kubeshare.device_manager.sharepod.rescheduling.undo import undo_decision
from kubeshare.kube.client.client import Client
from kubeshare.kube.resources import Raw


class Rescheduler:
    """Moves SharePods on of which nothing runs.

    Args:
        client: where they are.
        pool: the vGPUs.
        events: tells people.
        configuration: says for how long a node is set aside.
        wall_clock: says until when.
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
        """How often it has been moved on, as far as that is remembered."""
        return exclusions.reschedules(sharepod.spec.gpu.set_aside, self._wall_clock())

    async def reschedule(self, raw: Raw, sharepod: SharePod, why: str, *, gpuid: str = "") -> None:
        """Undo the decision about a SharePod.

        Args:
            raw: the SharePod.
            sharepod: the same.
            why: what is wrong with the node that was chosen.
            gpuid: the vGPU of which that is so, where others of its node would do.

        Raises:
            ConflictError: it has changed meanwhile.
        """
        pause = timedelta(seconds=self._configuration.now().set_aside_seconds)
        noted = exclusions.add(
            sharepod.spec.gpu.set_aside,
            sharepod.spec.node_name,
            why,
            self._wall_clock(),
            pause,
            gpuid=gpuid,
        )
        await undo_decision(self._client, raw, noted)
        self._events.set_aside(sharepod, noted[-1])
        for held in sharepods.gpuids(sharepod):
            await self._pool.release(held, sharepod.metadata.uid)

"""Looks every second who uses the GPUs past the device library, and tells people.

What lasts for two looks is told once, and again every few minutes while it lasts: as an
event of the pod, in the log, and in the metrics. By default nothing is done about it.
Where the administrator asked for it, the process is ended: that one alone, and only after
it has been looked at again.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Literal

import structlog
from prometheus_client import CollectorRegistry

from kubeshare.core.units import format_memory
from kubeshare.kube.controller.events import WARNING, EventRecorder, ObjectReference
from kubeshare.kube.resources import PODS
from kubeshare.node.escapes.debounce import PersistentFindings
from kubeshare.node.escapes.detection import OVER_LIMIT, UNHELD, Finding, Reason, detect
from kubeshare.node.escapes.metrics import EscapeMetrics
from kubeshare.node.escapes.sampling import Sampler
from kubeshare.node.gpus.discovery import DiscoveryError
from kubeshare.node.process_kill import kill
from kubeshare.tokens.overheads import StableOverheads

log = structlog.get_logger(__name__)

EscapePolicy = Literal["report", "kill"]

INTERVAL_SECONDS: Final = 1.0
TOLD_AGAIN_LOOKS: Final = 30
"""A daemon that has lost an overhead hears of it again after so many looks."""

_ADVICE: Final[Mapping[Reason, str]] = {
    UNHELD: "Programs that are static, use musl or are built for another architecture cannot be "
    "held: link it to glibc, do not unset its preloading, or give it a whole GPU",
    OVER_LIMIT: "Give the pod more memory, or find out what allocates past the library",
}
_ENDED: Final[Mapping[Reason, str]] = dict.fromkeys(
    (UNHELD, OVER_LIMIT), "The process is ended, as this cluster's administrator asked for"
)


class EscapeWatch:
    """Watches one node.

    Args:
        use: looks.
        containers: what the API server knows of this node's containers.
        events: where the owners of pods read.
        policy: what is done besides telling.
        interval: seconds between looks.
    """

    def __init__(
        self,
        use: Sampler,
        containers: Callable[[], Mapping[str, tuple[str, str]]],
        events: EventRecorder,
        *,
        policy: EscapePolicy = "report",
        interval: float = INTERVAL_SECONDS,
    ) -> None:
        self._use = use
        self._containers = containers
        self._events = events
        self._policy = policy
        self._interval = interval
        self._suspicions = PersistentFindings()
        self._settled = StableOverheads()
        self._told: dict[tuple[str, str], int] = {}
        self._looks = 0
        self._trouble = ""
        # A process takes a while to end; it counts once.
        self._ended: deque[tuple[int, int]] = deque(maxlen=1024)
        self._metrics = EscapeMetrics(lambda: self._suspicions.lasting)

    def count_in(self, registry: CollectorRegistry) -> None:
        """Have the metrics collected."""
        self._metrics.register(registry)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(self._interval)

    async def look(self) -> None:
        """Look once, and do what follows."""
        try:
            look = await asyncio.to_thread(self._use.look, self._containers())
        except (DiscoveryError, OSError) as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                log.warning("cannot see who uses the GPUs", reason=self._trouble)
            return
        self._trouble = ""
        findings, overheads = detect(look)
        for finding in self._suspicions.add(findings, asyncio.get_running_loop().time()):
            self._tell(finding)
        if self._policy == "kill":
            for finding in self._suspicions.lasting:
                await self._end(finding)
        await self._tell_overheads(self._settled.add(overheads))

    def _tell(self, finding: Finding) -> None:
        log.warning(
            "GPU used past the device library",
            reason=finding.reason,
            pod=f"{finding.pod.namespace}/{finding.pod.name}",
            container=finding.container,
            pid=finding.pid,
            gpus=list(finding.gpus),
            used_bytes=finding.used,
            limit_bytes=finding.limit,
        )
        then = _ENDED if self._policy == "kill" else _ADVICE
        note = f"{words(finding)}. {then[finding.reason]}"
        self._events.emit(_reference(finding), finding.reason, "Watching", note, type=WARNING)
        self._metrics.told.labels(finding.reason).inc()

    async def _end(self, finding: Finding) -> None:
        containers = self._containers()

        def still() -> bool:
            try:
                findings, _ = detect(self._use.look(containers))
            except (DiscoveryError, OSError):
                return False
            meant = (finding.key, finding.pid, finding.started)
            return meant in [(one.key, one.pid, one.started) for one in findings]

        ended = await asyncio.to_thread(kill, finding.pid, finding.started, still)
        if ended and (finding.pid, finding.started) not in self._ended:
            self._ended.append((finding.pid, finding.started))
            log.warning("process ended", pid=finding.pid, reason=finding.reason)
            self._metrics.ended.labels(finding.reason).inc()

    async def _tell_overheads(self, overheads: Mapping[tuple[str, str], int]) -> None:
        self._looks += 1
        if self._looks % TOLD_AGAIN_LOOKS == 0:
            self._told.clear()
        self._told = {part: told for part, told in self._told.items() if part in overheads}
        for (claim, uuid), overhead in overheads.items():
            if self._told.get((claim, uuid)) == overhead:
                continue
            if await asyncio.to_thread(self._use.tell_overhead, claim, uuid, overhead):
                self._told[claim, uuid] = overhead


def words(finding: Finding) -> str:
    """What was found, for people."""
    who = f"process {finding.pid}" + (
        f" of container {finding.container}" * bool(finding.container)
    )
    gpus, used = ", ".join(finding.gpus), format_memory(finding.used)
    if finding.reason == UNHELD:
        return (
            f"{who} uses {used} of {gpus} without KubeShare's device library, so neither its "
            "time nor its memory is held"
        )
    return (
        f"the pod uses {used} of {gpus}, more than its limit of {format_memory(finding.limit)}; "
        f"most of what the device library does not track is of {who}"
    )


def _reference(finding: Finding) -> ObjectReference:
    return ObjectReference(
        api_version=PODS.api_version,
        kind=PODS.kind,
        namespace=finding.pod.namespace,
        name=finding.pod.name,
        uid=finding.pod.uid,
    )

"""Reports processes that bypass the device library, and kills them on request.

It takes a sample every second. A finding that lasts for two samples is reported once, and
again every few minutes while it lasts: as an event of the pod, in the log, and in the
metrics. If the administrator chose so, that process alone is killed, after another sample
has confirmed the finding.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

import structlog
from prometheus_client import CollectorRegistry

from kubeshare.core.units import format_memory
from kubeshare.kube.controller.events import WARNING, EventRecorder, ObjectReference
from kubeshare.kube.resources import PODS
from kubeshare.node.escapes.debounce import PersistentFindings
from kubeshare.node.escapes.detection import (
    COSTLY,
    FOREIGN,
    HUNG,
    MPS_CLIENT,
    OVER_LIMIT,
    UNHELD,
    Finding,
    Reason,
    Sample,
    detect,
)
from kubeshare.node.escapes.metrics import EscapeMetrics
from kubeshare.node.escapes.policy import EscapePolicy
from kubeshare.node.escapes.sampling import Sampler
from kubeshare.node.gpus.discovery import DiscoveryError
from kubeshare.node.process_kill import kill
from kubeshare.tokens.overheads import StableOverheads

log = structlog.get_logger(__name__)

INTERVAL_SECONDS: Final = 1.0
RESEND_SAMPLES: Final = 30
"""Unchanged overheads are sent again after so many samples: a daemon may have lost them."""

_ADVICE: Final[Mapping[Reason, str]] = {
    UNHELD: "Programs that are static, use musl or are built for another architecture cannot be "
    "held: link it to glibc, do not unset its preloading, or give it a whole GPU",
    OVER_LIMIT: "Give the pod more memory, or find out what allocates past the library",
    FOREIGN: "A share belongs to one pod: delete the other pod, and let it ask for a share itself",
    MPS_CLIENT: "KubeShare starts no MPS server: end the one that this pod has found, or give its "
    "clients whole GPUs",
    HUNG: "Let it launch kernels of less than 15 s, or end it: until its work ends the pod is "
    "charged for all of the GPU's time",
    COSTLY: "Find the program of this pod that locks parts of the file in KUBESHARE_COUNTERS, and "
    "end it",
}
_ENDED: Final[Mapping[Reason, str]] = {
    **_ADVICE,
    **dict.fromkeys(
        (UNHELD, OVER_LIMIT, FOREIGN, HUNG),
        "The process is ended, as this cluster's administrator asked for",
    ),
}


class EscapeWatch:
    """Watches one node.

    Args:
        sampler: takes samples.
        containers: this node's containers, from the API server.
        events: records findings as events of pods.
        policy: what to do besides reporting.
        interval: seconds between samples.

    Attributes:
        sample: the last one; None before the first.
    """

    def __init__(
        self,
        sampler: Sampler,
        containers: Callable[[], Mapping[str, tuple[str, str]]],
        events: EventRecorder,
        *,
        policy: Callable[[], EscapePolicy] = lambda: "report",
        interval: float = INTERVAL_SECONDS,
    ) -> None:
        self._sampler = sampler
        self._containers = containers
        self._events = events
        self._policy = policy
        self._interval = interval
        self.sample: Sample | None = None
        self._findings = PersistentFindings()
        self._overheads = StableOverheads()
        self._reported: dict[tuple[str, str], int] = {}
        self._samples = 0
        self._last_error = ""
        # A process takes a while to end, but counts once.
        self._ended: deque[tuple[int, int]] = deque(maxlen=1024)
        self._metrics = EscapeMetrics(lambda: self._findings.lasting)

    def register_metrics(self, registry: CollectorRegistry) -> None:
        """Register the metrics for collection."""
        self._metrics.register(registry)

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await self.check()
            await asyncio.sleep(self._interval)

    async def check(self) -> None:
        """Take one sample, and report or kill what it shows."""
        try:
            sample = await asyncio.to_thread(self._sampler.sample, self._containers())
        except (DiscoveryError, OSError) as error:
            if str(error) != self._last_error:
                self._last_error = str(error)
                log.warning("cannot see who uses the GPUs", reason=self._last_error)
            return
        self._last_error = ""
        self.sample = sample
        findings, overheads = detect(sample)
        for finding in self._findings.add(findings, asyncio.get_running_loop().time()):
            self._report(finding)
        if self._policy() == "kill":
            for finding in self._findings.lasting:
                # Time and memory of an MPS client are held.
                if finding.is_certain and finding.reason != MPS_CLIENT:
                    await self._kill(finding)
        await self._send_overheads(self._overheads.add(overheads))

    def _report(self, finding: Finding) -> None:
        log.warning(
            "GPU used past the device library",
            reason=finding.reason,
            pod=f"{finding.pod.namespace}/{finding.pod.name}",
            container=finding.container,
            pid=finding.pid,
            gpus=list(finding.gpus),
            used_bytes=finding.used_bytes,
            limit_bytes=finding.limit_bytes,
        )
        is_ended = self._policy() == "kill" and finding.is_certain
        advice = _ENDED if is_ended else _ADVICE
        note = f"{describe(finding)}. {advice[finding.reason]}"
        self._events.emit(_reference(finding), finding.reason, "Watching", note, type=WARNING)
        self._metrics.reported.labels(finding.reason).inc()

    async def _kill(self, finding: Finding) -> None:
        containers = self._containers()

        def is_still_found() -> bool:
            try:
                findings, _ = detect(self._sampler.sample(containers))
            except (DiscoveryError, OSError):
                return False
            same = (finding.key, finding.pid, finding.started)
            return same in [(one.key, one.pid, one.started) for one in findings]

        ended = await asyncio.to_thread(kill, finding.pid, finding.started, is_still_found)
        if ended and (finding.pid, finding.started) not in self._ended:
            self._ended.append((finding.pid, finding.started))
            log.warning("process ended", pid=finding.pid, reason=finding.reason)
            self._metrics.ended.labels(finding.reason).inc()

    async def _send_overheads(self, overheads: Mapping[tuple[str, str], int]) -> None:
        self._samples += 1
        if self._samples % RESEND_SAMPLES == 0:
            self._reported.clear()
        self._reported = {key: sent for key, sent in self._reported.items() if key in overheads}
        for (claim, uuid), overhead in overheads.items():
            if self._reported.get((claim, uuid)) == overhead:
                continue
            if await asyncio.to_thread(self._sampler.report_overhead, claim, uuid, overhead):
                self._reported[claim, uuid] = overhead


def describe(finding: Finding) -> str:
    """Describe a finding for people."""
    who = f"process {finding.pid}" + (
        f" of container {finding.container}" * bool(finding.container)
    )
    gpus, used = ", ".join(finding.gpus), format_memory(finding.used_bytes)
    if finding.reason == UNHELD:
        return (
            f"{who} uses {used} of {gpus} without KubeShare's device library, so neither its "
            "time nor its memory is held"
        )
    if finding.reason == FOREIGN:
        return f"{who} is of another pod and uses {used} of {gpus} by this pod's share"
    if finding.reason == MPS_CLIENT:
        return (
            f"{who} uses {gpus} through an MPS server: a fatal error of any client of that server "
            "ends this process, and one of this process ends them"
        )
    if finding.reason == HUNG:
        one_of = "" if finding.is_certain else "one of several processes, possibly "
        return (
            f"{one_of}{who} has work on {gpus} that did not end in time, or is stopped: others are "
            "served beside it"
        )
    if finding.reason == COSTLY:
        counted = f"; on {gpus} all {used} count as used past the device library"
        return (
            "the file in which the pod's processes count their memory takes too long to read, as "
            "with thousands of locks, and is left out for a minute"
        ) + counted * bool(finding.used_bytes)
    return (
        f"the pod uses {used} of {gpus}, more than its limit of "
        f"{format_memory(finding.limit_bytes)}; most of what the device library does not track "
        f"is of {who}"
    )


def _reference(finding: Finding) -> ObjectReference:
    return ObjectReference(
        api_version=PODS.api_version,
        kind=PODS.kind,
        namespace=finding.pod.namespace,
        name=finding.pod.name,
        uid=finding.pod.uid,
    )

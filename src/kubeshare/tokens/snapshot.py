"""The state of all sessions as JSON, for people and metrics."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kubeshare.core.token import WAIT_BOUNDS_NS, MemberView
from kubeshare.tokens.files.counters import Usage
from kubeshare.tokens.owners import holder_name
from kubeshare.tokens.session import Session


class Totals(NamedTuple):
    """The daemon's own counts.

    Attributes:
        dropped: connections that were closed for what their processes did.
        paused: how often a claim was not listened to for a while: it sent too many messages.
        skipped: claims whose counters are not read now, because that takes too long.
        wait_counts: waits for a token that ended, by bucket (``WAIT_BOUNDS_NS``).
        waited_ns: how long they took together.
    """

    dropped: int = 0
    paused: int = 0
    skipped: int = 0
    wait_counts: tuple[int, ...] = (0,) * (len(WAIT_BOUNDS_NS) + 1)
    waited_ns: int = 0


def entries(
    session: Session, views: Mapping[tuple[str, str], MemberView], usage: Sequence[Usage]
) -> list[dict[str, Any]]:
    """One entry for each GPU of a session: shares 0 to 1, times in ns, memory in bytes.

    `hostMemoryBytes` and `memorySpilledBytes` are of all GPUs of a session together, so each of
    its entries has the same.
    `share` is what was used, `shareName` the name of the share in its demand, often "".

    `views` are by claim and GPU; a session that has none is refused. `usage` is by cell.
    """
    pod = session.grant.pod
    found = []
    for cell, share in enumerate(session.grant.gpus):
        view = views.get((session.name, share.uuid))
        found.append(
            {
                "gpu": share.uuid,
                "model": share.model,
                "claim": session.name,
                "namespace": pod.namespace if pod else "",
                "pod": pod.name if pod else "",
                "container": session.grant.container or "",
                "holder": holder_name(session.grant),
                "shareName": share.share,
                "state": view.state if view else session.state.name.lower(),
                "processes": session.processes,
                "requestMicros": share.request_micros,
                "limitMicros": share.limit_micros,
                "limitAloneMicros": share.limit_alone_micros or share.limit_micros,
                "latencySensitive": share.latency_sensitive,
                "share": view.share if view else 0.0,
                "recentShare": view.recent_share if view else 0.0,
                "chargedNs": view.charged_ns if view else 0,
                "grants": view.grants if view else 0,
                "drains": view.drains if view else 0,
                "drainNs": view.drain_ns if view else 0,
                "overruns": view.overruns if view else 0,
                "bypasses": view.bypasses if view else 0,
                "waits": view.waits if view else 0,
                "waitedNs": view.waited_ns if view else 0,
                "longestWaitNs": view.longest_wait_ns if view else 0,
                "memoryBytes": share.memory_bytes,
                "memoryLimitBytes": share.most_memory_bytes,
                "memoryUsedBytes": usage[cell].memory_bytes,
                "hostMemoryBytes": usage[cell].host_memory_bytes,
                "memorySpilledBytes": usage[cell].spilled_bytes,
                "memoryTotalBytes": share.memory_total_bytes,
                "memoryPhysicalBytes": share.gpu_memory_bytes,
                "launches": usage[cell].launches,
            }
        )
    return found

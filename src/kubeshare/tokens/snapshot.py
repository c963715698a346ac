"""What the daemon tells people: who holds what now, as one JSON line."""

from collections.abc import Mapping
from typing import Any

from kubeshare.core.token import MemberView
from kubeshare.tokens.owners import holder_name
from kubeshare.tokens.session import Session


def entries(claim: Session, views: Mapping[tuple[str, str], MemberView]) -> list[dict[str, Any]]:
    """One entry for each of the claim's GPUs: shares 0 to 1, times in ns, memory in bytes.

    Args:
        claim: live or refused.
        views: by claim and GPU; those without one are not granted.
    """
    use = claim.use()
    pod = claim.grant.pod
    found = []
    for cell, part in enumerate(claim.grant.gpus):
        view = views.get((claim.name, part.uuid))
        found.append(
            {
                "gpu": part.uuid,
                "model": part.model,
                "claim": claim.name,
                "namespace": pod.namespace if pod else "",
                "pod": pod.name if pod else "",
                "container": claim.grant.container or "",
                "holder": holder_name(claim.grant),
                "state": view.state if view else claim.state.name.lower(),
                "processes": claim.processes,
                "requestMicros": part.request_micros,
                "limitMicros": part.limit_micros,
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
                "memoryBytes": part.memory_bytes,
                "memoryUsedBytes": use[cell].memory,
                "memoryTotalBytes": part.memory_total_bytes,
                "launches": use[cell].launches,
            }
        )
    return found

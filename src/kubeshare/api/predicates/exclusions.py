"""Excludes nodes and vGPUs for a requester for a while. Pure.

The pause doubles each time that the same node could not run the pod, and an entry is kept for
some time after its end. So a SharePod that fits on no node is rescheduled less and less, at most
:data:`MAX_RESCHEDULES` times within :data:`RETENTION`.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from kubeshare.api.types.v1 import ExcludedNode
from kubeshare.kube.conditions import timestamp

MAX_RESCHEDULES: Final = 10
"""Reschedules of a SharePod while its entries are retained."""
RETENTION: Final = timedelta(hours=1)
"""How long an entry is retained after its end; also the longest pause."""
MAX_ENTRIES: Final = 16
"""The limit of the CRD."""
MESSAGE_LENGTH: Final = 512


def add(  # noqa: PLR0913 - the fields of an entry
    entries: Sequence[ExcludedNode],
    node: str,
    message: str,
    now: datetime,
    pause: timedelta,
    *,
    gpuid: str = "",
) -> tuple[ExcludedNode, ...]:
    """The entries with one more, or with a longer pause for the same node and vGPU.

    Args:
        entries: the present entries.
        node: the node that could not run the pod.
        message: why not.
        now: the present, aware.
        pause: the length of the first exclusion.
        gpuid: the vGPU, if other GPUs of the node may be used.
    """
    known = retained(entries, now)
    same = [entry for entry in known if (entry.node, entry.id) == (node, gpuid)]
    times = 1 + sum(entry.times for entry in same)
    until = now + min(RETENTION, pause * 2 ** min(times - 1, 16))
    new = ExcludedNode(
        node=node,
        id=gpuid,
        until=timestamp(until),
        times=times,
        message=message[:MESSAGE_LENGTH],
    )
    others = [entry for entry in known if entry not in same]
    return (*others, new)[-MAX_ENTRIES:]


def retained(entries: Sequence[ExcludedNode], now: datetime) -> tuple[ExcludedNode, ...]:
    """The entries that still count, even if their pause is over."""
    return tuple(entry for entry in entries if _end(entry) > now - RETENTION)


def active(entries: Sequence[ExcludedNode], now: datetime) -> tuple[ExcludedNode, ...]:
    """The entries whose pause is not over."""
    return tuple(entry for entry in entries if _end(entry) > now)


def reschedules(entries: Sequence[ExcludedNode], now: datetime) -> int:
    """How often the SharePod was rescheduled, as far as entries are retained."""
    return sum(entry.times for entry in retained(entries, now))


def seconds_left(entries: Sequence[ExcludedNode], now: datetime) -> float | None:
    """Seconds until the first pause is over; None if there is none."""
    ends = [(_end(entry) - now).total_seconds() for entry in active(entries, now)]
    return min(ends, default=None)


def describe(entry: ExcludedNode) -> str:
    """An entry in words."""
    return f"set aside until {entry.until}: {entry.message}"


def _end(entry: ExcludedNode) -> datetime:
    # The CRD accepts RFC 3339 only; an entry with another text counts as over.
    try:
        end = datetime.fromisoformat(entry.until)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
    return end if end.tzinfo else end.replace(tzinfo=UTC)

"""Nodes and vGPUs that a SharePod is not given again for a while. Pure.

Each time that one of them could not take its pod the pause doubles, and an entry is kept for
some time after its end, so that a SharePod for which no node has room is moved about less
and less, and at most :data:`MOVES` times in :data:`MEMORY`.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from kubeshare.api.types.v1 import ExcludedNode
from kubeshare.kube.conditions import timestamp

MAX_RESCHEDULES: Final = 10
"""How often a SharePod is moved on as long as that is remembered."""
RETENTION: Final = timedelta(hours=1)
"""How long an entry is remembered after its end, and the longest pause."""
MAX_ENTRIES: Final = 16
"""As many as the schema takes."""
MESSAGE_LENGTH: Final = 512


def add(  # noqa: PLR0913 - what an entry says
    entries: Sequence[ExcludedNode],
    node: str,
    message: str,
    now: datetime,
    pause: timedelta,
    *,
    gpuid: str = "",
) -> tuple[ExcludedNode, ...]:
    """The entries with one more, or with a longer one for what is among them.

    Args:
        entries: those that there are.
        node: which could not take the pod.
        gpuid: the vGPU of it that could not, where others of the node could.
        message: why not.
        now: the present, aware.
        pause: how long it is set aside the first time.
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
    """Those that still count, whether or not their pause is over."""
    return tuple(entry for entry in entries if _end(entry) > now - RETENTION)


def active(entries: Sequence[ExcludedNode], now: datetime) -> tuple[ExcludedNode, ...]:
    """Those that are not to be chosen now."""
    return tuple(entry for entry in entries if _end(entry) > now)


def reschedules(entries: Sequence[ExcludedNode], now: datetime) -> int:
    """How often the SharePod has been moved on, as far as that is remembered."""
    return sum(entry.times for entry in retained(entries, now))


def seconds_left(entries: Sequence[ExcludedNode], now: datetime) -> float | None:
    """Seconds until the first pause is over; None where none is on."""
    ends = [(_end(entry) - now).total_seconds() for entry in active(entries, now)]
    return min(ends, default=None)


def describe(entry: ExcludedNode) -> str:
    """An entry, for people."""
    return f"set aside until {entry.until}: {entry.message}"


def _end(entry: ExcludedNode) -> datetime:
    # The schema takes RFC 3339 only; one that somebody wrote otherwise is over.
    try:
        end = datetime.fromisoformat(entry.until)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
    return end if end.tzinfo else end.replace(tzinfo=UTC)

"""Conditions: what a controller has observed, written only when that has changed.

A condition that is written again without news costs a write, wakes every watcher,
and moves a time that people read. So a condition counts as changed only when its
status, reason or observed generation changes, and ``lastTransitionTime`` moves only
with the status.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from kubeshare.kube.meta import Condition

REASON_LIMIT = 1024
MESSAGE_LIMIT = 32768


def timestamp(moment: datetime) -> str:
    """An aware time as Kubernetes writes it: RFC 3339, UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp(moment: datetime) -> str:
    """An aware time with microseconds, as leases and events have it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def find_condition(conditions: Iterable[Condition], kind: str) -> Condition | None:
    """The condition of a type, or None."""
    return next((condition for condition in conditions if condition.type == kind), None)


def is_true(conditions: Iterable[Condition], kind: str) -> bool:
    """Whether a condition is there and ``True``."""
    condition = find_condition(conditions, kind)
    return condition is not None and condition.status == "True"


def set_condition(
    conditions: Sequence[Condition],
    new: Condition,
    now: datetime,
    *,
    message_counts: bool = False,
) -> tuple[tuple[Condition, ...], bool]:
    """The conditions with one of them set, and whether that is worth a write.

    Args:
        conditions: as read.
        new: the observation; its ``last_transition_time`` is filled in here.
        now: the present, aware.
        message_counts: whether another message alone is worth a write; only for
            messages that say something else when something else is the case.

    Returns:
        All conditions in their order (``new`` last if its type is new), and whether
        anything but possibly the message differs.
    """
    old = find_condition(conditions, new.type)
    same = old is not None and old.status == new.status
    since = (old.last_transition_time if old is not None and same else None) or timestamp(now)
    new = msgspec.structs.replace(
        new,
        reason=new.reason[:REASON_LIMIT],
        message=new.message[:MESSAGE_LIMIT],
        last_transition_time=since,
    )
    if old is None:
        return (*conditions, new), True
    changed = _facts(old) != _facts(new) or (message_counts and old.message != new.message)
    if not changed:
        return tuple(conditions), False
    return tuple(new if item.type == new.type else item for item in conditions), True


def _facts(condition: Condition) -> tuple[str, str, int]:
    return condition.status, condition.reason, condition.observed_generation


def to_raw(conditions: Iterable[Condition]) -> list[dict[str, Any]]:
    """Conditions as a manifest has them.

    The API server insists on ``reason``, ``message`` and ``lastTransitionTime``, so
    they are there even when they are empty.
    """
    required = {"reason": "", "message": ""}
    return [required | msgspec.to_builtins(condition) for condition in conditions]

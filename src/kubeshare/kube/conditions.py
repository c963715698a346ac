"""Sets status conditions, and says whether a condition is worth a write.

Writing an unchanged condition costs a write, wakes every watcher, and moves a time that people
read. So a condition counts as changed only if its status, reason or observed generation changes,
and ``lastTransitionTime`` moves only with the status.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from kubeshare.kube.meta import Condition

REASON_LIMIT = 1024
MESSAGE_LIMIT = 32768


def timestamp(moment: datetime) -> str:
    """An aware time in the format of Kubernetes: RFC 3339, UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp(moment: datetime) -> str:
    """An aware time with microseconds, as in Leases and Events."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def find_condition(conditions: Iterable[Condition], kind: str) -> Condition | None:
    """The condition of that type, or None."""
    return next((condition for condition in conditions if condition.type == kind), None)


def is_true(conditions: Iterable[Condition], kind: str) -> bool:
    """Whether the condition of that type is ``True``."""
    condition = find_condition(conditions, kind)
    return condition is not None and condition.status == "True"


def set_condition(
    conditions: Sequence[Condition],
    new: Condition,
    now: datetime,
    *,
    message_counts: bool = False,
) -> tuple[tuple[Condition, ...], bool]:
    """Set a condition, and say whether the result is worth a write.

    Args:
        conditions: the present conditions.
        new: the condition to set; its ``last_transition_time`` is filled in here.
        now: the present, aware.
        message_counts: whether a new message alone is worth a write; only for messages that
            differ only when the situation does.

    Returns:
        All conditions in their order (``new`` last if its type is new), and whether anything
        but the message differs (with ``message_counts``: anything).
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
    changed = _compared(old) != _compared(new) or (message_counts and old.message != new.message)
    if not changed:
        return tuple(conditions), False
    return tuple(new if item.type == new.type else item for item in conditions), True


def _compared(condition: Condition) -> tuple[str, str, int]:
    return condition.status, condition.reason, condition.observed_generation


def to_raw(conditions: Iterable[Condition]) -> list[dict[str, Any]]:
    """Conditions as raw objects.

    ``reason``, ``message`` and ``lastTransitionTime`` are present even if empty, since the API
    server requires them.
    """
    required = {"reason": "", "message": ""}
    return [required | msgspec.to_builtins(condition) for condition in conditions]

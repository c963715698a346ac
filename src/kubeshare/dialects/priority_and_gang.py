"""Priority, gang and preemptibility of SharePods and plain pods.

Both use the labels of KubeShare's second version, and the annotations
``kubeshare.nthu/preemptible`` and ``kubeshare.nthu/gang-near``, which that version did not have.
"""

from collections.abc import Mapping
from typing import Any, Final, get_args

import msgspec

from kubeshare.core.errors import InvalidValueError
from kubeshare.core.gang import Gang, Near
from kubeshare.core.units import MICROS, parse_count, parse_gpus

PRIORITY: Final = "sharedgpu/priority"
GROUP_NAME: Final = "sharedgpu/group_name"
GROUP_HEADCOUNT: Final = "sharedgpu/group_headcount"
GROUP_THRESHOLD: Final = "sharedgpu/group_threshold"
MIN_AVAILABLE: Final = "sharedgpu/min_available"
PREEMPTIBLE: Final = "kubeshare.nthu/preemptible"
GANG_NEAR: Final = "kubeshare.nthu/gang-near"

_NEAR: Final[tuple[Near, ...]] = get_args(Near)

LOWEST_PRIORITY: Final = -1
HIGHEST_PRIORITY: Final = 100


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Priority, gang and preemptibility of a demand.

    Attributes:
        priority: -1 to 100; higher priorities are scheduled first. Up to 0 is opportunistic,
            above 0 is guaranteed.
        given_priority: that of the label, which is above what its namespace may have; None if
            `priority` is that of the label.
        gang: the pods with which it starts, if any.
        preemptible: whether a demand of higher priority may preempt it.
    """

    priority: int = 0
    given_priority: int | None = None
    gang: Gang | None = None
    preemptible: bool = False

    @property
    def priority_label(self) -> int:
        """The priority as its label gives it."""
        return self.priority if self.given_priority is None else self.given_priority

    @property
    def priority_note(self) -> str:
        """Why its priority is not that of the label, for people; ``""`` if it is."""
        if self.given_priority is None:
            return ""
        return (
            f"{PRIORITY} {self.given_priority} counts as {self.priority}, the most that its "
            "namespace may have (maxPriority in the configuration of KubeShare)"
        )


def standing_of(manifest: Mapping[str, Any], max_priority: int = HIGHEST_PRIORITY) -> Standing:
    """The standing of a SharePod or pod, an object from the API server.

    Args:
        manifest: the object.
        max_priority: what its namespace may have; a higher priority counts as this one.

    Raises:
        InvalidValueError: a value is not acceptable; under the name of the label or annotation.
    """
    metadata = manifest.get("metadata") or {}
    labels: Mapping[str, str] = {
        key: value for key, value in (metadata.get("labels") or {}).items() if value
    }
    annotations: Mapping[str, str] = metadata.get("annotations") or {}
    given = parse_priority(labels.get(PRIORITY, "0"), PRIORITY)
    return Standing(
        priority=min(given, max_priority),
        given_priority=given if given > max_priority else None,
        gang=_near_gang(labels, annotations),
        preemptible=_preemptible(annotations),
    )


def parse_priority(text: str, field: str) -> int:
    """Parse a priority.

    Raises:
        InvalidValueError: it is no priority; under the name of the field.
    """
    try:
        priority = int(text)
    except ValueError:
        raise InvalidValueError(field, f"{text} is not a whole number") from None
    if not LOWEST_PRIORITY <= priority <= HIGHEST_PRIORITY:
        words = f"{text} is not from {LOWEST_PRIORITY} to {HIGHEST_PRIORITY}"
        raise InvalidValueError(field, words)
    return priority


def gang_named(manifest: Mapping[str, Any]) -> str:
    """The name of the gang of a SharePod or pod; ``""`` without one."""
    labels = (manifest.get("metadata") or {}).get("labels") or {}
    return str(labels.get(GROUP_NAME) or "")


def _preemptible(annotations: Mapping[str, str]) -> bool:
    text = annotations.get(PREEMPTIBLE, "false")
    if text not in {"true", "false"}:
        raise InvalidValueError(PREEMPTIBLE, f"{text!r} is neither true nor false")
    return text == "true"


def parse_near(text: str, field: str) -> Near:
    """Parse how near each other the members of a gang are placed.

    Raises:
        InvalidValueError: it is none of the words; under the name of the field.
    """
    for near in _NEAR:
        if text == near:
            return near
    raise InvalidValueError(field, f"{text!r} is none of {', '.join(_NEAR)}")


def _near_gang(labels: Mapping[str, str], annotations: Mapping[str, str]) -> Gang | None:
    """The gang, and how near each other its members are placed."""
    gang, text = _gang(labels), annotations.get(GANG_NEAR)
    if not text:
        return gang
    near = parse_near(text, GANG_NEAR)
    if gang is None:
        words = f"there is no gang: give the labels {GROUP_NAME} and {MIN_AVAILABLE}"
        raise InvalidValueError(GANG_NEAR, words)
    return msgspec.structs.replace(gang, near=near)


def _gang(labels: Mapping[str, str]) -> Gang | None:
    """The gang; as published, None if the labels are incomplete."""
    if GROUP_NAME not in labels:
        return None
    headcount = parse_count(labels.get(GROUP_HEADCOUNT, "0"), GROUP_HEADCOUNT)
    needed = _threshold(labels, headcount)
    if MIN_AVAILABLE in labels:
        given = parse_count(labels[MIN_AVAILABLE], MIN_AVAILABLE)
        if needed not in (None, given):
            words = f"{given} differs from {needed}, which {GROUP_THRESHOLD} makes of the headcount"
            raise InvalidValueError(MIN_AVAILABLE, words)
        needed = given
    if not needed:
        return None
    if headcount and needed > headcount:
        field = MIN_AVAILABLE if MIN_AVAILABLE in labels else GROUP_THRESHOLD
        words = f"{needed} of {headcount} pods can never be there: nothing would start"
        raise InvalidValueError(field, words)
    return Gang(name=labels[GROUP_NAME], min_available=needed, headcount=headcount)


def _threshold(labels: Mapping[str, str], headcount: int) -> int | None:
    """Threshold times headcount, halves rounded up; None without both labels."""
    if GROUP_THRESHOLD not in labels or GROUP_HEADCOUNT not in labels:
        return None
    if headcount < 1:
        raise InvalidValueError(GROUP_HEADCOUNT, f"{headcount} is less than one pod")
    threshold = parse_gpus(labels[GROUP_THRESHOLD], GROUP_THRESHOLD)
    if threshold == 0:
        raise InvalidValueError(GROUP_THRESHOLD, f"{labels[GROUP_THRESHOLD]} is not above 0")
    return (threshold * headcount + MICROS // 2) // MICROS

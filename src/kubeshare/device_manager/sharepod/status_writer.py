"""Writes a SharePod's status when it changes.

A starting pod passes through states that end before anybody could read them. A status write costs
the API server as much as a write of the pod, so such states are written only if they last.

For the same reason the condition ``Scheduled`` of a decision is written with them, unless Sched has
written it before (record 055).
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from kubeshare.api import sharepods
from kubeshare.api.types.constants import (
    CONDITION_ALLOCATED,
    CONDITION_READY,
    CONDITION_SCHEDULED,
    MANAGER_DEVICES,
)
from kubeshare.api.types.v1 import SHAREPODS, SharePod
from kubeshare.core.demand import Demand
from kubeshare.device_manager.sharepod.status import Report
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.conditions import find_condition, set_condition, to_raw
from kubeshare.kube.controller.controller import RequeueAfter
from kubeshare.kube.controller.pending import PendingSince
from kubeshare.kube.meta import Condition, Key
from kubeshare.kube.resources import Raw

PASSING_SECONDS: Final = 2.0
"""Seconds that a passing state must last before it is written."""
PASSING_SECONDS_EACH: Final = 0.2
"""Additional seconds for each other SharePod in a passing state: they slow each other down."""
MAX_PASSING_SECONDS: Final = 120.0

_SAME_NAMES: Final = (
    *("gpus", "summary", "phase", "message"),
    *("pod_ip", "start_time", "finish_time"),
)
"""Fields with the same name in a status and a report."""

_CONDITIONS: Final = (CONDITION_ALLOCATED, CONDITION_READY)
"""The conditions that this program writes."""

_FIELDS: Final = (
    *("nodeName", "gpus", "summary", "phase", "message"),
    *("podIP", "startTime", "finishTime"),
)
"""The other fields of a status that this program writes."""


_SHAREPODS: Final = SHAREPODS.into(SharePod)
"""The response to a status write is not used, so it is decoded into the narrow struct."""

_OwnPart: TypeAlias = tuple[list[Any], list[Any]]


class _Written(NamedTuple):
    """A write that the watch has not reported yet, and whether it contained ``Scheduled``."""

    own_part: _OwnPart
    scheduled: bool


class StatusWriter:
    """Writes this program's part of the status of SharePods.

    Args:
        client: writes the status.
        wall_clock: the transition times of conditions.
    """

    def __init__(self, client: Client, wall_clock: Callable[[], datetime]) -> None:
        self._client = client
        self._wall_clock = wall_clock
        self._passing: PendingSince[Key] = PendingSince()
        self._written: dict[Key, _Written] = {}

    def forget(self, key: Key) -> None:
        """Drop what is known about a SharePod: it is gone, or its status is as it should be."""
        self._passing.forget(key)
        self._written.pop(key, None)

    @staticmethod
    def differs(old: Raw, new: Raw) -> bool:
        """Whether this program's part of the status has changed."""
        return _own_part(old) != _own_part(new)

    def is_own(self, key: Key, seen: Raw) -> bool:
        """Whether this program's part of the status is what it has just written."""
        written = self._written.pop(key, None)
        return written is not None and written.own_part == _own_part(seen)

    async def write(
        self, sharepod: SharePod, report: Report, demand: Demand | None
    ) -> tuple[bool, RequeueAfter | None]:
        """Write a report unless the status says the same, or the state may pass.

        Args:
            sharepod: the SharePod.
            report: what its status should say.
            demand: its demand, which the status shows.

        Returns:
            whether it was written, and when to reconcile the SharePod again.

        Raises:
            ConflictError: the SharePod has changed since it was read.
        """
        metadata = sharepod.metadata
        if _is_current(sharepod, report):
            self.forget(metadata.key)
            return False, None
        if report.passing and (
            left := self._passing.remaining(metadata.key, self._seconds(metadata.key), metadata.uid)
        ):
            return False, RequeueAfter(left)
        self._passing.forget(metadata.key)
        share = sharepods.share_status(demand) if demand else {}
        scheduled = _scheduled(sharepod) if demand else ()
        conditions = self._conditions(sharepod, (*scheduled, *report.conditions))
        return await self._apply(sharepod, report, conditions, share), None

    def _seconds(self, key: Key) -> float:
        """How long a passing state must last, given the number of others."""
        others = len(self._passing) - (key in self._passing)
        return min(MAX_PASSING_SECONDS, PASSING_SECONDS + PASSING_SECONDS_EACH * others)

    def _conditions(self, sharepod: SharePod, wanted: Sequence[Condition]) -> tuple[Condition, ...]:
        """The conditions of these types as they should be."""
        types = {condition.type for condition in wanted}
        conditions = tuple(each for each in sharepod.status.conditions if each.type in types)
        for condition in wanted:
            observed = msgspec.structs.replace(
                condition, observed_generation=sharepod.metadata.generation
            )
            conditions, _ = set_condition(
                conditions, observed, self._wall_clock(), message_counts=True
            )
        return conditions

    async def _apply(
        self,
        sharepod: SharePod,
        report: Report,
        conditions: tuple[Condition, ...],
        share: Mapping[str, str],
    ) -> bool:
        metadata = sharepod.metadata
        identity = {"name": metadata.name, "uid": metadata.uid}
        known = find_condition(sharepod.status.conditions, CONDITION_SCHEDULED)
        unseen = self._written.pop(metadata.key, None)
        first = known is None and not (unseen and unseen.scheduled)
        scheduled = find_condition(conditions, CONDITION_SCHEDULED) is not None
        if first and scheduled:
            # Sched may have written the condition since: its words must not be replaced. Once the
            # device manager has written it, Sched corrects what is wrong.
            identity["resourceVersion"] = metadata.resource_version
        status: dict[str, Any] = {
            "conditions": to_raw(conditions),
            "share": share,
            "nodeName": report.node,
            "gpus": [msgspec.to_builtins(gpu) for gpu in report.gpus],
            "phase": report.phase,
            "message": report.message,
            "observedGeneration": metadata.generation,
        }
        optional: dict[str, Any] = {
            "summary": msgspec.to_builtins(report.summary) if report.gpus else {},
            "podIP": report.pod_ip,
            "startTime": report.start_time,
            "finishTime": report.finish_time,
        }
        # The schema refuses an empty time.
        status |= {name: value for name, value in optional.items() if value}
        if not report.acted_on:
            # The watch may report the write before its response arrives.
            self._written[metadata.key] = _Written(_own_part({"status": status}), scheduled)
        try:
            await self._client.apply(
                _SHAREPODS,
                {"metadata": identity, "status": status},
                metadata.namespace,
                field_manager=MANAGER_DEVICES,
                force=True,
                subresource="status",
            )
        except BaseException as error:
            # It may not be written: the next attempt must not replace what Sched writes until then.
            self._written.pop(metadata.key, None)
            if isinstance(error, NotFoundError):
                return False
            raise
        return True


def _scheduled(sharepod: SharePod) -> tuple[Condition, ...]:
    """The condition of the decision in its spec; none where Sched has to write it.

    A field that Sched has written may be taken over, but not given up again: what is left of the
    condition would be refused. So one that says anything else is left alone.
    """
    if not sharepods.decided(sharepod):
        return ()
    reason, message = sharepods.decision_words(sharepod)
    known = find_condition(sharepod.status.conditions, CONDITION_SCHEDULED)
    if known is not None and (known.status, known.reason, known.message) != (
        "True",
        reason,
        message,
    ):
        return ()
    scheduled = Condition(type=CONDITION_SCHEDULED, status="True", reason=reason, message=message)
    return (scheduled,)


def _own_conditions(sharepod: SharePod) -> tuple[Condition, ...]:
    found = (find_condition(sharepod.status.conditions, kind) for kind in _CONDITIONS)
    return tuple(condition for condition in found if condition is not None)


def _own_part(raw: Raw) -> _OwnPart:
    """This program's part of the status of a SharePod."""
    status = raw.get("status") or {}
    conditions = [each for each in status.get("conditions") or () if each["type"] in _CONDITIONS]
    return [status.get(field) for field in _FIELDS], conditions


def _is_current(sharepod: SharePod, report: Report) -> bool:
    status, generation = sharepod.status, sharepod.metadata.generation
    present = {_facts(each, each.observed_generation) for each in _own_conditions(sharepod)}
    return (
        status.node_name == report.node
        and all(getattr(status, name) == getattr(report, name) for name in _SAME_NAMES)
        and present == {_facts(each, generation) for each in report.conditions}
    )


def _facts(condition: Condition, generation: int) -> tuple[str, str, str, str, int]:
    return condition.type, condition.status, condition.reason, condition.message, generation

"""Write a SharePod's status, when it has something new to say.

A pod on its way passes through states that are over before anybody could read
them. Each write costs the API server as much as a pod's own, so those are written
only when they last.
"""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, TypeAlias

import msgspec

from kubeshare.api import sharepods
from kubeshare.api.types.constants import CONDITION_ALLOCATED, CONDITION_READY, MANAGER_DEVICES
from kubeshare.api.types.v1 import SHAREPODS, SharePod
from kubeshare.core.demand import Demand
from kubeshare.device_manager.sharepod.status import Report
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.conditions import find_condition, set_condition, to_raw
from kubeshare.kube.controller.controller import RequeueAfter
from kubeshare.kube.meta import Condition, Key
from kubeshare.kube.resources import Raw

PASSING_SECONDS: Final = 2.0
"""Seconds that a passing state may last before it is told."""
PASSING_SECONDS_EACH: Final = 0.1
"""Seconds more for each other SharePod that is on its way: they wait for one another."""
MAX_PASSING_SECONDS: Final = 120.0

_MIRRORED: Final = ("gpus", "phase", "message", "pod_ip", "start_time", "finish_time")
"""What a status and a report call the same."""

_OURS: Final = (CONDITION_ALLOCATED, CONDITION_READY)

_FIELDS: Final = ("nodeName", "gpus", "phase", "message", "podIP", "startTime", "finishTime")
"""The fields of a status that this program writes, but for the conditions."""


_SHAREPODS: Final = SHAREPODS.into(SharePod)
"""Nobody reads the answer to a status: so little is made of it."""

_Said: TypeAlias = tuple[list[Any], list[Any]]


class StatusWriter:
    """Writes this program's part of the status of SharePods.

    Args:
        client: where to write.
        wall_clock: the times that people read.
    """

    def __init__(self, client: Client, wall_clock: Callable[[], datetime]) -> None:
        self._client = client
        self._wall_clock = wall_clock
        self._passing_since: dict[Key, tuple[str, float]] = {}  # SharePod -> its uid, loop time
        self._written: dict[Key, _Said] = {}  # SharePod -> what the watch has not told yet

    def forget(self, key: Key) -> None:
        """The SharePod is gone, or says what it should."""
        self._passing_since.pop(key, None)
        self._written.pop(key, None)

    @staticmethod
    def differs(old: Raw, new: Raw) -> bool:
        """This program's part of a SharePod's status is another one."""
        return _said(old) != _said(new)

    def is_own(self, key: Key, seen: Raw) -> bool:
        """This program's part of a SharePod's status is what it has written itself."""
        return self._written.pop(key, None) == _said(seen)

    async def write(
        self, sharepod: SharePod, report: Report, demand: Demand | None
    ) -> tuple[bool, RequeueAfter | None]:
        """Write a report unless the status says the same already.

        Args:
            sharepod: whose status.
            report: what it should say.
            demand: what the SharePod asks for, which is shown beside it.

        Returns:
            Whether it was written, and when to look at the SharePod again.
        """
        if _same(sharepod, report):
            self.forget(sharepod.metadata.key)
            return False, None
        if report.passing:
            left = self._since(sharepod) + self._patience - asyncio.get_running_loop().time()
            if left > 0:
                return False, RequeueAfter(left)
        self.forget(sharepod.metadata.key)
        share = sharepods.share_status(demand) if demand else {}
        conditions = self._conditions(sharepod, report)
        return await self._write(sharepod, report, conditions, share), None

    @property
    def _patience(self) -> float:
        return min(
            MAX_PASSING_SECONDS,
            PASSING_SECONDS + PASSING_SECONDS_EACH * (len(self._passing_since) - 1),
        )

    def _since(self, sharepod: SharePod) -> float:
        """Since when there has been something to tell that may pass."""
        key, now = sharepod.metadata.key, asyncio.get_running_loop().time()
        uid, since = self._passing_since.get(key, ("", now))
        since = since if uid == sharepod.metadata.uid else now
        self._passing_since[key] = (sharepod.metadata.uid, since)
        return since

    def _conditions(self, sharepod: SharePod, report: Report) -> tuple[Condition, ...]:
        """Our conditions as they should be."""
        wanted = {condition.type for condition in report.conditions}
        kept = tuple(condition for condition in _mine(sharepod) if condition.type in wanted)
        for condition in report.conditions:
            now_known = msgspec.structs.replace(
                condition, observed_generation=sharepod.metadata.generation
            )
            kept, _ = set_condition(kept, now_known, self._wall_clock(), message_counts=True)
        return kept

    async def _write(
        self,
        sharepod: SharePod,
        report: Report,
        conditions: tuple[Condition, ...],
        share: Mapping[str, str],
    ) -> bool:
        metadata = sharepod.metadata
        status: dict[str, Any] = {
            "conditions": to_raw(conditions),
            "share": share,
            "nodeName": report.node,
            "gpus": [msgspec.to_builtins(gpu) for gpu in report.gpus],
            "phase": report.phase,
            "message": report.message,
            "observedGeneration": metadata.generation,
        }
        found = {
            "podIP": report.pod_ip,
            "startTime": report.start_time,
            "finishTime": report.finish_time,
        }
        # A time that is not known is absent: the schema takes no empty one.
        status |= {name: value for name, value in found.items() if value}
        if not report.acted_on:
            # The watch may tell of it before the answer comes.
            self._written[metadata.key] = _said({"status": status})
        try:
            await self._client.apply(
                _SHAREPODS,
                {"metadata": {"name": metadata.name, "uid": metadata.uid}, "status": status},
                metadata.namespace,
                field_manager=MANAGER_DEVICES,
                force=True,
                subresource="status",
            )
        except NotFoundError:
            return False
        return True


def _mine(sharepod: SharePod) -> tuple[Condition, ...]:
    found = (find_condition(sharepod.status.conditions, kind) for kind in _OURS)
    return tuple(condition for condition in found if condition is not None)


def _said(raw: Raw) -> _Said:
    """This program's part of the status of a SharePod."""
    status = raw.get("status") or {}
    conditions = [each for each in status.get("conditions") or () if each["type"] in _OURS]
    return [status.get(field) for field in _FIELDS], conditions


def _same(sharepod: SharePod, report: Report) -> bool:
    status, generation = sharepod.status, sharepod.metadata.generation
    reported = {_fact(each, each.observed_generation) for each in _mine(sharepod)}
    return (
        status.node_name == report.node
        and all(getattr(status, name) == getattr(report, name) for name in _MIRRORED)
        and reported == {_fact(each, generation) for each in report.conditions}
    )


def _fact(condition: Condition, generation: int) -> tuple[str, str, str, str, int]:
    return condition.type, condition.status, condition.reason, condition.message, generation

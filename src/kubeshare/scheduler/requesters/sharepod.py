"""SharePods as requesters: the decision is written into their spec.

The condition is written into the status. The shares are reserved before: *reserve, then
decide*. A program that is killed between the two finds the shares again by the demand's uid.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from msgspec import structs

from kubeshare.api import finalizer, sharepods
from kubeshare.api.demands import Demands
from kubeshare.api.gang_members import GANG, WAITING, gang_index, gang_value
from kubeshare.api.predicates.eligibility import Eligible
from kubeshare.api.predicates.node_resources import Mates
from kubeshare.api.state.assume_cache import AssumeCache
from kubeshare.api.types.constants import CONDITION_SCHEDULED
from kubeshare.api.types.core_v1 import TERMINAL_PHASES
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import SHAREPODS, VGPU, ExcludedNode, SharePod
from kubeshare.api.vgpu_readiness import Blocker
from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.dialects.priority_and_gang import gang_named
from kubeshare.dialects.share_fields import without_own_gpuid
from kubeshare.dialects.write_back import gpuid_annotation
from kubeshare.kube.cache.store import DELETED, Change
from kubeshare.kube.client.client import Client
from kubeshare.kube.conditions import find_condition
from kubeshare.kube.controller.controller import RequeueAfter
from kubeshare.kube.controller.pending import PendingSince
from kubeshare.kube.meta import Condition, Key, annotation_path, key_of
from kubeshare.kube.resources import Raw
from kubeshare.scheduler.requesters.base import RequesterKey
from kubeshare.scheduler.requesters.object import ObjectKind, RequesterObject
from kubeshare.scheduler.scheduled_condition import ScheduledCondition

KIND: Final = SHAREPODS.kind

CONFIRM_SECONDS: Final = 5.0
"""Seconds that the device manager has to write the condition of a decision with its own status."""
CONFIRM_SECONDS_EACH: Final = 0.2
"""Additional seconds for each other SharePod without it: they slow each other down."""
MAX_CONFIRM_SECONDS: Final = 120.0


class SharePods(ObjectKind):
    """The SharePods.

    Args:
        client: reads and patches them.
        known: the objects, with this program's own writes.
        status: writes their condition.
        max_priority: the highest priority that demands of a namespace may have.
        demands: the demands of SharePods.
        device_manager_leads: whether a device manager writes their status.
    """

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        client: Client,
        known: AssumeCache[Raw],
        status: ScheduledCondition,
        max_priority: Callable[[str], int],
        *,
        demands: Demands,
        device_manager_leads: Callable[[], bool],
    ) -> None:
        super().__init__(client, known, status, max_priority)
        self.demands = demands
        self.device_manager_leads = device_manager_leads
        self.unconfirmed: PendingSince[Key] = PendingSince()
        self._written: dict[Key, Condition] = {}  # what the watch has not reported yet
        known.add_index(GANG, gang_index)
        known.add_index(WAITING, self._waits_in_gang)

    def get(self, key: Key) -> "_SharePodRequester | None":
        """The SharePod of that name, as last seen or last written by this program."""
        raw = self.known.get(key)
        return _SharePodRequester(self, raw) if raw is not None else None

    def in_gang(self, namespace: str, name: str) -> Iterable["_SharePodRequester"]:
        """The SharePods that name a gang and have not failed."""
        for raw in self.known.each_by_index(GANG, gang_value(Key(namespace, name))):
            if (raw.get("status") or {}).get("phase") != "Failed":
                yield _SharePodRequester(self, raw)

    def waiting_in_gang(self, namespace: str, name: str) -> int:
        """How many SharePods that name a gang are not bound."""
        return self.known.count_by_index(WAITING, gang_value(Key(namespace, name)))

    def _waits_in_gang(self, raw: Raw) -> list[str]:
        requester = _SharePodRequester(self, raw)
        named = gang_index(raw)
        return named if named and not requester.decided and not requester.finished else []

    def keys(self, change: Change[Raw]) -> list[RequesterKey]:
        """The key of a SharePod in which something changed that scheduling depends on.

        Most writes of its status are the device manager's and change nothing here.
        """
        old, raw = change.old, change.object
        key = [RequesterKey(KIND, key_of(raw))]
        if key_of(raw) in self.unconfirmed and (
            change.type == DELETED or not _SharePodRequester(self, raw).awaits_condition
        ):
            self.unconfirmed.forget(key_of(raw))
        if change.type == DELETED:
            self._written.pop(key_of(raw), None)
            return key
        if old is None or sharepods.input_changed(old, raw):
            return key
        if _terminal_phase(old) != _terminal_phase(raw):
            return key
        if _condition(old) == _condition(raw):
            return []
        requester = _SharePodRequester(self, raw)
        is_own = self._is_own(requester.view)
        return [] if requester.confirmed or is_own else key

    def note_written(self, key: Key, condition: Condition) -> None:
        """Note a condition that this program writes: it is no news when the watch reports it."""
        self._written[key] = condition

    def _is_own(self, view: SharePod) -> bool:
        """Whether the condition is what this program has just written."""
        written = self._written.pop(view.metadata.key, None)
        known = find_condition(view.status.conditions, CONDITION_SCHEDULED)
        return (
            written is not None
            and known is not None
            and structs.replace(known, last_transition_time=None) == written
        )

    def seconds_to_confirm(self, key: Key, uid: str) -> float:
        """How long the device manager still has to write the condition of a decision."""
        others = len(self.unconfirmed) - (key in self.unconfirmed)
        seconds = min(MAX_CONFIRM_SECONDS, CONFIRM_SECONDS + CONFIRM_SECONDS_EACH * others)
        return self.unconfirmed.remaining(key, seconds, uid)


class _SharePodRequester(RequesterObject[SharePods, SharePod]):
    """One SharePod as it was read; see :class:`kubeshare.scheduler.requesters.base.Requester`."""

    resource = SHAREPODS

    @cached_property
    def view(self) -> SharePod:
        return sharepods.view(self.raw)

    @property
    def finished(self) -> bool:
        return self.deleting or sharepods.finished(self.view)

    @property
    def decided(self) -> bool:
        return sharepods.decided(self.view)

    @property
    def gpuids(self) -> tuple[str, ...]:
        """The GPUIDs in its spec or annotation."""
        return sharepods.gpuids(self.view)

    def names(self, vgpu: VGPU) -> bool:
        return sharepods.names(self.view, vgpu)

    @property
    def excluded(self) -> Sequence[ExcludedNode]:
        return self.view.spec.gpu.set_aside

    @property
    def not_ready(self) -> str:
        return ""

    async def prepare(self) -> None:
        """Do nothing: kube-scheduler handles the volumes of its pod."""

    def filter(self, eligible: Eligible) -> Eligible:
        # kube-scheduler decides whether its pod fits: the device manager can reschedule it.
        return eligible

    def filter_beside(
        self,
        eligible: Eligible,
        mates: Mates,  # noqa: ARG002 - see filter
    ) -> Eligible:
        return eligible

    def place_beside(self, node: str, mates: Mates) -> None:
        """Do nothing: its pod is checked when it exists."""

    def demand(self) -> Demand | None:
        return self.kind.demands.of_sharepod(self.raw)

    def blocker(self, vgpus: Sequence[VGPU]) -> Blocker | None:  # noqa: ARG002
        # The device manager creates its pod once they are ready.
        return None

    async def bind(self, vgpus: Sequence[VGPU]) -> "_SharePodRequester":
        gpuids = [vgpu.gpuid for vgpu in vgpus]
        return await self.patched(self._decision(vgpus[0].spec.node_name, gpuids))

    @property
    def confirmed(self) -> bool:
        """Its condition shows the decision that its spec has."""
        known = find_condition(self.view.status.conditions, CONDITION_SCHEDULED)
        return (
            known is not None
            and known.status == "True"
            and (known.reason, known.message) == sharepods.decision_words(self.view)
            and known.observed_generation == self.view.metadata.generation
        )

    @property
    def awaits_condition(self) -> bool:
        """It is decided and has no condition: the device manager may still write it."""
        known = find_condition(self.view.status.conditions, CONDITION_SCHEDULED)
        return known is None and self.decided and not self.finished

    async def confirm(self) -> RequeueAfter | None:
        metadata = self.view.metadata
        if self._left_to_device_manager():
            latest = self.kind.get(metadata.key)
            if latest is None or not latest.awaits_condition:
                return None  # changed since it was read: it is queued again if that matters
            if left := self.kind.seconds_to_confirm(metadata.key, metadata.uid):
                return RequeueAfter(left)
        if not self.confirmed:
            await self._write("True", *sharepods.decision_words(self.view))
        self.kind.unconfirmed.forget(metadata.key)
        return None

    def _left_to_device_manager(self) -> bool:
        """Whether the device manager writes the condition with its own: then one write is saved.

        It does so only while there is none. What is read of a gang has to be known at once.
        """
        known = find_condition(self.view.status.conditions, CONDITION_SCHEDULED)
        return known is None and not gang_named(self.raw) and self.kind.device_manager_leads()

    def shows(self, reason: Reason) -> bool:
        known = find_condition(self.view.status.conditions, CONDITION_SCHEDULED)
        return (
            known is not None
            and (known.status, known.reason) == ("False", reason)
            and known.observed_generation == self.view.metadata.generation
        )

    async def set_condition(self, reason: Reason, message: str) -> bool:
        return await self._write("False", reason, message)

    def _decision(self, node: str, gpuids: Sequence[str]) -> list[Mapping[str, Any]]:
        decision: dict[str, Any] = {"attempt": self.view.spec.gpu.attempt + 1}
        demand = self.demand()
        several = len(gpuids) > 1 or (demand is not None and demand.shares)
        decision |= {"ids": list(gpuids)} if several else {"id": gpuids[0]}
        decision |= {"idGiven": bool(self.gpuids), "nodeGiven": bool(self.view.spec.node_name)}
        gpu = (self.raw["spec"].get("gpu") or {}) | decision
        version = self.view.metadata.resource_version
        return [
            {"op": "test", "path": "/metadata/resourceVersion", "value": version},
            {"op": "add", "path": "/spec/nodeName", "value": node},
            {"op": "add", "path": "/spec/gpu", "value": gpu},
            *self._published_gpuid(gpuids),
            # From now on it may have a pod, which has to be deleted first.
            *finalizer.add(self.view),
        ]

    def _published_gpuid(self, gpuids: Sequence[str]) -> list[Mapping[str, Any]]:
        """The operations that write the GPUID as the published version does, unless it is given."""
        if self.gpuids:
            return []
        annotations = self.view.metadata.annotations
        own = without_own_gpuid(annotations, decided=True, given=False)
        return [
            {"op": "add", "path": annotation_path(key), "value": value}
            for key, value in gpuid_annotation(own, gpuids).items()
        ]

    async def _write(self, status: str, reason: Reason, message: str) -> bool:
        condition = Condition(
            type=CONDITION_SCHEDULED,
            status=status,
            reason=reason,
            message=message,
            observed_generation=self.view.metadata.generation,
        )
        self.kind.note_written(self.view.metadata.key, condition)
        answer = await self.kind.status.write(
            SHAREPODS,
            self.view.metadata,
            self.view.status.conditions,
            condition,
            self._share_status(),
        )
        if answer is not None:
            self.kind.known.assume(answer)
        return answer is not None

    def _share_status(self) -> dict[str, str]:
        try:
            demand = self.demand()
        except InvalidValueError:
            return {}
        return sharepods.share_status(demand) if demand else {}


def _terminal_phase(raw: Raw) -> str:
    """The phase in which its pod ended; ``""`` before that."""
    phase = str((raw.get("status") or {}).get("phase"))
    return phase if phase in TERMINAL_PHASES else ""


def _condition(raw: Raw) -> list[Raw]:
    conditions = (raw.get("status") or {}).get("conditions") or ()
    return [each for each in conditions if each["type"] == CONDITION_SCHEDULED]

"""SharePods as requesters: the decision is written into their spec.

The condition is written into the status. The shares are reserved before: *reserve, then
decide*. A program that is killed between the two finds the shares again by the demand's uid.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from kubeshare.api import finalizer, sharepods
from kubeshare.api.demands import Demands
from kubeshare.api.gang_members import GANG, gang_index, gang_value
from kubeshare.api.predicates.eligibility import Eligible
from kubeshare.api.state.assume_cache import AssumeCache
from kubeshare.api.types.constants import CONDITION_SCHEDULED
from kubeshare.api.types.core_v1 import TERMINAL_PHASES
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import SHAREPODS, VGPU, ExcludedNode, SharePod
from kubeshare.api.vgpu_readiness import Blocker
from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.dialects.share_fields import without_own_gpuid
from kubeshare.dialects.write_back import gpuid_annotation
from kubeshare.kube.cache.store import DELETED, Change
from kubeshare.kube.client.client import Client
from kubeshare.kube.conditions import find_condition
from kubeshare.kube.meta import Condition, Key, annotation_path, key_of
from kubeshare.kube.resources import Raw
from kubeshare.scheduler.requesters.base import Requester, RequesterKey
from kubeshare.scheduler.requesters.object import ObjectKind, RequesterObject
from kubeshare.scheduler.scheduled_condition import ScheduledCondition

KIND: Final = SHAREPODS.kind


class SharePods(ObjectKind):
    """The SharePods."""

    def __init__(
        self,
        client: Client,
        known: AssumeCache[Raw],
        status: ScheduledCondition,
        max_priority: Callable[[str], int],
        demands: Demands,
    ) -> None:
        super().__init__(client, known, status, max_priority)
        self.demands = demands
        known.add_index(GANG, gang_index)

    def get(self, key: Key) -> "_SharePodRequester | None":
        """The SharePod of that name, as last seen or last written by this program."""
        raw = self.known.get(key)
        return _SharePodRequester(self, raw) if raw is not None else None

    def in_gang(self, namespace: str, name: str) -> Iterable["_SharePodRequester"]:
        """The SharePods that name a gang and have not failed."""
        for raw in self.known.by_index(GANG, gang_value(Key(namespace, name))):
            if (raw.get("status") or {}).get("phase") != "Failed":
                yield _SharePodRequester(self, raw)

    def keys(self, change: Change[Raw]) -> list[RequesterKey]:
        """The key of a SharePod in which something changed that scheduling depends on.

        Most writes of its status are the device manager's and change nothing here.
        """
        old, raw = change.old, change.object
        key = [RequesterKey(KIND, key_of(raw))]
        if change.type == DELETED or old is None or sharepods.input_changed(old, raw):
            return key
        if _terminal_phase(old) != _terminal_phase(raw):
            return key
        if _condition(old) == _condition(raw) or _SharePodRequester(self, raw).confirmed:
            return []
        return key


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

    def filter_for_gang(
        self,
        eligible: Eligible,
        others: Iterable[tuple[str, Requester]],  # noqa: ARG002 - see filter
    ) -> Eligible:
        return eligible

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
            and (known.reason, known.message) == self._scheduled
            and known.observed_generation == self.view.metadata.generation
        )

    async def confirm(self) -> None:
        if not self.confirmed:
            await self._write("True", *self._scheduled)

    def shows(self, reason: Reason) -> bool:
        known = find_condition(self.view.status.conditions, CONDITION_SCHEDULED)
        return (
            known is not None
            and (known.status, known.reason) == ("False", reason)
            and known.observed_generation == self.view.metadata.generation
        )

    async def set_condition(self, reason: Reason, message: str) -> bool:
        return await self._write("False", reason, message)

    @property
    def _scheduled(self) -> tuple[Reason, str]:
        place = f"vGPU {', '.join(self.gpuids)} on node {self.view.spec.node_name}"
        if self.view.spec.gpu.attempt:
            return Reason.BOUND, place
        return Reason.GIVEN, f"given by its author: {place}"

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

"""Show a cluster autoscaler that GPUs are missing.

An autoscaler adds nodes for pods that cannot be scheduled. A SharePod that waits has no pod
yet, so for each of those that a new node would help, up to the number that is configured, pods
are made that ask for a GPU on any node to which it could go. They have no priority, preempt
nobody and do nothing: they go as soon as their SharePod has its part, or does not wait any
more, or one of them has found a node whose GPUs are known; then Sched does the rest.
"""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from kubeshare.api import sharepods
from kubeshare.api.cluster import PODS, Pod
from kubeshare.api.configuration import Configured
from kubeshare.api.eligibility import Eligibility
from kubeshare.api.inventory import Inventory
from kubeshare.api.names import (
    ANNOTATION_SAFE_TO_EVICT,
    CONDITION_SCHEDULED,
    LABEL_ROLE,
    LABEL_SHAREPOD_UID,
    MANAGER_DEVICES,
    MISSING_PREFIX,
    MISSING_PRIORITY_CLASS,
    NAMESPACE,
    ROLE_MISSING,
)
from kubeshare.api.reasons import Reason
from kubeshare.api.v1 import SharePod
from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.growth import a_new_node_helps
from kubeshare.core.policies import Policy
from kubeshare.devices.events import Events
from kubeshare.devices.placeholder import idle_pod
from kubeshare.dialects.sharepod import demand_of
from kubeshare.kube.api import Api
from kubeshare.kube.conditions import find_condition
from kubeshare.kube.controller import RequeueAfter
from kubeshare.kube.errors import AlreadyExistsError, NotFoundError
from kubeshare.kube.meta import Key
from kubeshare.kube.reflector import Reflector
from kubeshare.kube.resources import Raw
from kubeshare.kube.store import Store

PATIENCE: Final = 5.0
"""Seconds that a SharePod waits before a pod is made for it, and again after that was removed."""

_ROLE = "shows that a GPU is missing"
_PASSED_ON: Final = ("nodeSelector", "tolerations", "affinity")


class Missing:
    """Makes and removes the pods that show what is missing.

    Args:
        api: where they are.
        asked: the SharePods.
        pods: watches all pods.
        inventory: the cluster's GPUs.
        eligibility: the nodes that pods may go to.
        policy: says whether a new node would help.
        configuration: how many pods at most.
        image: any that has ``sh`` and ``sleep``.
        events: tells people.
    """

    def __init__(  # noqa: PLR0913 - what it looks at
        self,
        *,
        api: Api,
        asked: Store[Raw],
        pods: Reflector[Pod],
        inventory: Inventory,
        eligibility: Eligibility,
        policy: Policy,
        configuration: Configured,
        image: str,
        events: Events,
    ) -> None:
        self._api = api
        self._asked = asked
        self._pods = pods.store
        self._pods.add_index(_ROLE, lambda pod: [_ROLE] if shows_what_is_missing(pod) else [])
        self._inventory = inventory
        self._eligibility = eligibility
        self._policy = policy
        self._configuration = configuration
        self._image = image
        self._events = events
        self._not_before: dict[str, float] = {}  # uid of a SharePod that waits -> when

    @property
    def needed(self) -> bool:
        """It is configured, or there are pods of former times."""
        return self._most > 0 or bool(self._shown())

    async def look(self, _: Key) -> RequeueAfter | None:
        """Have the right pods, and no other."""
        now = asyncio.get_running_loop().time()
        waiting = list(self._waiting()) if self._most else []
        due = {sharepod.metadata.uid for _, sharepod, _ in waiting}
        self._not_before = {uid: at for uid, at in self._not_before.items() if uid in due}
        wanted: dict[str, tuple[Raw, SharePod]] = {}
        wait: float | None = None
        for raw, sharepod, demand in waiting:
            left = self._not_before.setdefault(sharepod.metadata.uid, now + PATIENCE) - now
            names = [f"{MISSING_PREFIX}{demand.uid}-{number}" for number in range(demand.count)]
            if left > 0:
                wait = left if wait is None else min(wait, left)
            elif len(wanted) + len(names) <= self._most and self._helps(raw, demand):
                wanted |= dict.fromkeys(names, (raw, sharepod))
        await self._remove(wanted.keys())
        for name, (raw, sharepod) in wanted.items():
            await self._make(name, raw, sharepod)
        return None if wait is None else RequeueAfter(wait)

    @property
    def _most(self) -> int:
        return self._configuration.now().autoscaler.placeholders

    def _shown(self) -> tuple[Pod, ...]:
        return self._pods.by_index(_ROLE, _ROLE)

    def _waiting(self) -> Iterator[tuple[Raw, SharePod, Demand]]:
        """SharePods for which there is no room, the oldest first."""
        found = [(sharepods.view(raw), raw) for raw in self._asked.snapshot().values()]
        for sharepod, raw in sorted(found, key=lambda each: _age(each[0])):
            told = find_condition(sharepod.status.conditions, CONDITION_SCHEDULED)
            if told is None or told.reason != Reason.NO_ROOM or sharepods.going(sharepod):
                continue
            try:
                demand = demand_of(raw)
            except InvalidValueError:
                continue
            if demand is not None and not sharepods.decided(sharepod) and not demand.device_id:
                yield raw, sharepod, demand

    def _helps(self, raw: Raw, demand: Demand) -> bool:
        where = self._eligibility.of(raw["spec"]).nodes
        if demand.nodes is not None:
            return False  # it names its node
        bounded = msgspec.structs.replace(demand, nodes=where)
        return a_new_node_helps(self._policy, self._inventory.ledger(), bounded)

    async def _remove(self, wanted: Iterable[str]) -> None:
        keep = set(wanted)
        for pod in self._shown():
            known = self._inventory.ledger().nodes.get(pod.spec.node_name)
            found_its_node = known is not None and known.total > 0
            if pod.metadata.deletion_timestamp or (
                pod.metadata.name in keep and not found_its_node
            ):
                continue
            uid = pod.metadata.labels.get(LABEL_SHAREPOD_UID, "")
            self._not_before[uid] = asyncio.get_running_loop().time() + PATIENCE
            try:
                await self._api.delete(
                    PODS, pod.metadata.name, NAMESPACE, uid=pod.metadata.uid, grace=1
                )
            except NotFoundError:
                continue

    async def _make(self, name: str, raw: Raw, sharepod: SharePod) -> None:
        if any(pod.metadata.name == name for pod in self._shown()):
            return
        try:
            await self._api.create(
                PODS, manifest(name, raw, self._image), field_manager=MANAGER_DEVICES
            )
        except AlreadyExistsError:
            return
        self._events.missing(sharepod, name)


def manifest(name: str, raw: Raw, image: str) -> dict[str, Any]:
    """A pod that asks for a GPU wherever a SharePod could go.

    Args:
        name: its own.
        raw: the SharePod.
        image: any that has ``sh`` and ``sleep``.
    """
    labels = {LABEL_ROLE: ROLE_MISSING, LABEL_SHAREPOD_UID: raw["metadata"]["uid"]}
    pod = idle_pod(name, labels, MISSING_PRIORITY_CLASS, image)
    pod["metadata"]["annotations"] = {ANNOTATION_SAFE_TO_EVICT: "true"}
    asked = {field: raw["spec"][field] for field in _PASSED_ON if raw["spec"].get(field)}
    return pod | {"spec": pod["spec"] | asked}


def shows_what_is_missing(pod: Pod) -> bool:
    """It is one of these pods."""
    return pod.ours and pod.metadata.labels[LABEL_ROLE] == ROLE_MISSING


def _age(sharepod: SharePod) -> tuple[str, Key]:
    return sharepod.metadata.creation_timestamp or "", sharepod.metadata.key

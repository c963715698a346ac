"""Restricts plain pods to nodes that can access their volumes.

A volume may belong to one zone or one node, and a gated pod that is sent elsewhere could never
start. A claim that is bound stays bound, so it is read once, with its volume. For an unbound
claim its StorageClass decides: with ``Immediate`` the pod waits until the claim is bound; with
``WaitForFirstConsumer`` the node has to reach a free volume, or allow one to be provisioned.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from kubeshare.api.predicates.eligibility import Eligible
from kubeshare.api.predicates.node_affinity import meets
from kubeshare.api.predicates.volumes import (
    CLASSES,
    VOLUME_CLAIMS,
    VOLUMES,
    StorageClass,
    VolumeClaim,
    volume_claims_of,
)
from kubeshare.api.types.core_v1 import Node
from kubeshare.kube.cache.store import Store
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.controller.controller import RequeueAfter
from kubeshare.kube.meta import ObjectMeta
from kubeshare.kube.resources import Raw

MAX_RECHECK_SECONDS: Final = 60.0
"""Longest time for which the state of an unbound claim is believed."""
MIN_RECHECK_SECONDS: Final = 1.0
"""Seconds until a claim that blocks its pod is read again; doubles up to the maximum."""
MAX_PODS: Final = 4096
"""Pods whose volumes are cached; the oldest entry is dropped first."""


class _Requirement(Struct, frozen=True):
    """A node has to meet one of ``specs`` (PodSpecs); ``why`` explains a node that meets none.

    It is ``passing`` if it is of volumes that are free now: other nodes may get some.
    """

    specs: Sequence[Raw]
    why: str
    passing: bool = False


class _Volumes(Struct, frozen=True, kw_only=True):
    """What is known of a pod's volumes.

    Attributes:
        requirements: what a node has to meet.
        not_ready: why no node can be chosen yet; ``""`` if one can.
        until: loop time of the next read; None for never.
        pause: seconds until then.
    """

    requirements: Sequence[_Requirement]
    not_ready: str
    until: float | None
    pause: float = MIN_RECHECK_SECONDS


class _NotReadyError(Exception):
    """A claim has to be bound first; the message says which."""


class VolumeBinder:
    """The volumes of plain pods.

    Args:
        client: reads claims, volumes and classes.
        nodes: the nodes.
    """

    def __init__(self, client: Client, nodes: Store[Node]) -> None:
        self._client = client
        self._nodes = nodes
        self._known: OrderedDict[str, _Volumes] = OrderedDict()  # by a pod's uid

    async def refresh(
        self, metadata: ObjectMeta, pod_spec: Mapping[str, Any]
    ) -> RequeueAfter | None:
        """Read a pod's claims and volumes, if they are not known.

        Returns:
            when to read again, if a claim blocks the pod or keeps it from nodes for now.

        Raises:
            ApiError: they cannot be read now.
        """
        names = list(volume_claims_of(metadata.name, pod_spec))
        now = asyncio.get_running_loop().time()
        known = self._known.get(metadata.uid)
        if not names:
            return None
        if known is None or (known.until is not None and known.until <= now):
            known = await self._read(names, metadata.namespace, known)
            self._known[metadata.uid] = known
            if len(self._known) > MAX_PODS:
                self._known.popitem(last=False)
        passing = known.not_ready or any(each.passing for each in known.requirements)
        if not passing or known.until is None:
            return None
        return RequeueAfter(known.until - now)

    def not_ready(self, uid: str) -> str:
        """Why no node can be chosen for a pod yet; ``""`` if one can."""
        known = self._known.get(uid)
        return known.not_ready if known else ""

    def filter(self, eligible: Eligible, uid: str) -> Eligible:
        """The eligible nodes that can access the volumes of a pod."""
        known = self._known.get(uid)
        if known is None or not known.requirements:
            return eligible
        refused = {}
        for name in eligible.nodes:
            node = self._nodes.get(name)
            for requirement in known.requirements:
                if node is None or not any(meets(node, spec) for spec in requirement.specs):
                    refused[name] = requirement.why
        return eligible.excluding(refused)

    async def _read(
        self, names: Sequence[str], namespace: str, before: _Volumes | None
    ) -> _Volumes:
        requirements, not_ready, all_bound = [], "", True
        for name in names:
            try:
                requirement, bound = await self._requirement(name, namespace)
            except _NotReadyError as error:
                not_ready, all_bound = str(error), False
                continue
            all_bound = all_bound and bound
            if requirement is not None and requirement.specs != [{}]:
                requirements.append(requirement)
        pause = MAX_RECHECK_SECONDS
        if not_ready:
            doubled = before.pause * 2 if before and before.not_ready else MIN_RECHECK_SECONDS
            pause = min(MAX_RECHECK_SECONDS, doubled)
        now = asyncio.get_running_loop().time()
        return _Volumes(
            requirements=requirements,
            not_ready=not_ready,
            until=None if all_bound else now + pause,
            pause=pause,
        )

    async def _requirement(self, name: str, namespace: str) -> tuple[_Requirement | None, bool]:
        """What a claim requires of a node, None for nothing; and whether it is bound."""
        try:
            claim = await self._client.get(VOLUME_CLAIMS, name, namespace)
            if not claim.spec.volume_name:
                return await self._unbound(claim), False
            volume = await self._client.get(VOLUMES, claim.spec.volume_name)
        except NotFoundError:
            return None, False
        why = f"it does not reach volume {volume.metadata.name}"
        return _Requirement([volume.required], why), True

    async def _unbound(self, claim: VolumeClaim) -> _Requirement:
        name, kind = claim.metadata.name, claim.spec.storage_class_name
        found = await self._class(kind) if kind else None
        if found is None or not found.waits_for_consumer:
            raise _NotReadyError(f"its claim {name} is bound to no volume yet")
        if not found.is_static:
            why = f"no volume of class {kind} can be made for it there"
            return _Requirement([found.required], why)
        volumes = await self._client.list(VOLUMES)
        specs = [volume.required for volume in volumes.items if volume.suits(claim)]
        if not specs:
            raise _NotReadyError(f"no volume of class {kind} is free for its claim {name}")
        why = f"it reaches no free volume of class {kind} for its claim {name}"
        return _Requirement(specs, why, passing=True)

    async def _class(self, name: str) -> StorageClass | None:
        try:
            return await self._client.get(CLASSES, name)
        except NotFoundError:
            return None

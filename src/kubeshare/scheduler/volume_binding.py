"""Which nodes reach the volumes of a plain pod.

A volume may be of one zone or one node: a gated pod that is sent elsewhere could never
start. Only pods with claims are looked at, and what is bound stays so, so a claim that is
bound is read once, with its volume. Of others their class tells: some are bound at once,
which is waited for; some when kube-scheduler has chosen the pod's node, so that node has to
reach a volume that is free, or to be where one can be made.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from kubeshare.api.predicates.eligibility import Eligible
from kubeshare.api.predicates.node_affinity import meets
from kubeshare.api.predicates.volumes import (
    CLAIMS,
    CLASSES,
    VOLUMES,
    Claim,
    StorageClass,
    claims_of,
)
from kubeshare.api.types.core_v1 import Node
from kubeshare.kube.cache.store import Store
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.controller.controller import RequeueAfter
from kubeshare.kube.meta import ObjectMeta
from kubeshare.kube.resources import Raw

MAX_RECHECK_SECONDS: Final = 60.0
"""Seconds for which is believed what is known of a claim that is not bound."""
MIN_RECHECK_SECONDS: Final = 1.0
"""Seconds until one that should be bound is read again; doubles each time, up to the above."""
MAX_PODS: Final = 4096
"""Pods whose volumes are known; the one that was first goes first."""


class _Need(Struct, frozen=True):
    """A node has to meet one of ``specs``; ``why`` is said of one that meets none."""

    specs: Sequence[Raw]
    why: str


class _Known(Struct, frozen=True, kw_only=True):
    """What is known of a pod's volumes.

    Attributes:
        needs: what a node has to reach.
        not_ready: what comes before a node can be chosen; ``""`` for nothing.
        until: when it is looked at again; None is never.
        pause: seconds for which it is believed.
    """

    needs: Sequence[_Need]
    not_ready: str
    until: float | None
    pause: float = MIN_RECHECK_SECONDS


class _AwaitedError(Exception):
    """Nothing can be decided yet; the message says why."""


class VolumeBinder:
    """The volumes of plain pods.

    Args:
        client: where claims, volumes and classes are read.
        nodes: the nodes, as last seen.
    """

    def __init__(self, client: Client, nodes: Store[Node]) -> None:
        self._client = client
        self._nodes = nodes
        self._known: OrderedDict[str, _Known] = OrderedDict()  # by a pod's uid

    async def refresh(
        self, metadata: ObjectMeta, pod_spec: Mapping[str, Any]
    ) -> RequeueAfter | None:
        """Find out which volumes a pod has, if that is not known.

        Returns:
            when to look again, where something has to come first.

        Raises:
            ApiError: they cannot be read now.
        """
        names = list(claims_of(metadata.name, pod_spec))
        now = asyncio.get_running_loop().time()
        known = self._known.get(metadata.uid)
        if not names:
            return None
        if known is None or (known.until is not None and known.until <= now):
            known = await self._read(names, metadata.namespace, known)
            self._known[metadata.uid] = known
            if len(self._known) > MAX_PODS:
                self._known.popitem(last=False)
        if not known.not_ready or known.until is None:
            return None
        return RequeueAfter(known.until - now)

    def not_ready(self, uid: str) -> str:
        """What has to come before a node can be chosen for a pod; ``""`` for nothing."""
        known = self._known.get(uid)
        return known.not_ready if known else ""

    def filter(self, where: Eligible, uid: str) -> Eligible:
        """Where a pod may go, but for nodes that do not reach its volumes."""
        known = self._known.get(uid)
        if known is None or not known.needs:
            return where
        refused = {}
        for name in where.nodes:
            node = self._nodes.get(name)
            for need in known.needs:
                if node is None or not any(meets(node, spec) for spec in need.specs):
                    refused[name] = need.why
        return where.excluding(refused)

    async def _read(self, names: Sequence[str], namespace: str, before: _Known | None) -> _Known:
        needs, awaited, settled = [], "", True
        for name in names:
            try:
                need, bound = await self._need(name, namespace)
            except _AwaitedError as told:
                awaited, settled = str(told), False
                continue
            settled = settled and bound
            if need is not None and need.specs != [{}]:
                needs.append(need)
        pause = MAX_RECHECK_SECONDS
        if awaited:
            pause = min(
                MAX_RECHECK_SECONDS,
                before.pause * 2 if before and before.not_ready else MIN_RECHECK_SECONDS,
            )
        now = asyncio.get_running_loop().time()
        return _Known(
            needs=needs, not_ready=awaited, until=None if settled else now + pause, pause=pause
        )

    async def _need(self, name: str, namespace: str) -> tuple[_Need | None, bool]:
        """What a claim needs of a node, None for nothing; and whether the claim is bound."""
        try:
            claim = await self._client.get(CLAIMS, name, namespace)
            if not claim.spec.volume_name:
                return await self._unbound(claim), False
            volume = await self._client.get(VOLUMES, claim.spec.volume_name)
        except NotFoundError:
            return None, False
        return _Need([volume.required], f"it does not reach volume {volume.metadata.name}"), True

    async def _unbound(self, claim: Claim) -> _Need:
        name, kind = claim.metadata.name, claim.spec.storage_class_name
        found = await self._class(kind) if kind else None
        if found is None or not found.waits_for_the_pod:
            raise _AwaitedError(f"its claim {name} is bound to no volume yet")
        if not found.made_beforehand:
            return _Need([found.required], f"no volume of class {kind} can be made for it there")
        volumes = await self._client.list(VOLUMES)
        specs = [volume.required for volume in volumes.items if volume.suits(claim)]
        if not specs:
            raise _AwaitedError(f"no volume of class {kind} is free for its claim {name}")
        return _Need(specs, f"it reaches no free volume of class {kind} for its claim {name}")

    async def _class(self, name: str) -> StorageClass | None:
        try:
            return await self._client.get(CLASSES, name)
        except NotFoundError:
            return None

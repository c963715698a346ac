"""Which nodes reach the volumes of a plain pod.

A volume that is bound to a claim may be of one zone or one node: a gated pod that is sent
elsewhere could never start. Only pods with claims are looked at, by reading the claim and
its volume once: what is bound stays so. A claim that is not bound yet says nothing; for
most of these the volume is made where the pod is.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from kubeshare.api.cluster import Node
from kubeshare.api.eligibility import Eligible
from kubeshare.api.node_affinity import meets
from kubeshare.api.volumes import CLAIMS, VOLUMES, Volume, claims_of
from kubeshare.kube.api import Api
from kubeshare.kube.errors import NotFoundError
from kubeshare.kube.meta import ObjectMeta
from kubeshare.kube.store import Store

AGAIN: Final = 60.0
"""Seconds for which a claim that is not bound is believed to be so."""
REMEMBERED: Final = 4096
"""Pods whose volumes are known; the one that was first goes first."""


class _Known(Struct, frozen=True):
    """The volumes of a pod, and until when that is believed; None is for ever."""

    volumes: Sequence[Volume]
    until: float | None


class Volumes:
    """The volumes of plain pods.

    Args:
        api: where claims and volumes are read.
        nodes: the nodes, as last seen.
    """

    def __init__(self, api: Api, nodes: Store[Node]) -> None:
        self._api = api
        self._nodes = nodes
        self._known: OrderedDict[str, _Known] = OrderedDict()  # by a pod's uid

    async def look(self, metadata: ObjectMeta, pod_spec: Mapping[str, Any]) -> None:
        """Find out which volumes a pod has, if that is not known.

        Raises:
            ApiError: they cannot be read now.
        """
        names = list(claims_of(metadata.name, pod_spec))
        now = asyncio.get_running_loop().time()
        known = self._known.get(metadata.uid)
        if not names or (known is not None and (known.until is None or known.until > now)):
            return
        read = [await self._volume(name, metadata.namespace) for name in names]
        volumes = [volume for volume in read if volume is not None]
        until = None if len(volumes) == len(names) else now + AGAIN
        self._known[metadata.uid] = _Known(volumes, until)
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

    def within(self, where: Eligible, uid: str) -> Eligible:
        """Where a pod may go, but for nodes that do not reach its volumes."""
        known = self._known.get(uid)
        needed = [volume for volume in known.volumes if volume.required] if known else []
        if not needed:
            return where
        refused = {}
        for name in where.nodes:
            node = self._nodes.get(name)
            for volume in needed:
                if node is None or not meets(node, volume.required):
                    refused[name] = f"it does not reach volume {volume.metadata.name}"
        return Eligible(nodes=where.nodes - refused.keys(), refusals={**where.refusals, **refused})

    async def _volume(self, claim: str, namespace: str) -> Volume | None:
        """The volume of a claim; None where there is none yet."""
        try:
            bound = (await self._api.get(CLAIMS, claim, namespace)).spec.volume_name
            if not bound:
                return None
            volume = await self._api.get(VOLUMES, bound)
        except NotFoundError:
            return None
        return volume

"""Fences the GPUs of grants that cannot be read.

The file of a grant says which pod uses which GPUs. Where it cannot be read when the agent starts,
because it is broken or of a later version, the same follows from elsewhere: the GPUs from the page
that the token daemon keeps for the grant, the pod from the processes that have the claim mounted.
Of what is not known the worst is assumed: all GPUs of the node, and a pod without a holder.
"""

import asyncio
from collections.abc import Callable, Collection

from kubeshare.node.dra.claim_users import ClaimInUse, PodsOfClaim
from kubeshare.node.dra.grants import Grants, PodGrant
from kubeshare.node.dra.unrecorded_grants import UnrecordedGrants
from kubeshare.node.node_view import NodeView

_UNKNOWN = "unknown"


class UnreadableGrants:
    """The unreadable grants of one node.

    Args:
        grants: the grants on disk.
        view: this node's VGPUs and pods.
        unrecorded: what fences GPUs.
        gpus: the UUIDs of this node's GPUs.
        claim_in_use: whether the kubelet or a process here uses a claim.
        pods_of_claim: the pods whose processes have a claim mounted.
    """

    def __init__(  # noqa: PLR0913 - its parts
        self,
        grants: Grants,
        view: NodeView,
        unrecorded: UnrecordedGrants,
        gpus: Callable[[], Collection[str]],
        *,
        claim_in_use: ClaimInUse,
        pods_of_claim: PodsOfClaim,
    ) -> None:
        self._grants = grants
        self._view = view
        self._unrecorded = unrecorded
        self._gpus = gpus
        self._claim_in_use = claim_in_use
        self._pods_of_claim = pods_of_claim

    async def check_all(self) -> None:
        """Check each of them, as `check` does."""
        for claim in tuple(self._grants.unreadable):
            await self.check(claim)

    async def check(self, claim: str) -> bool:
        """Fence the GPUs of a claim, or no longer; False if nothing uses the claim."""
        names = self._grants.unreadable[claim]
        pods = await asyncio.to_thread(self._pods_of_claim, claim)
        if not pods and not await asyncio.to_thread(self._claim_in_use, claim):
            self._grants.unreadable.pop(claim, None)
            self._unrecorded.discard(claim)
            return False
        pages = [self._grants.gpus_of_page(name) for name in names]
        gpus = {uuid for page in pages for uuid in page}
        if all(pages) and pods and all(self._is_recorded(pod, gpus) for pod in pods):
            self._unrecorded.discard(claim)
        else:
            fenced = gpus if all(pages) else {*gpus, *self._gpus()}
            self._unrecorded.add(self._named(claim, names, min(pods, default="")), fenced)
        return True

    def _is_recorded(self, pod_uid: str, gpus: Collection[str]) -> bool:
        """Whether a pod has holders on all of these GPUs."""
        return {vgpu.spec.uuid for vgpu, _ in self._view.held_by(pod_uid)}.issuperset(gpus)

    def _named(self, claim: str, names: Collection[str], pod_uid: str) -> PodGrant:
        """The grants, with as much of their pod as is known."""
        pod = self._view.pods.store.by_uid(pod_uid)
        namespace = pod.metadata.namespace if pod else _UNKNOWN
        name = pod.metadata.name if pod else pod_uid or f"claim-{claim}"
        return PodGrant(claim, namespace, name, pod_uid, tuple(names))

"""Fences the GPUs of grants that cannot be read.

The file of a grant says which pod uses which GPUs. Where it cannot be read when the agent starts,
because it is broken or of a later version, the same follows from elsewhere: the GPUs from the page
that the token daemon keeps for the grant, the pod from the processes that have the claim mounted.
Of what is not known the worst is assumed: all GPUs of the node, and a pod without a holder.
"""

import asyncio
from collections.abc import Collection

from kubeshare.node.dra.claim_users import UsersOfClaims
from kubeshare.node.dra.grants import Grants, PodGrant
from kubeshare.node.dra.unrecorded_grants import EVERY_GPU, UnrecordedGrants
from kubeshare.node.node_view import NodeView

_UNKNOWN = "unknown"


class UnreadableGrants:
    """The unreadable grants of one node.

    Args:
        grants: the grants on disk.
        view: this node's VGPUs and pods.
        unrecorded: what fences GPUs.
        users: who uses which claim.
    """

    def __init__(
        self,
        grants: Grants,
        view: NodeView,
        unrecorded: UnrecordedGrants,
        users: UsersOfClaims,
    ) -> None:
        self._grants = grants
        self._view = view
        self._unrecorded = unrecorded
        self._users = users

    async def sweep(self) -> None:
        """Fence the GPUs of those in use, as far as needed, and forget those that nothing uses.

        The processes of the machine are looked at once for all of them.
        """
        if not self._grants.unreadable:
            return
        users = await asyncio.to_thread(self._users)
        for claim, names in tuple(self._grants.unreadable.items()):
            if claim in users:
                self._check(claim, names, users[claim])
            else:
                del self._grants.unreadable[claim]
                self._unrecorded.discard(claim)

    def _check(self, claim: str, names: Collection[str], pods: Collection[str]) -> None:
        """Fence the GPUs of a claim in use, or no longer."""
        pages = [self._grants.gpus_of_page(name) for name in names]
        gpus = {uuid for page in pages for uuid in page}
        if all(pages) and pods and all(self._is_recorded(pod, gpus) for pod in pods):
            self._unrecorded.discard(claim)
        else:
            fenced = gpus if all(pages) else {*gpus, EVERY_GPU}
            self._unrecorded.add(self._named(claim, names, min(pods, default="")), fenced)

    def _is_recorded(self, pod_uid: str, gpus: Collection[str]) -> bool:
        """Whether a pod has holders on all of these GPUs."""
        return {vgpu.spec.uuid for vgpu, _ in self._view.held_by(pod_uid)}.issuperset(gpus)

    def _named(self, claim: str, names: Collection[str], pod_uid: str) -> PodGrant:
        """The grants, with as much of their pod as is known."""
        pod = self._view.pods.store.by_uid(pod_uid)
        namespace = pod.metadata.namespace if pod else _UNKNOWN
        name = pod.metadata.name if pod else pod_uid or f"claim-{claim}"
        return PodGrant(claim, namespace, name, pod_uid, tuple(names))

"""Removes holders and grants that crashes or lost placeholders left behind.

A vGPU whose placeholder is gone is fenced: another pod may get its GPU, so the grants of
the pods that share it are revoked for good. A crash or a loss leaves four kinds of
inconsistency:

* A vGPU without a UUID, or with other memory than is given out: ``gpus`` writes it.
* A holder whose pod is gone or has ended, and that is not prepared here: the kubelet will
  never call unprepare for it, so the agent removes it. It believes that a pod is gone only
  if a live GET says so.
* A grant of which a share has no holder. If the pod has no process here, the grant is revoked; the
  other grants of the pod stay. A pod that runs keeps it, because it uses the GPU in any case, and
  the GPU gets no more holders (``dra.unrecorded_grants``).
* A grant whose pod is gone and that the kubelet does not unprepare: it has forgotten the claim, so
  the agent releases it by itself. A pod that is gone may still run (force-deleted), so the kubelet,
  which stops it and then calls, gets time first, and the pod keeps its share as long as it has a
  process here, or anything else uses its claim.
"""

import asyncio
from collections.abc import Collection, Iterable
from itertools import chain

import structlog

from kubeshare.api.types.constants import LABEL_VGPU, NAMESPACE, placeholder_name
from kubeshare.api.types.v1 import VGPU, Holder
from kubeshare.kube.cache.store import DELETED, Change
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.controller.controller import Controller, RequeueAfter, earliest
from kubeshare.kube.controller.events import WARNING, EventRecorder, ObjectReference
from kubeshare.kube.controller.pending import PendingSince
from kubeshare.kube.controller.resync import add_resync
from kubeshare.kube.controller.runtime import Program
from kubeshare.kube.resources import PODS
from kubeshare.node.dra.claim_users import ClaimInUse
from kubeshare.node.dra.grants import Grants, PodGrant
from kubeshare.node.dra.prepare import Preparer
from kubeshare.node.dra.release import Releaser
from kubeshare.node.dra.unreadable_grants import UnreadableGrants
from kubeshare.node.dra.unrecorded_grants import EVERY_GPU, UnrecordedGrants
from kubeshare.node.gpus.inventory import Inventory
from kubeshare.node.gpus.oversubscription import update_memory
from kubeshare.node.gpus.placeholder_gpu import PlaceholderGpus
from kubeshare.node.node_view import NODE_PODS, NODE_VGPUS, NodePod, NodeView
from kubeshare.node.processes import HasProcesses, has_processes
from kubeshare.tokens.files.grants import GrantedShare

log = structlog.get_logger(__name__)

# The kubelet looks for claims of deleted pods once a minute.
UNPREPARE_WAIT_SECONDS = 180.0
_CHECK_AGAIN = RequeueAfter(30.0)

_Held = set[tuple[str, str]]
"""The GPU (UUID) and the name of each share for which a pod has a holder."""


class Reconciler:
    """Two controllers: one over this node's vGPUs, one over the grants on its disk.

    Args:
        client: for live reads of pods and VGPUs.
        view: this node's VGPUs and pods.
        inventory: this node's GPUs.
        grants: the grants on disk.
        events: records why a grant was revoked.
        placeholders: finds the GPUs of vGPUs.
        preparer: knows which pods are being prepared.
        releaser: removes grants and holders.
        unrecorded: the grants of running pods without a holder.
        unreadable: the grants of which the files say nothing.
        claim_in_use: whether the kubelet or a process here uses a claim.
        has_processes: whether a pod (uid) has a process here.
        unprepare_wait: seconds that the kubelet gets to call unprepare.
    """

    def __init__(  # noqa: PLR0913 - its parts
        self,
        client: Client,
        view: NodeView,
        inventory: Inventory,
        grants: Grants,
        *,
        events: EventRecorder,
        placeholders: PlaceholderGpus,
        preparer: Preparer,
        releaser: Releaser,
        unrecorded: UnrecordedGrants,
        unreadable: UnreadableGrants,
        claim_in_use: ClaimInUse,
        has_processes: HasProcesses = has_processes,
        unprepare_wait: float = UNPREPARE_WAIT_SECONDS,
    ) -> None:
        self._client = client
        self._view = view
        self._inventory = inventory
        self._grants = grants
        self._events = events
        self._placeholders = placeholders
        self._preparer = preparer
        self._releaser = releaser
        self._unrecorded = unrecorded
        self._unreadable = unreadable
        self._claim_in_use = claim_in_use
        self._has_processes = has_processes
        self._unprepare_wait = unprepare_wait
        self._pod_gone: PendingSince[str] = PendingSince()  # by claim
        self.vgpus: Controller[str] = Controller("node-vgpus", self.reconcile_vgpu)
        self.grants: Controller[str] = Controller("node-grants", self.reconcile_grant)
        self.vgpus.watch(view.vgpus, lambda vgpu: (vgpu.metadata.name,))
        self.vgpus.watch(view.pods, self._vgpus_of_pod)
        inventory.reflector.subscribe(lambda _: self._queue_vgpus())
        self.grants.watch(view.vgpus, self._claims_of_vgpu)
        self.grants.watch(view.pods, self._claims_of_pod, when=_gone_or_ended)

    async def find_unrecorded(self) -> None:
        """Take grants without a holder, according to the cache, for those of running pods.

        So the first report of this agent does not say less than the last one of its predecessor.
        """
        for grant in self._grants.all():
            if gpus := self._unheld_gpus(grant, self._held(grant)):
                self._unrecorded.add(grant, gpus)
        await self._unreadable.sweep()

    def add_to(self, program: Program) -> None:
        """Run both controllers in a program."""
        program.add_controller(self.vgpus)
        program.add_controller(self.grants)
        add_resync(program, self.vgpus, self._names)
        add_resync(program, self.grants, self._grants.claims)

    def start(self) -> None:
        """Queue every grant on disk, and remove CDI specs that a crash left without one."""
        claims = self._grants.claims()
        for claim in claims:
            self.grants.queue.add(claim)
        self._releaser.detach_all_but(claims)

    async def reconcile_vgpu(self, name: str) -> RequeueAfter | None:
        """Fence a vGPU, remove abandoned holders, and find its GPU."""
        vgpu = self._view.vgpus.store.get(name)
        if vgpu is None:
            return None
        # Before another placeholder is written: the pods that shared the GPU have lost it.
        await self._fence(vgpu)
        again: RequeueAfter | None = None
        for holder in filter(self._may_be_abandoned, vgpu.status.holders):
            if await self._may_run(holder):
                again = _CHECK_AGAIN
            elif not self._is_prepared(holder.pod_uid):
                await self._releaser.release(holder.pod_uid)
        await update_memory(self._client, vgpu, self._inventory.device(vgpu.spec.uuid))
        return earliest(await self._placeholders.resolve(vgpu), again)

    async def _may_run(self, holder: Holder) -> bool:
        """Whether a holder's pod exists, or is gone and still runs (then without a grant)."""
        if await self._is_alive(holder.namespace, holder.name, holder.pod_uid):
            return True
        return await asyncio.to_thread(self._has_processes, holder.pod_uid)

    async def _fence(self, vgpu: VGPU) -> None:
        """Revoke the grants on a vGPU whose placeholder no longer reserves the GPU."""
        if not vgpu.spec.uuid or self._view.is_reserved(vgpu):
            return
        pods = [holder.pod_uid for holder in vgpu.status.holders if holder.pod_uid]
        claims = [claim for pod in pods for claim in self._grants.of_pod(pod)]
        if not claims or not await self._has_lost_placeholder(vgpu):
            return
        note = (
            f"the placeholder of vGPU {vgpu.gpuid} is gone, so another pod may get its GPU: this "
            "pod may not use it any more; delete the pod to have it started again"
        )
        for grant in filter(None, map(self._grants.read, claims)):
            self._revoke(grant, note, grant.names)

    async def _has_lost_placeholder(self, vgpu: VGPU) -> bool:
        """Whether another pod can get the GPU of a vGPU, according to the API server.

        A vGPU that has just become static has lost its placeholder for a good reason. Where the
        vGPU is gone too, its grants have no holders: that is for ``reconcile_grant``.
        """
        name = vgpu.metadata.name
        try:
            pod = await self._client.get(NODE_PODS, placeholder_name(name), NAMESPACE)
            if not pod.over and vgpu.spec.placeholder_uid in ("", pod.metadata.uid):
                return False
        except NotFoundError:
            pass
        try:
            return not (await self._client.get(NODE_VGPUS, name)).spec.is_static
        except NotFoundError:
            return False

    def _may_be_abandoned(self, holder: Holder) -> bool:
        """Whether a holder's pod is neither prepared nor alive, according to the cache."""
        if not holder.pod_uid or self._is_prepared(holder.pod_uid):
            return False
        pod = self._view.pods.store.by_uid(holder.pod_uid)
        return pod is None or pod.ended

    def _is_prepared(self, pod_uid: str) -> bool:
        return pod_uid in self._preparer.pods or bool(self._grants.of_pod(pod_uid))

    async def _is_alive(self, namespace: str, name: str, uid: str) -> bool:
        """Whether the API server has this pod, by its uid, and it has not ended."""
        try:
            pod = await self._client.get(NODE_PODS, name, namespace)
        except NotFoundError:
            return False
        return pod.metadata.uid == uid and not pod.ended

    async def reconcile_grant(self, claim: str) -> RequeueAfter | None:
        """Remove a grant whose holder is gone, or that the kubelet has forgotten."""
        if claim in self._grants.unreadable:
            # Each of them is queued, and the first one looks after all.
            if claim == next(iter(self._grants.unreadable)):
                await self._unreadable.sweep()
            return _CHECK_AGAIN if claim in self._grants.unreadable else None
        grant = self._grants.read(claim)
        if grant is None:
            self._pod_gone.forget(claim)
            self._unrecorded.discard(claim)
            return None
        if grant.pod_uid in self._preparer.pods or await self._runs_unheld(grant):
            return _CHECK_AGAIN
        if self._grants.read(claim) is None:
            return None
        pod = self._view.pods.store.by_uid(grant.pod_uid)
        if (pod is not None and not pod.ended) or await self._is_alive(
            grant.pod_namespace, grant.pod_name, grant.pod_uid
        ):
            self._pod_gone.forget(claim)
            return None
        return await self._forget(grant)

    async def _runs_unheld(self, grant: PodGrant) -> bool:
        """Whether a pod runs with a share that has no holder; where it does not run, revoke it."""
        held = self._held(grant)
        if self._unheld(grant, held):
            if grant.claim not in self._unrecorded:
                held = await self._held_now(grant)
            lost = self._unheld(grant, held)
            runs = bool(lost) and await asyncio.to_thread(self._has_processes, grant.pod_uid)
            if runs:
                self._unrecorded.add(grant, self._unheld_gpus(grant, held))
                return True
            if lost:
                self._revoke(grant, _unheld_note(chain.from_iterable(lost.values())), lost.keys())
        self._unrecorded.discard(grant.claim)
        return False

    def _revoke(self, grant: PodGrant, note: str, names: Collection[str]) -> None:
        """End some of a pod's grants, and tell it why; the CDI spec goes with the last one."""
        log.warning("grant revoked", reason=note, grants=list(names), **_keys(grant))
        if set(names) == set(grant.names):
            self._releaser.detach(grant.claim)
        else:
            self._releaser.detach_some(grant.claim, names)
        pod = ObjectReference(
            api_version=PODS.api_version,
            kind=PODS.kind,
            namespace=grant.pod_namespace,
            name=grant.pod_name,
            uid=grant.pod_uid,
        )
        self._events.emit(pod, "GrantRevoked", "Revoke", note, type=WARNING)

    def _held(self, grant: PodGrant) -> _Held:
        """The shares for which a pod has a holder, according to the cache."""
        return {
            (vgpu.spec.uuid, holder.share) for vgpu, holder in self._view.held_by(grant.pod_uid)
        }

    async def _held_now(self, grant: PodGrant) -> _Held:
        """The same, according to the API server."""
        listing = await self._client.list(NODE_VGPUS, fields=f"spec.nodeName={self._view.node}")
        return {
            (vgpu.spec.uuid, holder.share)
            for vgpu in listing.items
            for holder in vgpu.status.holders
            if holder.pod_uid == grant.pod_uid
        }

    def _unheld(self, grant: PodGrant, held: _Held) -> dict[str, list[str]]:
        """The grants of which a share has no holder → the names of these shares.

        A vGPU without a UUID has lost its GPU: that is for ``_fence``.
        """
        lost: dict[str, list[str]] = {}
        for name in grant.names:
            for share in self._grants.shares(name):
                if _lacks_holder(share, held):
                    lost.setdefault(name, []).append(share.share)
        return lost if held else {name: lost.get(name, []) for name in grant.names}

    def _unheld_gpus(self, grant: PodGrant, held: _Held) -> set[str]:
        """The GPUs (UUIDs, or `EVERY_GPU`) of the shares that have no holder.

        A grant without a holder whose file cannot be read may have a share of any GPU.
        """
        shares = {name: self._grants.shares(name) for name in grant.names}
        if not (held or all(shares.values())):
            return {EVERY_GPU}
        every = chain.from_iterable(shares.values())
        return {share.uuid for share in every if _lacks_holder(share, held)}

    async def _forget(self, grant: PodGrant) -> RequeueAfter | None:
        if left := self._pod_gone.remaining(grant.claim, self._unprepare_wait):
            return RequeueAfter(left)
        if await asyncio.to_thread(self._has_processes, grant.pod_uid):
            log.warning("pod is gone and still runs: its share is kept", **_keys(grant))
            return _CHECK_AGAIN
        if await asyncio.to_thread(self._claim_in_use, grant.claim):
            log.warning("another pod uses the claim: the share is kept", **_keys(grant))
            return _CHECK_AGAIN
        log.warning("grant dropped: its pod is gone and the kubelet forgot it", **_keys(grant))
        self._releaser.detach(grant.claim)
        await self._releaser.release(grant.pod_uid)
        self._pod_gone.forget(grant.claim)
        return None

    def _queue_vgpus(self) -> None:
        for name in self._names():
            self.vgpus.queue.add(name)

    def _names(self) -> list[str]:
        return [vgpu.metadata.name for vgpu in self._view.all_vgpus()]

    def _vgpus_of_pod(self, pod: NodePod) -> Iterable[str]:
        vgpu = pod.metadata.labels.get(LABEL_VGPU)
        if vgpu is not None and pod.metadata.namespace == NAMESPACE:
            yield vgpu
        for held, _ in self._view.held_by(pod.metadata.uid):
            yield held.metadata.name

    def _claims_of_vgpu(self, vgpu: VGPU) -> Iterable[str]:
        for holder in vgpu.status.holders:
            yield from self._grants.of_pod(holder.pod_uid)

    def _claims_of_pod(self, pod: NodePod) -> Iterable[str]:
        return self._grants.of_pod(pod.metadata.uid)


def _lacks_holder(share: GrantedShare, held: _Held) -> bool:
    """Whether a share has no holder, not even on a vGPU without a UUID."""
    return held.isdisjoint({(share.uuid, share.share), ("", share.share)})


def _gone_or_ended(change: Change[NodePod]) -> bool:
    return change.type == DELETED or change.object.ended


def _unheld_note(shares: Iterable[str]) -> str:
    named = ", ".join(sorted(set(filter(None, shares))))
    share = f"share {named} of this pod" if named else "this pod"
    return (
        f"a vGPU of this node has no holder for {share} any more, so it may not use the GPU: "
        "delete the pod, or its SharePod, and create it again"
    )


def _keys(grant: PodGrant) -> dict[str, str]:
    return {"pod": f"{grant.pod_namespace}/{grant.pod_name}", "claim_uid": grant.claim}

"""Creates placeholder pods, which keep GPUs from native pods.

kube-scheduler binds a placeholder like any pod that asks for ``nvidia.com/gpu``, so it never races
a native pod for the last GPU; only the node is given. Where NVIDIA's DRA driver offers the GPUs,
the policy has selected one, and the placeholder has a claim for that GPU instead
(:mod:`.claims`). A placeholder does nothing. While the
vGPU's physical GPU is not known yet, a failed placeholder is created again, a bounded number of
times. Afterwards another placeholder might get another GPU, so a lost one is handled elsewhere
(:mod:`..vgpu.health`, :mod:`.recovery`).

The placeholder's controller is its namespace. ``kubectl drain`` refuses to evict pods without a
controller, unless with a flag that applies to all pods; and any other owner could be deleted, and
the placeholder and the GPU of running pods with it.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from kubeshare.api.affinity_terms import require_node
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.types.constants import (
    ANNOTATION_SAFE_TO_EVICT,
    CONDITION_SHAREABLE,
    LABEL_IN_USE,
    LABEL_ROLE,
    LABEL_VGPU,
    MANAGER_DEVICES,
    NAMESPACE,
    PLACEHOLDER_PRIORITY_CLASS,
    ROLE_PLACEHOLDER,
    WHOLE_GPU_RESOURCE,
    placeholder_name,
)
from kubeshare.api.types.core_v1 import PODS, Pod
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import VGPU
from kubeshare.device_manager.events import Events
from kubeshare.device_manager.metrics import Metrics
from kubeshare.device_manager.placeholder.claims import Claims, use
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import AlreadyExistsError, NotFoundError
from kubeshare.kube.conditions import find_condition
from kubeshare.kube.controller.controller import RequeueAfter
from kubeshare.kube.controller.pending import NotBefore
from kubeshare.kube.meta import Key
from kubeshare.kube.resources import NAMESPACES

MAX_FAILURES: Final = 5
"""How many placeholders of one vGPU may fail before no other is created."""
FIRST_BACKOFF_SECONDS: Final = 1.0
"""Seconds between the first two placeholders; doubles with each."""

UNWATCHED_CLAIM_SECONDS: Final = 10.0
"""Seconds between checks of a placeholder whose claim the watch does not have."""

SLEEP: Final = ["sh", "-c", "trap 'exit 0' TERM; sleep infinity & wait"]
"""Process 1 ignores SIGTERM unless it handles the signal."""


class Placeholders:
    """Creates placeholders, and replaces those that fail before they get a GPU.

    Args:
        client: creates and deletes the pods.
        cluster_state: the pods.
        image: the image of the pods; it needs ``sh`` and ``sleep``.
        events: records failed placeholders.
        metrics: counts created placeholders.
        claims: the claims of those whose GPU is selected.
    """

    def __init__(  # noqa: PLR0913 - its services
        self,
        client: Client,
        cluster_state: ClusterState,
        image: str,
        events: Events,
        metrics: Metrics,
        *,
        claims: Claims,
    ) -> None:
        self._client = client
        self._cluster_state = cluster_state
        self._image = image
        self._events = events
        self._metrics = metrics
        self._claims = claims
        self._failures: Counter[str] = Counter()  # by the uid of the vGPU
        self._retries: NotBefore[str] = NotBefore()  # by the uid of the vGPU
        self._namespace = ""  # its uid, once it is known

    def of(self, name: str) -> Pod | None:
        """The placeholder of the vGPU of this name in the cache."""
        return self._cluster_state.pod(Key(NAMESPACE, placeholder_name(name)))

    async def refresh(self, name: str) -> Pod | None:
        """Read the placeholder of the vGPU of this name from the API server; None if it is gone."""
        try:
            live = await self._client.get(PODS, placeholder_name(name), NAMESPACE)
        except NotFoundError:
            if known := self.of(name):
                self._cluster_state.forget_pod(known)
            return None
        return live

    async def reconcile(self, vgpu: VGPU) -> RequeueAfter | None:
        """Create the placeholder of a vGPU, or replace a failed one."""
        pod = self.of(vgpu.metadata.name)
        if pod is not None and not pod.terminal:
            return None
        if vgpu.spec.uuid:
            return None  # PlaceholderRecovery checks that a new one gets the same GPU
        if pod is None and is_misplaced(vgpu):
            return None  # GpuSelector creates it when it gets a GPU of the right model
        return await self.ensure(vgpu)

    async def ensure(self, vgpu: VGPU, *, by_claim: bool | None = None) -> RequeueAfter | None:
        """Create the placeholder of a vGPU unless it has one that has not failed.

        Args:
            vgpu: the vGPU.
            by_claim: whether it gets its GPU by a claim; by default if its GPU was selected.
        """
        pod = self.of(vgpu.metadata.name)
        if pod is None:
            return await self.create(vgpu, by_claim=by_claim)
        return await self._replace(vgpu, pod) if pod.terminal else None

    async def remove(self, pod: Pod) -> bool:
        """Delete a placeholder; returns whether it has gone already.

        kube-scheduler counts its GPU as free once the pod has ended.
        """
        try:
            # Not with grace 0: the GPU is not free before the kubelet has stopped the pod.
            await self._client.delete(
                PODS, pod.metadata.name, NAMESPACE, uid=pod.metadata.uid, grace=1
            )
        except NotFoundError:
            # A watch that was disconnected reports no deletion of a pod that came and went.
            self._cluster_state.forget_pod(pod)
            return True
        return False

    async def remove_without_claim(self, vgpu: VGPU) -> RequeueAfter | None:
        """Delete a placeholder whose claim is lost: it keeps its GPU from no other pod."""
        pod = self.of(vgpu.metadata.name)
        if pod is None or pod.metadata.deletion_timestamp is not None or pod.terminal:
            return None
        if not pod.spec.resource_claims or self._claims.is_watched(vgpu):
            return None
        gone = await self._claims.is_lost(vgpu) and await self.remove(pod)
        # A claim or a pod that comes and goes while its watch is disconnected triggers nothing.
        return RequeueAfter(0.0 if gone else UNWATCHED_CLAIM_SECONDS)

    def given_up(self, vgpu: VGPU) -> bool:
        """Whether so many placeholders have failed that no other is created."""
        return self._failures[vgpu.metadata.uid] >= MAX_FAILURES

    def forget(self, vgpu: VGPU) -> None:
        """Drop what is known about a vGPU that is gone."""
        self._failures.pop(vgpu.metadata.uid, None)
        self._retries.forget(vgpu.metadata.uid)

    async def create(self, vgpu: VGPU, *, by_claim: bool | None = None) -> RequeueAfter | None:
        """Create a placeholder; returns when to retry where it is too soon after a failed one."""
        if left := self._retries.remaining(vgpu.metadata.uid):
            return RequeueAfter(left)
        claimed = bool(vgpu.spec.selected_uuid) if by_claim is None else by_claim
        pod = manifest(vgpu, self._image, await self._namespace_uid(), by_claim=claimed)
        try:
            if claimed:
                await self._claims.create(vgpu)
            created = await self._client.create(PODS, pod, field_manager=MANAGER_DEVICES)
        except AlreadyExistsError:
            return None
        self._cluster_state.assume_pod(created)
        self._metrics.placeholders.inc()
        return None

    async def _namespace_uid(self) -> str:
        if not self._namespace:
            found = await self._client.get(NAMESPACES, NAMESPACE)
            self._namespace = str(found["metadata"]["uid"])
        return self._namespace

    async def _replace(self, vgpu: VGPU, failed: Pod) -> RequeueAfter | None:
        uid = vgpu.metadata.uid
        if self._failures[uid] >= MAX_FAILURES:
            return None
        again = self._failures[uid] + 1 < MAX_FAILURES
        if again:
            await self.remove(failed)
        # Counted after the deletion, so that an unreachable API server uses up no attempts.
        self._failures[uid] += 1
        self._events.placeholder_failed(vgpu, failed.status.message, again=again)
        if not again:
            return None
        backoff = FIRST_BACKOFF_SECONDS * 2.0 ** (self._failures[uid] - 1)
        self._retries.delay(uid, backoff)
        return RequeueAfter(backoff)


def is_misplaced(vgpu: VGPU) -> bool:
    """Whether the placeholder of a vGPU got a GPU of another model, and a right one is sought."""
    shareable = find_condition(vgpu.status.conditions, CONDITION_SHAREABLE)
    return not vgpu.spec.uuid and shareable is not None and shareable.reason == Reason.OTHER_MODEL


def in_use_metadata(*, in_use: bool) -> dict[str, dict[str, str]]:
    """The label that a PodDisruptionBudget selects, and the annotation for autoscalers.

    ``in_use`` says whether the vGPU of the placeholder has holders.
    """
    return {
        "labels": {LABEL_IN_USE: "true" if in_use else "false"},
        "annotations": {ANNOTATION_SAFE_TO_EVICT: "false" if in_use else "true"},
    }


def manifest(vgpu: VGPU, image: str, namespace: str, *, by_claim: bool = False) -> dict[str, Any]:
    """The placeholder pod of a vGPU.

    Args:
        vgpu: the vGPU.
        image: an image with ``sh`` and ``sleep``.
        namespace: the uid of the placeholders' namespace.
        by_claim: whether it has a claim for the GPU of the vGPU.
    """
    name = vgpu.metadata.name
    # A vGPU that is created on demand is about to get a holder.
    metadata = in_use_metadata(in_use=bool(vgpu.status.holders) or vgpu.spec.pool == "onDemand")
    pod = idle_pod(
        placeholder_name(name),
        {LABEL_ROLE: ROLE_PLACEHOLDER, LABEL_VGPU: name, **metadata["labels"]},
        PLACEHOLDER_PRIORITY_CLASS,
        image,
    )
    pod["metadata"]["annotations"] = metadata["annotations"]
    owner = {"apiVersion": "v1", "kind": "Namespace", "name": NAMESPACE, "uid": namespace}
    pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    if by_claim:
        use(pod, vgpu)
    pod["spec"]["affinity"] = require_node({}, vgpu.spec.node_name)
    tolerate_all(pod)
    return pod


def tolerate_all(pod: dict[str, Any]) -> None:
    """Let a pod be bound to a node with any taint, also to one that is cordoned."""
    # Nodes with GPUs are often tainted for pods that do not ask for one.
    pod["spec"]["tolerations"] = [{"operator": "Exists", "effect": "NoSchedule"}]


def idle_pod(name: str, labels: Mapping[str, str], priority: str, image: str) -> dict[str, Any]:
    """A pod that asks for a whole GPU and does nothing.

    Args:
        name: the pod's name.
        labels: labels beside ``app.kubernetes.io/part-of``.
        priority: the name of its PriorityClass.
        image: an image with ``sh`` and ``sleep``.
    """
    # Requests equal limits: QoS class Guaranteed, which is evicted last.
    needs = {WHOLE_GPU_RESOURCE: "1", "cpu": "10m", "memory": "16Mi"}
    return {
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {"app.kubernetes.io/part-of": "kubeshare", **labels},
        },
        "spec": {
            "priorityClassName": priority,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "restartPolicy": "Always",
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "runAsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "placeholder",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": SLEEP,
                    "resources": {"requests": needs, "limits": needs},
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
        },
    }

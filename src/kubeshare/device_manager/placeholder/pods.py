"""The placeholder: a pod that keeps a vGPU's physical GPU from everybody else.

kube-scheduler binds it like any pod that asks for ``nvidia.com/gpu``, so it can
never race a native pod for the last one; it is only told the node. It does nothing
but exist. While the vGPU's GPU is not known yet, a placeholder that fails is made
again, a bounded number of times; afterwards another one could be given another GPU, so
the loss of a placeholder is another matter then (``degraded``, ``regain``).

Its controller is the namespace that it is in. ``kubectl drain`` refuses to begin where a pod
has no controller, and asks for a flag that gives up other people's pods too; and whatever
else owned it could be deleted by somebody, and the GPU of running pods with it.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from kubeshare.api.affinity_terms import require_node
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.types.constants import (
    ANNOTATION_SAFE_TO_EVICT,
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
from kubeshare.api.types.v1 import VGPU
from kubeshare.device_manager.events import Events
from kubeshare.device_manager.metrics import Metrics
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import AlreadyExistsError, NotFoundError
from kubeshare.kube.controller.controller import RequeueAfter
from kubeshare.kube.meta import Key
from kubeshare.kube.resources import NAMESPACES

MAX_FAILURES: Final = 5
"""How many placeholders of one vGPU may fail before it is given up."""
FIRST_BACKOFF_SECONDS: Final = 1.0
"""Seconds until the second one; doubles with each."""

SLEEP: Final = ["sh", "-c", "trap 'exit 0' TERM; sleep infinity & wait"]
"""Process 1 ends on SIGTERM only if it says so itself."""


class Placeholders:
    """Makes placeholders, and replaces those that fail before they got a GPU.

    Args:
        client: where to make them.
        cluster_state: knows the pods.
        image: any that has ``sh`` and ``sleep``.
        events: tells people.
        metrics: counts.
    """

    def __init__(
        self,
        client: Client,
        cluster_state: ClusterState,
        image: str,
        events: Events,
        metrics: Metrics,
    ) -> None:
        self._client = client
        self._cluster_state = cluster_state
        self._image = image
        self._events = events
        self._metrics = metrics
        self._failures: Counter[str] = Counter()  # uid of a vGPU -> placeholders that failed
        self._not_before: dict[str, float] = {}  # uid of a vGPU -> when the next may be made
        self._namespace = ""  # its uid, once it is known

    def of(self, gpuid: str) -> Pod | None:
        """The placeholder of a vGPU, as last seen."""
        return self._cluster_state.pod(Key(NAMESPACE, placeholder_name(gpuid)))

    async def reconcile(self, vgpu: VGPU) -> RequeueAfter | None:
        """Have a placeholder for a vGPU that is there to stay."""
        pod = self.of(vgpu.metadata.name)
        if pod is not None and not pod.terminal:
            return None
        if vgpu.spec.uuid:
            return None  # another one may be given another GPU: that is for `regain`
        if pod is not None:
            return await self._replace(vgpu, pod)
        return await self.create(vgpu)

    async def remove(self, pod: Pod) -> bool:
        """Delete a placeholder; kube-scheduler counts its GPU as free once it has ended.

        Returns:
            Whether it is gone already.
        """
        try:
            # Not at once: until the kubelet has ended it, the GPU is not free for others.
            await self._client.delete(
                PODS, pod.metadata.name, NAMESPACE, uid=pod.metadata.uid, grace=1
            )
        except NotFoundError:
            # It may have come and gone while the watch was broken, which then tells nothing.
            self._cluster_state.forget_pod(pod)
            return True
        return False

    def given_up(self, vgpu: VGPU) -> bool:
        """Its placeholders have failed so often that no other one is made."""
        return self._failures[vgpu.metadata.uid] >= MAX_FAILURES

    def forget(self, vgpu: VGPU) -> None:
        """The vGPU is gone."""
        self._failures.pop(vgpu.metadata.uid, None)
        self._not_before.pop(vgpu.metadata.uid, None)

    async def create(self, vgpu: VGPU) -> RequeueAfter | None:
        """Make one; returns when to try again where it is too soon after the last."""
        wait = self._not_before.get(vgpu.metadata.uid, 0.0) - asyncio.get_running_loop().time()
        if wait > 0:
            return RequeueAfter(wait)
        try:
            made = await self._client.create(
                PODS,
                manifest(vgpu, self._image, await self._namespace_uid()),
                field_manager=MANAGER_DEVICES,
            )
        except AlreadyExistsError:
            return None
        self._cluster_state.assume_pod(made)
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
        # Counted when it is done, and not each time that the API server was away.
        self._failures[uid] += 1
        self._events.placeholder_failed(vgpu, failed.status.message, again=again)
        if not again:
            return None
        pause = FIRST_BACKOFF_SECONDS * 2.0 ** (self._failures[uid] - 1)
        self._not_before[uid] = asyncio.get_running_loop().time() + pause
        return RequeueAfter(pause)


def guarded(in_use: bool) -> dict[str, dict[str, str]]:  # noqa: FBT001 - what it is about
    """The label by which a PodDisruptionBudget keeps a placeholder, and what autoscalers read.

    Args:
        in_use: whether somebody shares its GPU.
    """
    return {
        "labels": {LABEL_IN_USE: "true" if in_use else "false"},
        "annotations": {ANNOTATION_SAFE_TO_EVICT: "false" if in_use else "true"},
    }


def manifest(vgpu: VGPU, image: str, namespace: str) -> dict[str, Any]:
    """The placeholder pod of a vGPU.

    Args:
        vgpu: for whose GPU.
        image: any that has ``sh`` and ``sleep``.
        namespace: the uid of the namespace of placeholders.
    """
    gpuid = vgpu.metadata.name
    # One that is made on demand is about to be shared.
    said = guarded(bool(vgpu.status.holders) or vgpu.spec.pool == "onDemand")
    pod = idle_pod(
        placeholder_name(gpuid),
        {LABEL_ROLE: ROLE_PLACEHOLDER, LABEL_VGPU: gpuid, **said["labels"]},
        PLACEHOLDER_PRIORITY_CLASS,
        image,
    )
    pod["metadata"]["annotations"] = said["annotations"]
    owner = {"apiVersion": "v1", "kind": "Namespace", "name": NAMESPACE, "uid": namespace}
    pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    pod["spec"]["affinity"] = require_node({}, vgpu.spec.node_name)
    # Nodes with GPUs are often tainted so that only pods which ask for one come.
    pod["spec"]["tolerations"] = [{"operator": "Exists", "effect": "NoSchedule"}]
    return pod


def idle_pod(name: str, labels: Mapping[str, str], priority: str, image: str) -> dict[str, Any]:
    """A pod of KubeShare's own that asks for a whole GPU and does nothing.

    Args:
        name: its name.
        labels: what it is.
        priority: the name of its PriorityClass.
        image: any that has ``sh`` and ``sleep``.
    """
    # Requests equal limits in all: Guaranteed, so that it is the last to be evicted.
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

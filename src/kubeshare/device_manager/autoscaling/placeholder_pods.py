"""Creates pods that make a cluster autoscaler add nodes with GPUs.

An autoscaler adds nodes for pods that cannot be scheduled. A pending SharePod has no pod yet, and
a plain pod is behind its gate. So for each of them that a new node would help, up to the
configured number, this creates pods that ask for a GPU on any node to which it could go. These
pods have no priority, preempt nothing and do nothing. They are deleted as soon as the requester
is scheduled or no longer pending, or one of them is bound to a node whose GPUs are known; then
Sched does the rest.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from kubeshare.api.affinity_terms import forbid_nodes
from kubeshare.api.types.constants import (
    ANNOTATION_SAFE_TO_EVICT,
    LABEL_REQUESTER_UID,
    LABEL_ROLE,
    MANAGER_DEVICES,
    MISSING_PREFIX,
    MISSING_PRIORITY_CLASS,
    NAMESPACE,
    ROLE_MISSING,
)
from kubeshare.api.types.core_v1 import PODS, Pod
from kubeshare.core.diagnosis.scale_up import gpus_needed
from kubeshare.device_manager.autoscaling.unmet_demand import PendingRequester, UnmetDemand
from kubeshare.device_manager.context import Context
from kubeshare.device_manager.placeholder.pods import idle_pod
from kubeshare.kube.client.errors import AlreadyExistsError, NotFoundError
from kubeshare.kube.controller.controller import Controller, RequeueAfter
from kubeshare.kube.controller.pending import PendingSince
from kubeshare.kube.controller.resync import add_resync
from kubeshare.kube.controller.runtime import Program
from kubeshare.kube.meta import Key

PENDING_SECONDS: Final = 5.0
"""Seconds that a requester must be pending before its pods are created, and created again."""

MAX_EXCLUDED_NODES: Final = 64
"""Nodes with free GPUs that the affinity of a pod excludes."""

_ROLE: Final = "shows that a GPU is missing"
"""The index of these pods."""
_NODE_SELECTION: Final = ("nodeSelector", "tolerations", "affinity")

_ALL: Final = (Key("", "all"),)
"""The only key: the pods of the whole cluster are computed at once."""


class AutoscalerPods:
    """Creates and deletes the pods that show unmet demand to a cluster autoscaler.

    Args:
        context: the state and the services that it uses.
        image: the image of these pods; it needs ``sh`` and ``sleep``.
    """

    def __init__(self, context: Context, image: str) -> None:
        informers = context.informers
        self._informers = informers
        self._client = context.client
        self._pods = informers.pods.store
        self._pods.add_index(_ROLE, lambda pod: [_ROLE] if is_autoscaler_pod(pod) else [])
        self._cluster_state = context.cluster_state
        self._unmet_demand = UnmetDemand(context)
        self._configuration = context.configuration
        self._image = image
        self._events = context.events
        self._pending: PendingSince[str] = PendingSince()  # uids of demands

    def register(self, program: Program) -> None:
        """Run this controller in a program, with the watches that trigger it."""
        informers = self._informers
        controller: Controller[Key] = Controller("missing", self.reconcile)
        controller.watch(informers.sharepods, lambda _: _ALL, when=self._is_needed)
        controller.watch(
            informers.pods,
            lambda pod: _ALL if pod.whole_gpus or pod.gated else (),
            when=self._is_needed,
        )
        controller.watch(informers.gpunodes, lambda _: _ALL, when=self._is_needed)
        controller.watch(informers.configmaps, lambda _: _ALL)
        program.add_controller(controller)
        add_resync(program, controller, lambda: _ALL)

    def _is_needed(self, _: object) -> bool:
        """It is configured, or pods of a former configuration exist."""
        return self._max_pods > 0 or bool(self._pods.keys_by_index(_ROLE, _ROLE))

    async def reconcile(self, _: Key) -> RequeueAfter | None:
        """Create the pods that are wanted, and delete all others."""
        pending = await self._unmet_demand.pending() if self._max_pods else []
        self._pending.retain(requester.demand.uid for requester in pending)
        wanted = self._wanted([requester for requester in pending if not self._left(requester)])
        await self._delete_unwanted(wanted.keys())
        for name, requester in wanted.items():
            await self._create(name, requester)
        waits = [left for requester in pending if (left := self._left(requester))]
        return RequeueAfter(min(waits)) if waits else None

    def _left(self, requester: PendingRequester) -> float:
        """Seconds until the pods of a requester may be created."""
        return self._pending.remaining(requester.demand.uid, PENDING_SECONDS)

    def _wanted(self, pending: Sequence[PendingRequester]) -> dict[str, PendingRequester]:
        """The names of the wanted pods -> the requester of each."""
        wanted: dict[str, PendingRequester] = {}
        for requester in self._unmet_demand.helped(pending) if pending else ():
            uid, count = requester.demand.uid, gpus_needed(requester.demand)
            if len(wanted) + count <= self._max_pods:
                names = [f"{MISSING_PREFIX}{uid}-{number}" for number in range(count)]
                wanted |= dict.fromkeys(names, requester)
            if len(wanted) == self._max_pods:
                break
        return wanted

    @property
    def _max_pods(self) -> int:
        return self._configuration.now().autoscaler.placeholders

    def _existing(self) -> tuple[Pod, ...]:
        return self._pods.by_index(_ROLE, _ROLE)

    async def _delete_unwanted(self, wanted: Iterable[str]) -> None:
        keep = set(wanted)
        for pod in self._existing():
            node = self._cluster_state.ledger().nodes.get(pod.spec.node_name)
            bound_to_gpus = node is not None and node.total > 0
            if pod.metadata.deletion_timestamp or (pod.metadata.name in keep and not bound_to_gpus):
                continue
            uid = pod.metadata.labels.get(LABEL_REQUESTER_UID, "")
            self._pending.restart(uid)
            try:
                await self._client.delete(
                    PODS, pod.metadata.name, NAMESPACE, uid=pod.metadata.uid, grace=1
                )
            except NotFoundError:
                continue

    async def _create(self, name: str, requester: PendingRequester) -> None:
        if any(pod.metadata.name == name for pod in self._existing()):
            return
        nodes = self._cluster_state.ledger().nodes.values()
        free = sorted(node.name for node in nodes if node.free)[:MAX_EXCLUDED_NODES]
        pod = manifest(name, requester, self._image, free)
        try:
            await self._client.create(PODS, pod, field_manager=MANAGER_DEVICES)
        except AlreadyExistsError:
            return
        self._events.gpu_missing(requester.reference, name)


def manifest(
    name: str, requester: PendingRequester, image: str, free: Sequence[str]
) -> dict[str, Any]:
    """A pod that asks for a GPU on any node to which a requester could go.

    Args:
        name: the pod's name.
        requester: whose node selection the pod gets.
        image: an image with ``sh`` and ``sleep``.
        free: nodes with free GPUs that do not help the requester; the pod avoids them.
    """
    labels = {LABEL_ROLE: ROLE_MISSING, LABEL_REQUESTER_UID: requester.demand.uid}
    pod = idle_pod(name, labels, MISSING_PRIORITY_CLASS, image)
    pod["metadata"]["annotations"] = {ANNOTATION_SAFE_TO_EVICT: "true"}
    spec = requester.spec
    selection = {field: spec[field] for field in _NODE_SELECTION if spec.get(field)}
    if free:
        selection["affinity"] = forbid_nodes(selection.get("affinity") or {}, free)
    return pod | {"spec": pod["spec"] | selection}


def is_autoscaler_pod(pod: Pod) -> bool:
    """Whether a pod is one of these."""
    return pod.is_managed and pod.metadata.labels[LABEL_ROLE] == ROLE_MISSING

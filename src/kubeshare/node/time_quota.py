"""Decides how long a pod holds a GPU while others wait.

The configuration says it for all nodes, a label for one. A pod may choose by an annotation, only
within the bounds that an administrator has set: with a longer quota its neighbours wait longer, and
with a shorter one the GPU changes hands more often, which costs all of them
(docs/designs/069-a-pod-chooses-its-time-quota-within-bounds.md).
"""

import re
from typing import Final

import msgspec
import structlog

from kubeshare.api.configuration import Configuration, DynamicConfiguration, Milliseconds
from kubeshare.api.types.constants import LABEL_TIME_QUOTA
from kubeshare.api.types.core_v1 import NODES, PODS, Node
from kubeshare.core.token.arbiter import QUOTA_NS
from kubeshare.dialects.share_fields import POD_PREFIX
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import DELETED, Change
from kubeshare.kube.controller.controller import Controller, RequeueAfter
from kubeshare.kube.controller.events import WARNING, EventRecorder, reference
from kubeshare.node.dra.grants import Grants
from kubeshare.node.node_view import NodePod

ANNOTATION: Final = POD_PREFIX + "timeQuotaMilliseconds"

RETRY_SECONDS: Final = 60.0
"""When a grant is written again that could not be: the run folder may be full."""

_NUMBER: Final = re.compile(r"[1-9][0-9]{0,4}")
_NS_PER_MS: Final = 1_000_000

log = structlog.get_logger(__name__)


class TimeQuotas:
    """The time quotas of one node's pods.

    Args:
        pods: watches this node's pods.
        grants: the grants on disk.
        events: reports a label or an annotation that is not in force.

    Attributes:
        controller: tries the pods (uids) again whose grants could not be written.
    """

    def __init__(self, pods: Reflector[NodePod], grants: Grants, events: EventRecorder) -> None:
        self._pods = pods
        self._grants = grants
        self._events = events
        self._configuration = Configuration()
        self._label = ""
        self._of_node: int | None = None
        self._reported: dict[str, str] = {}
        self.controller: Controller[str] = Controller("time-quotas", self.reconcile)

    async def reconcile(self, uid: str) -> RequeueAfter | None:
        """Give the grants of a pod its quota, unless the pod has gone."""
        if self._pods.store.by_uid(uid) is None or self._apply(uid):
            return None
        return RequeueAfter(RETRY_SECONDS)

    def follow(self, nodes: Reflector[Node], configuration: DynamicConfiguration) -> None:
        """Keep the grants at what label and configuration say.

        Both must have been read: grants that were written before keep their quotas until then.

        Args:
            nodes: watches this node's Node.
            configuration: the one in force.
        """

        def configured() -> None:
            self._configuration = configuration.now()
            self._apply_to_all()

        for node in nodes.store.snapshot().values():
            self._read_label(node)
        configured()
        configuration.subscribe(configured)
        nodes.subscribe(self._node_changed)
        self._pods.subscribe(self._pod_changed)

    def of_pod(self, uid: str) -> int | None:
        """The quota of a pod in nanoseconds; None for the token daemon's own."""
        pod = self._pods.store.by_uid(uid)
        quota = self._of_this_node() if pod is None else self._of(pod)
        return None if quota * _NS_PER_MS == QUOTA_NS else quota * _NS_PER_MS

    def _of_this_node(self) -> int:
        return self._of_node or self._configuration.time_quota.milliseconds

    def _of(self, pod: NodePod) -> int:
        usual, text = self._of_this_node(), pod.metadata.annotations.get(ANNOTATION, "")
        if not text:
            return usual
        bounds = self._configuration.time_quota.pods
        if bounds is None:
            self._report(
                pod, f"{usual} is in force: timeQuota.pods of the configuration is not set"
            )
            return usual
        asked = _parse(text)
        if asked is None:
            self._report(pod, f"{usual} is in force: it is no number from 5 to 10000")
            return usual
        given = min(max(asked, bounds.minimum), bounds.maximum)
        if given != asked:
            words = f"the configuration allows {bounds.minimum} to {bounds.maximum}"
            self._report(pod, f"{given} is in force: {words}")
        return given

    def _report(self, pod: NodePod, why: str) -> None:
        note = (
            f"the annotation {ANNOTATION} says {pod.metadata.annotations[ANNOTATION]!r}, and {why}"
        )
        if self._grants.of_pod(pod.metadata.uid) and self._reported.get(pod.metadata.uid) != note:
            self._reported[pod.metadata.uid] = note
            about = reference(PODS, pod)
            self._events.emit(about, "TimeQuotaLimited", "Preparing", note, type=WARNING)

    def _pod_changed(self, change: Change[NodePod]) -> None:
        uid = change.object.metadata.uid
        if change.type == DELETED:
            self._reported.pop(uid, None)
        else:
            self._apply_or_retry(uid)

    def _node_changed(self, change: Change[Node]) -> None:
        if self._read_label(change.object):
            self._apply_to_all()

    def _read_label(self, node: Node) -> bool:
        """Whether the label of this node has changed."""
        text = node.metadata.labels.get(LABEL_TIME_QUOTA, "")
        if text == self._label:
            return False
        self._label, self._of_node = text, _parse(text)
        if text and self._of_node is None:
            note = (
                f"its label {LABEL_TIME_QUOTA} says {text!r}, which is no number of milliseconds "
                "from 5 to 10000; that of the configuration is in force"
            )
            about = reference(NODES, node)
            self._events.emit(about, "InvalidLabel", "Reading", note, type=WARNING)
        return True

    def _apply_to_all(self) -> None:
        for uid in {grant.pod_uid for grant in self._grants.all()}:
            if self._pods.store.by_uid(uid) is not None:
                self._apply_or_retry(uid)

    def _apply_or_retry(self, uid: str) -> None:
        if not self._apply(uid):
            self.controller.queue.add_after(uid, RETRY_SECONDS)

    def _apply(self, uid: str) -> bool:
        """Whether all grants of a pod have its quota now."""
        failed = False
        for claim in self._grants.of_pod(uid):
            try:
                self._grants.set_quota(claim, self.of_pod(uid))
            except OSError as error:
                failed = True
                log.warning(
                    "a grant keeps its time quota, trying again",
                    claim=claim,
                    error=str(error),
                    after_seconds=RETRY_SECONDS,
                )
        return not failed


def _parse(text: str) -> int | None:
    """A quota in milliseconds; None if the text is no such number."""
    if not _NUMBER.fullmatch(text):
        return None
    try:
        return msgspec.convert(int(text), Milliseconds)
    except msgspec.ValidationError:
        return None

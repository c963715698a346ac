"""The scheduler changes pods that wait behind its gate, and says how those that share stand."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import yaml

from deploy.rights import every_right
from kubeshare.api import pod_state
from kubeshare.api.types.constants import ANNOTATION_GPUIDS, ANNOTATION_NODE
from kubeshare.api.types.v1 import VGPU, VGPUSpec
from kubeshare.kube.meta import ObjectMeta
from kubeshare.lab.control_plane.api_server import ApiServer
from kubeshare.lab.errors import LabError
from kubeshare.scheduler.requesters.pod import _decision

pytestmark = pytest.mark.apiserver

SCHEDULER = "system:serviceaccount:kubeshare-system:kubeshare-scheduler"
IMAGE = {"op": "add", "path": "/spec/containers/0/image", "value": "mine"}
LABEL = {"op": "add", "path": "/metadata/labels/other", "value": "x"}
CONDITION = {"type": "kubeshare.nthu/Scheduled", "status": "False"}
VGPU_1 = VGPU(metadata=ObjectMeta(name="vgpu-1"), spec=VGPUSpec(node_name="node-1"))
STATUS = {"op": "add", "path": "/status/conditions", "value": [CONDITION]}

Raw = dict[str, Any]


@pytest.fixture(autouse=True)
def may_do_everything(cluster: ApiServer) -> Iterator[None]:
    """Give it every right, so that what refuses it is the policy alone."""
    name = "scheduler-may-everything"
    with every_right(cluster, name, SCHEDULER):
        yield


class Pod:
    """A pod, and what the scheduler does to it."""

    def __init__(self, cluster: ApiServer, namespace: str, annotations: dict[str, str]) -> None:
        self._cluster, self._namespace = cluster, namespace
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"generateName": "p-", "annotations": annotations, "labels": {"a": "b"}},
            "spec": {"containers": [{"name": "main", "image": "x"}]},
        }
        arguments = ("create", "-n", namespace, "-f", "-", "-o", "json")
        self.raw: Raw = json.loads(cluster.kubectl(*arguments, stdin=yaml.safe_dump(pod)))

    def patch(self, *operations: Raw, status: bool = False) -> None:
        name = self.raw["metadata"]["name"]
        answer = self._cluster.kubectl(
            *("patch", "pod", name, "-n", self._namespace, f"--as={SCHEDULER}", "--type=json"),
            *(["--subresource=status"] if status else []),
            *("-o", "json", "-p", json.dumps(operations)),
        )
        self.raw = json.loads(answer)

    def bind(self) -> None:
        """Write its node, as the scheduler does."""
        seen = pod_state.view(self.raw)
        decided = {ANNOTATION_GPUIDS: VGPU_1.gpuid, ANNOTATION_NODE: VGPU_1.spec.node_name}
        annotations = seen.metadata.annotations | decided
        self.patch(*msgspec.to_builtins(_decision(self.raw, seen, [VGPU_1], annotations)))


def test_a_pod_that_waits_is_told_where_it_goes_once(cluster: ApiServer, namespace: str) -> None:
    pod = Pod(cluster, namespace, {"kubeshare.nthu/memory": "1Gi"})
    pod.patch(STATUS, status=True)
    with pytest.raises(LabError, match="never their containers"):
        pod.patch(IMAGE)
    pod.bind()
    pod.patch(STATUS, status=True)
    for change in (IMAGE, LABEL):
        with pytest.raises(LabError, match="only as long as they wait"):
            pod.patch(change)


def test_a_pod_that_does_not_share_is_left_alone(cluster: ApiServer, namespace: str) -> None:
    pod = Pod(cluster, namespace, {})
    with pytest.raises(LabError, match="and no other"):
        pod.patch(LABEL)
    with pytest.raises(LabError, match="and no other"):
        pod.patch(STATUS, status=True)

"""Pods with gpushare's resources get gate and resource, or are refused by name."""

import pytest

from deploy.pod_namespace import DEVICES, PUBLISHED, Namespace, gates, limited, sharing
from kubeshare.api.types.constants import GATE, LABEL_ROLE, ROLE_POD
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.apiserver

GPU_MEM = "aliyun.com/gpu-mem"


def test_the_containers_of_a_gpushare_pod_that_ask_for_memory_share(space: Namespace) -> None:
    containers = [limited("a", mem="2"), {"name": "b", "image": "x"}, limited("c", mem="0")]
    pod = space.create(containers=containers, initContainers=[limited("first", mem="1")])
    assert gates(pod) == [GATE]
    assert pod["metadata"]["labels"][LABEL_ROLE] == ROLE_POD
    assert (sharing(pod), sharing(pod, "initContainers")) == (["a"], ["first"])
    assert pod["spec"]["containers"][0]["resources"]["limits"][GPU_MEM] == "2"


def test_a_gpushare_pod_may_have_constraints_and_compute(space: Namespace) -> None:
    annotations = {"kubeshare.nthu/request": ".2", "kubeshare.nthu/affinity": "red"}
    labels = {"aliyun.com/gpu-count": "2"}
    pod = space.create(annotations, labels, containers=[limited("a", mem="2")])
    assert (gates(pod), sharing(pod)) == ([GATE], ["a"])


@pytest.mark.parametrize(
    ("limits", "annotations", "labels", "words"),
    [
        ({"mem": "0"}, {}, {}, "aliyun.com/gpu-mem asks for no GPU memory"),
        ({"mem": "-1"}, {}, {}, "must be greater than or equal to 0"),
        ({"mem": "500m"}, {}, {}, "must be an integer"),
        (
            {"mem": "2"},
            {"kubeshare.nthu/memory": "1Gi"},
            {},
            "kubeshare.nthu/memory: is given besi",
        ),
        ({"mem": "2"}, {"kubeshare.nthu/share.a": "request=.5"}, {}, "share.a: is given beside"),
        ({"mem": "2"}, PUBLISHED, {}, "kubeshare/gpu_request: is given beside aliyun.com/gpu-mem"),
        ({"mem": "2"}, {}, {"sharedgpu/gpu_limit": "0.5"}, "sharedgpu/gpu_limit: is given beside"),
        ({"mem": "2"}, {}, {"aliyun.com/gpu-count": "none"}, "must be a number of GPUs, not none"),
    ],
)
def test_a_bad_gpushare_pod_is_refused_by_name(
    space: Namespace,
    limits: dict[str, str],
    annotations: dict[str, str],
    labels: dict[str, str],
    words: str,
) -> None:
    with pytest.raises(LabError) as refused:
        space.create(annotations, labels, containers=[limited("a", **limits)])
    assert words in str(refused.value)


def test_a_gpushare_pod_that_was_there_before_can_be_written_to(space: Namespace) -> None:
    # The rules say nothing of pods that the device manager makes.
    pod = space.create(by=DEVICES, containers=[limited("a", mem="2")])
    assigned = {"ALIYUN_COM_GPU_MEM_ASSIGNED": "true"}
    written = {"op": "add", "path": "/metadata/annotations", "value": assigned}
    assert space.patch(pod, written)["metadata"]["annotations"] == assigned


def test_a_waiting_gpushare_pod_keeps_its_gate(space: Namespace) -> None:
    pod = space.create(containers=[limited("a", mem="2")])
    with pytest.raises(LabError, match="only KubeShare's scheduler removes"):
        space.patch(pod, {"op": "remove", "path": "/spec/schedulingGates/0"})


def test_a_gpushare_pod_that_names_a_node_is_refused(space: Namespace) -> None:
    with pytest.raises(LabError, match=r"spec\.nodeName"):
        space.create(containers=[limited("a", mem="2")], nodeName="n1")


def test_a_pod_that_asks_for_a_number_of_gpus_alone_gets_none(space: Namespace) -> None:
    pod = space.create(containers=[limited("a", count="2")])
    assert (gates(pod), sharing(pod)) == ([], [])

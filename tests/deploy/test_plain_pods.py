"""Pods that ask for a share get gate and resource; what is wrong with them is said by name."""

import json

import pytest
import yaml

from deploy.pod_namespace import (
    DEVICES,
    PUBLISHED,
    SCHEDULER,
    SHARE,
    Namespace,
    cores,
    gates,
    limited,
    sharing,
)
from kubeshare.api.types.constants import GATE, LABEL_ROLE, ROLE_POD, VGPU_RESOURCE
from kubeshare.dialects.containers import IMPLICIT_VGPU_RESOURCE
from kubeshare.lab.control_plane.api_server import ApiServer
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.apiserver


@pytest.mark.parametrize(
    ("annotations", "labels"),
    [
        (SHARE, {}),
        (SHARE | {"kubeshare.nthu/gang-near": "nodes"}, {}),
        ({"kubeshare.nthu/memory": "4Gi"}, {}),
        (PUBLISHED, {"app": "train"}),
        ({}, {"sharedgpu/gpu_limit": "0.5", "sharedgpu/gpu_request": "0.3"}),
    ],
)
def test_a_pod_that_asks_is_gated_and_its_containers_share(
    space: Namespace, annotations: dict[str, str], labels: dict[str, str]
) -> None:
    pod = space.create(annotations, labels)

    assert gates(pod) == [GATE]
    assert sharing(pod) == ["main"]
    assert pod["metadata"]["labels"] == labels | {LABEL_ROLE: ROLE_POD}


def test_the_scheduler_that_the_second_version_had_pods_name_is_the_clusters(
    space: Namespace,
) -> None:
    theirs = space.create({}, {"sharedgpu/gpu_limit": "1"}, schedulerName="kubeshare-scheduler")
    own = space.create(SHARE, schedulerName="volcano")

    assert theirs["spec"]["schedulerName"] == "default-scheduler"
    assert own["spec"]["schedulerName"] == "volcano"


def test_resources_gates_and_containers_of_its_own_are_kept(space: Namespace) -> None:
    containers = [
        {"name": "bare", "image": "x"},
        {"name": "full", "image": "x", "resources": {"limits": {"cpu": "1"}}},
        {"name": "asking", "image": "x", "resources": {"requests": {"cpu": "1"}}},
    ]
    first = [{"name": "init", "image": "x"}]
    pod = space.create(
        SHARE, containers=containers, initContainers=first, schedulingGates=[{"name": "my/gate"}]
    )

    assert gates(pod) == ["my/gate", GATE]
    assert sharing(pod) == ["bare", "full", "asking"]
    assert sharing(pod, "initContainers") == []
    assert pod["spec"]["containers"][1]["resources"]["limits"]["cpu"] == "1"
    assert pod["spec"]["containers"][2]["resources"]["requests"]["cpu"] == "1"


def test_an_annotation_says_which_containers_share(space: Namespace) -> None:
    containers = [{"name": name, "image": "x"} for name in ("a", "b", "c")]
    first = [{"name": "warm", "image": "x"}, {"name": "copy", "image": "x"}]
    pod = space.create(
        SHARE | {"kubeshare.nthu/containers": "a, c,warm"},
        containers=containers,
        initContainers=first,
    )

    assert sharing(pod) == ["a", "c"]
    assert sharing(pod, "initContainers") == ["warm"]


@pytest.mark.parametrize(
    ("first", "second", "users", "before"),
    [
        ("a+warm", "c", ["a", "c"], ["warm"]),
        ("a", "", ["a", "b", "c"], []),
        ("", "warm", ["a", "b", "c"], ["warm"]),
    ],
)
def test_each_of_several_shares_says_which_containers_share(
    space: Namespace, first: str, second: str, users: list[str], before: list[str]
) -> None:
    texts = [
        f"request=.5,containers={names}" if names else "request=.5" for names in (first, second)
    ]
    pod = space.create(
        {f"kubeshare.nthu/share.{at}": text for at, text in enumerate(texts)},
        containers=[{"name": name, "image": "x"} for name in ("a", "b", "c")],
        initContainers=[{"name": name, "image": "x"} for name in ("warm", "copy")],
    )

    assert sharing(pod) == users
    assert sharing(pod, "initContainers") == before


@pytest.mark.parametrize("by", [SCHEDULER, DEVICES])
def test_which_containers_use_which_share_stays_once_the_pod_has_them(
    space: Namespace, by: str
) -> None:
    key, text = "kubeshare.nthu/share.a", "request=.5,containers=main"
    if by == SCHEDULER:
        pod = space.create({key: text})
        # While it waits it may ask for something else.
        replaced = {
            "op": "replace",
            "path": "/metadata/annotations",
            "value": {key: f"{text},limit=1"},
        }
        space.patch(pod, replaced)
        space.patch(pod, {"op": "remove", "path": "/spec/schedulingGates"}, by=SCHEDULER)
    else:
        labels = {LABEL_ROLE: "sharepod", "kubeshare.nthu/sharepod-uid": "u"}
        asking = {"limits": {VGPU_RESOURCE: "1"}}
        containers = [{"name": "main", "image": "x", "resources": asking}]
        pod = space.create({key: text}, labels, by=DEVICES, containers=containers)
    note = {"op": "add", "path": "/metadata/annotations/note", "value": "mine"}
    space.patch(pod, note)
    for change in (
        {"op": "replace", "path": "/metadata/annotations", "value": {key: "request=.5"}},
        {"op": "add", "path": "/metadata/annotations/kubeshare.nthu~1share.b", "value": text},
        {"op": "remove", "path": "/metadata/annotations/kubeshare.nthu~1share.a"},
    ):
        with pytest.raises(LabError, match="which containers use which share"):
            space.patch(pod, change)


def test_containers_that_ask_themselves_are_those_that_share(space: Namespace) -> None:
    asking = {"limits": {VGPU_RESOURCE: "1"}}
    containers = [
        {"name": "a", "image": "x", "resources": asking},
        {"name": "b", "image": "x"},
    ]
    assert sharing(space.create(SHARE, containers=containers)) == ["a"]


def test_a_pod_that_asks_for_nothing_is_left_as_it_is(space: Namespace) -> None:
    plain = space.create({"note": "mine"}, {"app": "web"}, nodeName="n1")
    none = space.create({}, {"sharedgpu/gpu_limit": "0"})

    for pod in (plain, none):
        assert not gates(pod)
        assert not sharing(pod)
        assert LABEL_ROLE not in pod["metadata"]["labels"]


def test_a_pod_that_the_device_manager_makes_for_a_sharepod_is_left_as_it_is(
    space: Namespace,
) -> None:
    container = {"name": "main", "image": "x", "resources": {"limits": {VGPU_RESOURCE: "1"}}}
    pod = space.create(PUBLISHED, by=DEVICES, containers=[container])

    assert not gates(pod)
    assert sharing(pod) == ["main"]


@pytest.mark.parametrize(
    "annotations",
    [
        {"kubeshare.nthu/request": "2.5"},
        {
            "kubeshare.nthu/share.a": "request=.5, limit=1,memory=4Gi,containers=main",
            "kubeshare.nthu/share.b": "request=.25,count=2",
        },
    ],
    ids=str,
)
def test_a_pod_may_ask_for_different_shares(space: Namespace, annotations: dict[str, str]) -> None:
    assert gates(space.create(annotations))


@pytest.mark.parametrize(
    ("annotations", "labels", "words"),
    [
        (SHARE | {"kubeshare.nthu/request": "17"}, {}, r"kubeshare.nthu/request\]: must be a num"),
        (SHARE | {"kubeshare.nthu/request": "2"}, {}, r"request\]: more than one GPU is whole"),
        (SHARE | {"kubeshare.nthu/limitAlone": "2"}, {}, r"limitAlone\]: must be a number"),
        (SHARE | {"kubeshare.nthu/latencySensitive": "1"}, {}, r"itive\]: must be true or false"),
        (SHARE | {"kubeshare.nthu/share.a": "request=.5"}, {}, r"share.a\]: each share has its"),
        ({"kubeshare.nthu/share.a": "request=.5,containers=main+b"}, {}, "no container b, which a"),
        ({"kubeshare.nthu/share.A": "request=.5"}, {}, r"share.A\]: must be fields such as"),
        ({"kubeshare.nthu/share.a": "request"}, {}, r"share.a\]: must be fields such as"),
        ({"kubeshare.nthu/share.a": "size=1"}, {}, r"share.a\]: must be fields such as"),
        (SHARE | {"kubeshare.nthu/limit": "x"}, {}, r"kubeshare.nthu/limit\]: must be a number"),
        (SHARE | {"kubeshare.nthu/limit": "0.2"}, {}, r"request 0.3 is larger than the limit in"),
        (SHARE | {"kubeshare.nthu/memory": "-1"}, {}, r"kubeshare.nthu/memory\]: must be bytes"),
        (SHARE | {"kubeshare.nthu/count": "17"}, {}, r"kubeshare.nthu/count\]: must be a number"),
        (SHARE | {"kubeshare.nthu/id": "A\tB"}, {}, r"kubeshare.nthu/id\]: must be 1 to 63"),
        (SHARE | {"kubeshare.nthu/model": "m" * 254}, {}, r"kubeshare.nthu/model\]: is longer"),
        (SHARE | {"kubeshare.nthu/cpuCores": "0"}, {}, r"cpuCores\]: must be all, none or a num"),
        (SHARE | {"kubeshare.nthu/timeQuotaMilliseconds": "4"}, {}, r"must be a number from 5 to"),
        (SHARE | {"kubeshare.nthu/gang-near": "rack"}, {}, r"gang-near\]: must be switch, node or"),
        (SHARE | {"kubeshare.nthu/containers": "a"}, {}, "there is no container a"),
        (SHARE | PUBLISHED, {}, r"kubeshare.nthu/memory\] and .*kubeshare/gpu_mem\] differ"),
        ({"kubeshare/gpu_request": "0.3"}, {}, "kubeshare/gpu_limit, kubeshare/gpu_mem is missing"),
        ({}, {"sharedgpu/gpu_mem": "1"}, r"sharedgpu/gpu_limit\]: is missing"),
        ({}, {"sharedgpu/gpu_limit": "much"}, r"sharedgpu/gpu_limit\]: must be a number"),
    ],
)
def test_a_bad_value_is_refused_by_name(
    space: Namespace, annotations: dict[str, str], labels: dict[str, str], words: str
) -> None:
    with pytest.raises(LabError, match=words):
        space.create(annotations, labels)


def test_a_node_name_is_refused_with_what_to_do(space: Namespace) -> None:
    with pytest.raises(LabError, match=r"spec.nodeName: .*give spec.nodeSelector"):
        space.create(SHARE, nodeName="n1")


def test_neither_gate_nor_resource_is_taken_without_a_share(space: Namespace) -> None:
    container = {"name": "main", "image": "x", "resources": {"limits": {VGPU_RESOURCE: "1"}}}

    with pytest.raises(LabError, match="says how much it needs"):
        space.create(containers=[container])
    with pytest.raises(LabError, match="says how much it needs"):
        space.create(schedulingGates=[{"name": GATE}])


@pytest.mark.parametrize("amounts", ["limits", "requests"])
@pytest.mark.parametrize("annotations", [{}, SHARE], ids=["without a share", "with a share"])
def test_the_implicit_name_of_the_resource_is_refused(
    space: Namespace, amounts: str, annotations: dict[str, str]
) -> None:
    asking = {"name": "asks", "image": "x", "resources": {amounts: {IMPLICIT_VGPU_RESOURCE: "1"}}}
    plain = {"name": "main", "image": "x"}
    words = "ask for kubeshare.nthu/vgpu: 1 instead" if annotations else "says how much it needs"

    with pytest.raises(LabError, match=words):
        space.create(annotations, containers=[asking])
    with pytest.raises(LabError, match=words):
        space.create(annotations, containers=[plain], initContainers=[asking])


def test_the_containers_share_one_part_whatever_they_ask_for(space: Namespace) -> None:
    container = {"name": "main", "image": "x", "resources": {"limits": {VGPU_RESOURCE: "2"}}}
    with pytest.raises(LabError, match=r"kubeshare\.nthu/count"):
        space.create(SHARE, containers=[container])


def test_only_the_scheduler_removes_the_gate(space: Namespace) -> None:
    pod = space.create(SHARE)
    remove = {"op": "remove", "path": "/spec/schedulingGates/0"}

    with pytest.raises(LabError, match="only KubeShare's scheduler removes"):
        space.patch(pod, remove)
    assert not gates(space.patch(pod, remove, by=SCHEDULER))


def test_a_waiting_pod_keeps_its_label_and_its_share(space: Namespace) -> None:
    pod = space.create(SHARE)

    with pytest.raises(LabError, match=r"role is written by KubeShare alone"):
        space.patch(pod, {"op": "remove", "path": "/metadata/labels"})
    with pytest.raises(LabError, match="cannot be taken away"):
        space.patch(pod, {"op": "remove", "path": "/metadata/annotations"})


@pytest.mark.parametrize(
    ("annotations", "labels"),
    [
        ({}, {"sharedgpu/gpu_request": "0.5"}),
        (SHARE, {}),
        ({"kubeshare/gpu_mem": "1Gi"}, {}),
    ],
)
def test_a_pod_that_was_there_before_the_rules_can_be_written_to_and_loses_its_finalizers(
    space: Namespace, annotations: dict[str, str], labels: dict[str, str]
) -> None:
    # The rules say nothing of pods that the device manager makes.
    pod = space.create(annotations, labels, by=DEVICES)
    space.patch(pod, {"op": "remove", "path": "/metadata/ownerReferences"})
    kept = [{"op": "add", "path": "/metadata/finalizers", "value": ["batch.kubernetes.io/tracked"]}]
    lost = [{"op": "remove", "path": "/metadata/finalizers"}]

    assert space.patch(pod, *kept)["metadata"]["finalizers"]
    assert "finalizers" not in space.patch(pod, *lost)["metadata"]
    wrong = {
        "op": "add",
        "path": "/metadata/annotations",
        "value": {"kubeshare.nthu/limit": "x"},
    }
    with pytest.raises(LabError, match=r"kubeshare\.nthu/limit"):
        space.patch(pod, wrong)


def test_a_resource_quota_takes_parts_of_gpus_and_stops_no_pod_itself(
    cluster: ApiServer, space: Namespace
) -> None:
    hard = {"requests.kubeshare.nthu/gpu": "500m", "requests.kubeshare.nthu/gpu-memory": "2Gi"}
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpus"},
        "spec": {"hard": hard},
    }
    cluster.kubectl("create", "-n", space.name, "-f", "-", stdin=yaml.safe_dump(quota))
    kept = json.loads(cluster.kubectl("get", "quota", "gpus", "-n", space.name, "-o", "json"))

    assert kept["spec"]["hard"] == hard
    # Nobody counts here; a pod is let in only once the quota's status is there.
    status = json.dumps({"status": {"hard": hard, "used": dict.fromkeys(hard, "0")}})
    cluster.kubectl(
        *("patch", "quota", "gpus", "-n", space.name, "--subresource=status", "--type=merge"),
        *("-p", status),
    )
    assert gates(space.create(SHARE)) == [GATE]


def test_a_pod_asks_for_the_resource_of_one_family(space: Namespace) -> None:
    with pytest.raises(LabError, match="a pod asks for one of them"):
        space.create(containers=[limited("a", mem="2"), cores("b", "50", "4")])

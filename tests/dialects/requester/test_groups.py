"""Groups and services of requesters, through each manifest family."""

from typing import Any

import pytest

from kubeshare.core.errors import InvalidValueError
from kubeshare.dialects import pod, sharepod
from kubeshare.dialects.requester.groups import group_of, service_of

OWNER = {"kind": "ReplicaSet", "name": "web-5d4f9", "controller": True}


def metadata(**more: Any) -> dict[str, Any]:
    return {"name": "p", "namespace": "default", "uid": "u", **more}


def test_a_pod_of_a_deployment_is_the_deployments() -> None:
    labels = {"pod-template-hash": "5d4f9"}
    assert service_of(metadata(ownerReferences=[OWNER], labels=labels)) == "Deployment/web"


@pytest.mark.parametrize(
    ("owner", "service"),
    [
        (OWNER, "ReplicaSet/web-5d4f9"),
        ({"kind": "Job", "name": "train", "controller": True}, "Job/train"),
        ({"kind": "Job", "name": "train"}, ""),
        ({"kind": "Job", "name": "x" * 253, "controller": True}, ("Job/" + "x" * 253)[:253]),
        ({"controller": True}, ""),
    ],
)
def test_other_pods_are_their_controllers(owner: dict[str, Any], service: str) -> None:
    assert service_of(metadata(ownerReferences=[owner])) == service


def test_a_pod_without_a_controller_has_no_service() -> None:
    assert service_of(metadata()) == ""


@pytest.mark.parametrize("value", ["a/b", "x" * 254, 3])
def test_a_group_is_short_text_that_no_service_has(value: object) -> None:
    with pytest.raises(InvalidValueError) as error:
        group_of(metadata(annotations={"kubeshare.nthu/group": value}))
    assert error.value.field == "metadata.annotations[kubeshare.nthu/group]"


ASKING: dict[str, dict[str, Any]] = {
    "ours": {"annotations": {"kubeshare.nthu/request": "0.3", "kubeshare.nthu/memory": "1Gi"}},
    "second version": {"labels": {"sharedgpu/gpu_limit": "0.3", "sharedgpu/gpu_mem": "1000"}},
    "gpushare": {"limits": {"aliyun.com/gpu-mem": "2"}},
    "vcuda": {"limits": {"tencent.com/vcuda-core": "20", "tencent.com/vcuda-memory": "4"}},
}


@pytest.mark.parametrize("family", ASKING)
def test_demands_of_each_family_have_both(family: str) -> None:
    asking = dict(ASKING[family])
    limits = {"kubeshare.nthu/vgpu": "1"} | asking.pop("limits", {})
    found = metadata(ownerReferences=[OWNER], **asking)
    found["annotations"] = found.get("annotations", {}) | {"kubeshare.nthu/group": "g"}
    container = {"name": "c", "resources": {"limits": limits}}
    demand = pod.demand_of({"metadata": found, "spec": {"containers": [container]}})
    assert demand is not None
    assert (demand.group, demand.service) == ("g", "ReplicaSet/web-5d4f9")


def test_a_sharepods_demand_has_both() -> None:
    found = metadata(annotations={"kubeshare.nthu/group": "g"}, ownerReferences=[OWNER])
    spec = {"gpu": {"request": "0.3", "memory": "1Gi"}, "containers": [{"name": "c"}]}
    demand = sharepod.demand_of({"metadata": found, "spec": spec})
    assert demand is not None
    assert (demand.group, demand.service) == ("g", "ReplicaSet/web-5d4f9")

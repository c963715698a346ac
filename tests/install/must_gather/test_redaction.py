"""What users wrote into their pods is not in an archive; what KubeShare needs of them is."""

import json
from typing import Any

import pytest

from fakes.checks import WANTED
from kubeshare.dialects.containers import VGPU_RESOURCES
from kubeshare.install.must_gather.redaction import concerns_shares, has_share, redacted

SECRET = "hunter2"  # what must never come out

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "train",
        "namespace": "team",
        "uid": "1",
        "labels": {"app": "train"},
        "annotations": {
            "kubeshare.nthu/request": "0.3",
            "kubeshare/gpu_mem": "4Gi",
            "kubectl.kubernetes.io/last-applied-configuration": SECRET,
            "vault.example/token": SECRET,
        },
        "managedFields": [{"manager": SECRET}],
    },
    "spec": {
        "nodeName": "n1",
        "containers": [
            {
                "name": "main",
                "image": "registry.example/train:1",
                "command": ["train", f"--token={SECRET}"],
                "args": [SECRET],
                "env": [
                    {"name": "TOKEN", "value": SECRET},
                    {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": SECRET}}},
                ],
                "envFrom": [{"secretRef": {"name": SECRET}}],
                "resources": {"limits": {"kubeshare.nthu/vgpu": "1"}},
                "livenessProbe": {"exec": {"command": [SECRET]}},
                "lifecycle": {"preStop": {"exec": {"command": [SECRET]}}},
            }
        ],
        "initContainers": [{"name": "init", "args": [SECRET]}],
        "ephemeralContainers": [{"name": "debug", "args": [SECRET]}],
        "volumes": [{"name": "v", "csi": {"volumeAttributes": {"key": SECRET}}}],
        "imagePullSecrets": [{"name": SECRET}],
    },
    "status": {
        "phase": "Running",
        "message": SECRET,
        "containerStatuses": [
            {
                "name": "main",
                "restartCount": 2,
                "lastState": {"terminated": {"exitCode": 1, "message": SECRET}},
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": SECRET}},
            }
        ],
    },
}


def test_of_a_pod_stays_what_placement_and_attachment_need() -> None:
    kept = redacted(POD)
    assert SECRET not in json.dumps(kept)
    assert kept["metadata"]["annotations"] == {
        "kubeshare.nthu/request": "0.3",
        "kubeshare/gpu_mem": "4Gi",
    }
    [container] = kept["spec"]["containers"]
    assert container["resources"] == POD["spec"]["containers"][0]["resources"]
    assert [each["name"] for each in container["env"]] == ["TOKEN", "KEY"]
    assert kept["spec"]["nodeName"] == "n1"
    [status] = kept["status"]["containerStatuses"]
    assert status["lastState"]["terminated"] == {"exitCode": 1}
    assert status["restartCount"] == 2


def test_a_sharepod_is_a_pod_with_its_shares() -> None:
    found = POD | {"kind": "SharePod", "status": {"phase": "Running", "GPUID": "A"}}
    found["spec"] = POD["spec"] | {"gpu": {"request": "0.3"}}
    kept = redacted(found)
    assert SECRET not in json.dumps(kept)
    assert kept["spec"]["gpu"] == {"request": "0.3"}
    assert kept["status"]["GPUID"] == "A"


def test_of_our_programs_the_options_stay_and_the_values_of_variables_go() -> None:
    [agent] = [
        each
        for each in WANTED
        if each["metadata"]["name"] == "kubeshare-node-agent" and each["kind"] == "DaemonSet"
    ]
    changed = json.loads(json.dumps(agent))
    container = changed["spec"]["template"]["spec"]["containers"][0]
    container["env"].append({"name": "HTTPS_PROXY", "value": f"https://me:{SECRET}@proxy"})
    kept = redacted(changed)
    assert SECRET not in json.dumps(kept)
    assert kept["spec"]["template"]["spec"]["containers"][0]["command"] == container["command"]


def test_a_node_has_no_addresses() -> None:
    status = {"allocatable": {"cpu": "8"}, "addresses": [{"address": SECRET}], "images": [SECRET]}
    kept = redacted({"kind": "Node", "spec": {"podCIDR": SECRET}, "status": status})
    assert SECRET not in json.dumps(kept)
    assert kept["status"] == {"allocatable": {"cpu": "8"}}


def test_of_a_kind_that_is_not_known_only_its_metadata_stays() -> None:
    kept = redacted({"kind": "Secret", "metadata": {"name": "s"}, "data": {"password": SECRET}})
    assert kept == {"kind": "Secret", "metadata": {"name": "s"}}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, True),
        ({"metadata": {"labels": {"sharedgpu/gpu_request": "0.3"}}, "spec": {}}, True),
        ({"metadata": {"annotations": {"other/a": "b"}}, "spec": {"containers": [{}]}}, False),
    ],
)
def test_pods_without_a_share_are_not_asked_for(changed: dict[str, Any], expected: bool) -> None:
    assert has_share(POD | changed) is expected


@pytest.mark.parametrize("name", ["aliyun.com/gpu-mem", "tencent.com/vcuda-core", *VGPU_RESOURCES])
def test_a_pod_that_waits_for_the_extender_is_asked_for(name: str) -> None:
    container = {"name": "main", "resources": {"limits": {name: "8"}}}
    assert has_share({"kind": "Pod", "metadata": {}, "spec": {"containers": [container]}})


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"regarding": {"kind": "SharePod", "namespace": "team"}}, True),
        ({"regarding": {"kind": "Pod", "namespace": "kubeshare-system"}}, True),
        ({"regarding": {"kind": "Pod"}, "reportingController": "kubeshare.nthu/node-agent"}, True),
        ({"regarding": {"kind": "Pod"}, "reason": "FailedPrepareDynamicResources"}, True),
        ({"regarding": {"kind": "Pod"}, "reason": "Unhealthy", "note": SECRET}, False),
    ],
)
def test_events_of_users_pods_that_quote_programs_stay_out(
    event: dict[str, Any], expected: bool
) -> None:
    assert concerns_shares(event, "kubeshare-system", ("SharePod", "VGPU")) is expected

"""Pods that ask for nothing of KubeShare never meet its policies, however odd they are."""

import json
from typing import Any

import pytest

from deploy.pod_namespace import Namespace
from kubeshare.lab.control_plane.api_server import ApiServer

pytestmark = pytest.mark.apiserver

Raw = dict[str, Any]

MAIN: Raw = {"name": "main", "image": "x"}
CLAIMED = {"resourceClaims": [{"name": "a", "resourceClaimTemplateName": "t"}]}
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "1"}
ODD: dict[str, Raw] = {
    "nothing but a container": {},
    "nulls": {"initContainers": None, "volumes": None, "nodeSelector": None, "affinity": None},
    "empty lists": {"initContainers": [], "tolerations": [], "schedulingGates": []},
    "a sidecar": {"initContainers": [MAIN | {"name": "side", "restartPolicy": "Always"}]},
    "resources of nothing": {"containers": [MAIN | {"resources": {}}]},
    "limits and no requests": {"containers": [MAIN | {"resources": {"limits": {"cpu": "1"}}}]},
    "a whole GPU": {"containers": [MAIN | {"resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
    "a gate of others": {"schedulingGates": [{"name": "example.org/a"}]},
    "a claim by a template": {
        **CLAIMED,
        "containers": [MAIN | {"resources": {"claims": [{"name": "a"}]}}],
    },
    "resources of the pod": {"resources": {"limits": {"cpu": "1"}}},
    "a node": {"nodeName": "node-1"},
    "many containers": {"containers": [MAIN | {"name": f"c{number}"} for number in range(60)]},
}


@pytest.mark.parametrize("spec", ODD.values(), ids=ODD.keys())
def test_an_odd_pod_is_created_as_it_is(spec: Raw, space: Namespace) -> None:
    pod = space.create(**spec)

    assert "kubeshare" not in json.dumps(pod)


ODD_METADATA: dict[str, Raw] = {
    "null texts": {"labels": None, "annotations": None, "ownerReferences": None},
    "empty texts": {"labels": {"a": ""}, "annotations": {"b": ""}},
    "an owner and finalizers": {"ownerReferences": [OWNER], "finalizers": ["example.org/a"]},
    "words like ours": {
        "labels": {"kubeshare": "a", "my.kubeshare.nthu/role": "pod"},
        "annotations": {"my/kubeshare.nthu": "a", "kubeshare.example.org/request": "1"},
    },
}


@pytest.mark.parametrize("metadata", ODD_METADATA.values(), ids=ODD_METADATA.keys())
def test_odd_metadata_is_no_reason_to_refuse(
    metadata: Raw, cluster: ApiServer, space: Namespace
) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "odd"} | metadata}
    manifest = json.dumps(pod | {"spec": {"containers": [MAIN]}})
    cluster.kubectl("create", "-n", space.name, "-f", "-", stdin=manifest)
    note = json.dumps({"metadata": {"annotations": {"note": "mine"}}})
    cluster.kubectl("patch", "pod", "odd", "-n", space.name, "--type=merge", "-p", note)

    free = json.dumps({"metadata": {"finalizers": None}})
    cluster.kubectl("patch", "pod", "odd", "-n", space.name, "--type=merge", "-p", free)


CHANGES: dict[str, tuple[str, Raw]] = {
    "status": ("status", {"status": {"phase": "Failed", "conditions": None}}),
    "resize": (
        "resize",
        {"spec": {"containers": [MAIN | {"resources": {"requests": {"cpu": "2"}}}]}},
    ),
    "ephemeralcontainers": (
        "ephemeralcontainers",
        {"spec": {"ephemeralContainers": [{"name": "debug", "image": "x"}]}},
    ),
}


@pytest.mark.parametrize(("subresource", "change"), CHANGES.values(), ids=CHANGES.keys())
def test_subresources_of_an_odd_pod_are_written(
    subresource: str, change: Raw, cluster: ApiServer, space: Namespace
) -> None:
    asking = MAIN | {"resources": {"requests": {"cpu": "1"}}}
    name = space.create(containers=[asking])["metadata"]["name"]
    which = ("pod", name, "-n", space.name, f"--subresource={subresource}")

    patch = ("--type=strategic", "-p", json.dumps(change))
    assert "patched" in cluster.kubectl("patch", *which, *patch)


def test_an_odd_pod_is_bound_and_evicted(cluster: ApiServer, space: Namespace) -> None:
    name = space.create()["metadata"]["name"]
    where = f"/api/v1/namespaces/{space.name}/pods/{name}"
    target = {"apiVersion": "v1", "kind": "Node", "name": "node-1"}
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": target,
    }
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}

    for subresource, body in (("binding", binding), ("eviction", eviction)):
        cluster.kubectl(
            *("create", "--raw", f"{where}/{subresource}", "-f", "-"), stdin=json.dumps(body)
        )

"""A cluster of KubeShare 1 or 2, as their published manifests make it."""

import json
from typing import Any

from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.cli.migrate.published.command import perform
from kubeshare.cli.migrate.published.output import formatted
from kubeshare.install import manifests
from kubeshare.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    PODS,
    SERVICE_ACCOUNTS,
    Resource,
)
from kubeshare.simulator.control import FakeApiServer, run_virtual

Raw = dict[str, Any]
KUBE_SYSTEM = "kube-system"
CRD = "sharepods.kubeshare.nthu"
OLD_STATUS = {
    "PodStatus": {"phase": "Running"},
    "PodObjectMeta": {"name": "a"},
    "BoundDeviceID": "GPU-1",
    "PodManagerPort": 50051,
}
ESTABLISHED = {"type": "Established", "status": "True"}


def migrate(server: FakeApiServer, mode: str) -> tuple[str, Raw, int]:
    """What ``kubeshare migrate kubeshare`` prints, and its exit code."""

    async def run() -> tuple[str, Raw, int]:
        async with server.client("administrator") as client:
            return formatted(await perform(client, mode, lambda _: None))

    text, fields, code = run_virtual(run())
    return text, json.loads(json.dumps(fields)), code


def put(server: FakeApiServer, resource: Resource[Any], name: str, **parts: Any) -> None:
    """An object of kube-system, or of no namespace."""
    metadata = {"name": name} | ({"namespace": KUBE_SYSTEM} if resource.namespaced else {})
    metadata |= parts.pop("metadata", {})
    server.seed(resource, {"metadata": metadata} | parts)


def bound(server: FakeApiServer, name: str) -> None:
    """The account of a program, and its ClusterRoleBinding."""
    subject = {"kind": "ServiceAccount", "name": name, "namespace": KUBE_SYSTEM}
    put(server, SERVICE_ACCOUNTS, name)
    put(server, CLUSTER_ROLES, name, rules=[])
    put(server, CLUSTER_ROLE_BINDINGS, name, subjects=[subject])


def old_crd() -> Raw:
    """The CRD of version 1, as Kubernetes 1.22 and later serve it."""
    names = {
        "plural": "sharepods",
        "singular": "sharepod",
        "kind": "SharePod",
        "shortNames": ["shp"],
    }
    versions = [{"name": "v1", "served": True, "storage": True}]
    return {
        "metadata": {"name": CRD},
        "spec": {
            "group": "kubeshare.nthu",
            "scope": "Namespaced",
            "preserveUnknownFields": True,
            "names": names | {"listKind": "SharePodList"},
            "versions": versions,
        },
        "status": {"storedVersions": ["v1"], "conditions": [ESTABLISHED]},
    }


def node_daemon(server: FakeApiServer) -> None:
    pod = {"spec": {"containers": [{"name": "gemini-scheduler"}]}}
    put(server, DAEMON_SETS, "kubeshare-node-daemon", spec={"template": pod})


def sharepod_with_pod(server: FakeApiServer, namespace: str, *, running: bool) -> None:
    """SharePod a of version 1 on GPU abcde of n1, and its pod, which runs or has ended."""
    keys = {"gpu_request": "0.5", "gpu_limit": "1.0", "gpu_mem": "3145728000", "GPUID": "abcde"}
    annotations = {f"kubeshare/{key}": value for key, value in keys.items()}
    metadata = {"name": "a", "namespace": namespace, "annotations": annotations, "uid": "uid-a"}
    spec = {"nodeName": "n1", "restartPolicy": "Never", "containers": [{"name": "main"}]}
    server.seed(SHAREPODS, {"metadata": metadata, "spec": spec, "status": OLD_STATUS})
    owner = {"apiVersion": "kubeshare.nthu/v1", "kind": "SharePod", "name": "a", "uid": "uid-a"}
    owned = metadata | {"uid": "uid-pod", "ownerReferences": [owner | {"controller": True}]}
    status = {"phase": "Running" if running else "Succeeded"}
    server.seed(PODS, {"metadata": owned, "spec": spec, "status": status})


def version_1(*, running: bool = True) -> FakeApiServer:
    """Version 1 with SharePod a, whose pod runs or has ended, on GPU abcde of n1."""
    server = FakeApiServer()
    [ours] = [one for one in manifests.load(manifests.Options()) if one["metadata"]["name"] == CRD]
    server.add_crd(ours)
    server.seed(CUSTOM_RESOURCE_DEFINITIONS, old_crd())
    for name in ("kubeshare-scheduler", "kubeshare-device-manager"):
        bound(server, name)
        put(server, PODS, name, metadata={"labels": {"app": name}}, spec={"containers": []})
    node_daemon(server)
    sharepod_with_pod(server, "team", running=running)
    labels = {"kubeshare/role": "dummyPod", "kubeshare/GPUID": "abcde", "kubeshare/nodeName": "n1"}
    put(
        server,
        PODS,
        "kubeshare-vgpu-n1-abcde",
        metadata={"labels": labels},
        spec={"nodeName": "n1", "terminationGracePeriodSeconds": 0, "containers": []},
        status={"phase": "Running"},
    )
    return server


def version_2(*, running: bool = True) -> FakeApiServer:
    """Version 2 with a pod that runs or has ended, and one that waits."""
    server = FakeApiServer()
    bound(server, "kubeshare-scheduler")
    put(server, DEPLOYMENTS, "kubeshare-scheduler", spec={"replicas": 1})
    put(server, DEPLOYMENTS, "kubeshare-aggregator", spec={"replicas": 1})
    put(server, DAEMON_SETS, "kubeshare-collector", spec={"template": {"spec": {}}})
    node_daemon(server)
    labels = {"sharedgpu/gpu_request": "0.5", "sharedgpu/gpu_limit": "1.0"}
    placed = {"sharedgpu/gpu_uuid": "GPU-1", "sharedgpu/cell_id": "n1/1"}
    metadata = {"name": "p", "namespace": "team", "labels": labels, "annotations": placed}
    spec = {"schedulerName": "kubeshare-scheduler", "containers": [{"name": "main"}]}
    status = {"phase": "Running" if running else "Succeeded"}
    server.seed(PODS, {"metadata": metadata, "spec": spec | {"nodeName": "n1"}, "status": status})
    if running:
        waiting = {"name": "w", "namespace": "team", "labels": labels}
        server.seed(PODS, {"metadata": waiting, "spec": spec, "status": {"phase": "Pending"}})
    return server

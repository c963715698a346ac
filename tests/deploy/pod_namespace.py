"""Creates and patches the pods of a test as any user."""

import json
from typing import Any
from uuid import uuid4

import yaml

from kubeshare.api.types.constants import VGPU_RESOURCE
from kubeshare.lab.control_plane.api_server import ApiServer

DEVICES = "system:serviceaccount:kubeshare-system:kubeshare-device-manager"
SCHEDULER = "system:serviceaccount:kubeshare-system:kubeshare-scheduler"
SHARE = {"kubeshare.nthu/request": "0.3", "kubeshare.nthu/memory": "4Gi"}
PUBLISHED = {"kubeshare/gpu_request": "0.3", "kubeshare/gpu_limit": "1", "kubeshare/gpu_mem": "1Gi"}

Raw = dict[str, Any]


class Namespace:
    """A namespace of a test, and pods that are made in it."""

    def __init__(self, cluster: ApiServer, name: str) -> None:
        self._cluster = cluster
        self.name = name

    def create(
        self,
        annotations: dict[str, str] | None = None,
        labels: dict[str, str] | None = None,
        *,
        by: str = "",
        **spec: Any,
    ) -> Raw:
        """Make a pod; what is refused raises LabError."""
        metadata: Raw = {"annotations": annotations or {}, "labels": labels or {}}
        if by == DEVICES:
            # It creates the pods of SharePods only.
            name = f"p-{uuid4().hex[:8]}"
            metadata |= {"name": name, "ownerReferences": [sharepod_owner(name)]}
        else:
            metadata["generateName"] = "p-"
        body = {"containers": [{"name": "main", "image": "x"}], **spec}
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}
        arguments = ["create", "-n", self.name, "-f", "-", "-o", "json"]
        made: Raw = json.loads(
            self._cluster.kubectl(
                *arguments, *([f"--as={by}"] if by else []), stdin=yaml.safe_dump(manifest)
            )
        )
        return made

    def patch(self, pod: Raw, *operations: Raw, by: str = "") -> Raw:
        """Change a pod as somebody."""
        name = pod["metadata"]["name"]
        arguments = ["patch", "pod", name, "-n", self.name, "--type=json", "-o", "json", "-p"]
        answer: Raw = json.loads(
            self._cluster.kubectl(
                *arguments, json.dumps(operations), *([f"--as={by}"] if by else [])
            )
        )
        return answer


def sharepod_owner(name: str) -> Raw:
    """The reference of a pod to its SharePod, which has the same name."""
    owner = {"apiVersion": "kubeshare.nthu/v1", "kind": "SharePod", "name": name, "uid": "1"}
    return owner | {"controller": True}


def gates(pod: Raw) -> list[str]:
    return [gate["name"] for gate in pod["spec"].get("schedulingGates", [])]


def sharing(pod: Raw, which: str = "containers") -> list[str]:
    """The containers that ask for the resource, in limits and requests."""
    found = []
    for container in pod["spec"].get(which, []):
        resources = container.get("resources", {})
        limit = resources.get("limits", {}).get(VGPU_RESOURCE)
        assert limit == resources.get("requests", {}).get(VGPU_RESOURCE)
        if limit == "1":
            found.append(container["name"])
    return found


def limited(name: str, **limits: str) -> Raw:
    """A container with limits of ``aliyun.com/gpu-…``."""
    named = {f"aliyun.com/gpu-{key}": value for key, value in limits.items()}
    return {"name": name, "image": "x", "resources": {"limits": named}}


def cores(name: str, core: str = "", memory: str = "") -> Raw:
    """A container with limits of ``tencent.com/vcuda-…``."""
    amounts = {"tencent.com/vcuda-core": core, "tencent.com/vcuda-memory": memory}
    limits = {key: value for key, value in amounts.items() if value}
    return {"name": name, "image": "x", "resources": {"limits": limits}}

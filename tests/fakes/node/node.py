"""One node's objects in the cluster, and its folders."""

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from fakes.node.gpus import A_GPU, OTHER_GPU
from kubeshare.api.types.constants import DRA_DRIVER, LABEL_VGPU, NAMESPACE, placeholder_name
from kubeshare.api.types.v1 import VGPUS
from kubeshare.kube.resources import NODES, PODS, RESOURCE_CLAIMS
from kubeshare.node.agent import Agent
from kubeshare.node.dra.driver import ClaimReference
from kubeshare.node.paths import NodePaths
from kubeshare.simulator.control import FakeApiServer
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.files.statuses import State, Status, write_status

NODE = "n1"
STARTED = "2026-01-01T00:00:30Z"

Running = Callable[[], AbstractAsyncContextManager[Agent]]
"""Starts an agent for the length of a block."""


def claim_reference(pod: str) -> ClaimReference:
    """The claim that ``Cluster.add_pod`` makes for a pod."""
    return ClaimReference("default", f"{pod}-claim", f"{pod}-claim-uid")


def write_daemon_status(paths: NodePaths, claim: str, state: State, reason: str = "") -> None:
    """The token daemon's answer to a claim's grant."""
    run = Paths(paths.run_folder)
    run.make()
    write_status(run, Status(claim=claim, state=state, reason=reason))


def gpu_spec_file(paths: NodePaths, kind: str = "nvidia.com/gpu") -> Path:
    """The CDI spec of both GPUs, as the driver's set-up makes it."""
    paths.static_cdi_folder.mkdir(parents=True, exist_ok=True)
    file = paths.static_cdi_folder / f"{kind.replace('/', '-')}.yaml"
    names = ["0", A_GPU.uuid, "1", OTHER_GPU.uuid, "all"]
    devices = [{"name": name, "containerEdits": {}} for name in names]
    spec = {"cdiVersion": "0.6.0", "kind": kind, "devices": devices}
    file.write_text(json.dumps(spec))
    return file


class Cluster:
    """Writes objects to a fake API server as their real writers do."""

    def __init__(self, server: FakeApiServer) -> None:
        self.server = server
        server.seed(NODES, {"metadata": {"name": NODE}})

    def add_vgpu(
        self, name: str, *holders: dict[str, Any], uuid: str = A_GPU.uuid, node: str = NODE
    ) -> None:
        """A VGPU with its holders, and with its placeholder where its GPU is known."""
        if uuid:
            self.add_placeholder(name)
        self.server.seed(
            VGPUS,
            {
                "metadata": {"name": name},
                "spec": {"nodeName": node, "uuid": uuid, "memoryBytes": 16 << 30},
                "status": {"phase": "Active", "holders": list(holders)},
            },
        )

    def add_vgpu_holder(self, vgpu: str, holder: dict[str, Any]) -> None:
        """Add a holder to a VGPU."""
        self.server.change(VGPUS, vgpu, "", lambda obj: obj["status"]["holders"].append(holder))

    @staticmethod
    def holder(pod: str, *, pod_uid: str | None = None, request: int = 300_000) -> dict[str, Any]:
        """The holder of a SharePod of that name; by default its pod is known."""
        return {
            "demand": f"{pod}-demand",
            "namespace": "default",
            "name": pod,
            "podUid": f"{pod}-uid" if pod_uid is None else pod_uid,
            "container": "",
            "requestMicros": request,
            "limitMicros": 600_000,
            "memoryBytes": 1 << 30,
        }

    def set_pod_uid(self, vgpu: str, uid: str) -> None:
        """What the device manager does once it has created the pod."""
        self.server.change(
            VGPUS, vgpu, "", lambda obj: obj["status"]["holders"][0].update(podUid=uid)
        )

    def holders(self, vgpu: str) -> list[str]:
        """The names of a VGPU's holders."""
        stored = self.server.stored(VGPUS, vgpu)
        assert stored is not None
        return [holder["name"] for holder in stored["status"]["holders"]]

    def add_pod(
        self,
        name: str,
        *,
        phase: str = "Pending",
        reserved: int = 1,
        claimed: bool = False,
        annotations: dict[str, str] | None = None,
    ) -> None:
        """A pod on this node and its allocated claim, reserved for it (and for others).

        ``claimed``: its status names the claim, and its containers ``main`` and ``side``, which
        made the requests, as kube-scheduler writes it.
        """
        claim = claim_reference(name).name
        self.add_claim(name, claim, reserved=reserved)
        mappings = [
            {"containerName": container, "resourceName": "kubeshare.nthu/vgpu"}
            | {"requestName": f"container-{n}-request-0"}
            for n, container in enumerate(("main", "side"))
        ]
        status = {"resourceClaimName": claim, "requestMappings": mappings}
        named = {"extendedResourceClaimStatus": status} if claimed else {}
        self.server.seed(
            PODS,
            {
                "metadata": {
                    "name": name,
                    "namespace": "default",
                    "uid": f"{name}-uid",
                    "annotations": annotations or {},
                },
                "spec": {"nodeName": NODE},
                "status": {"phase": phase, **named},
            },
        )

    def add_claim(self, pod: str, name: str, *, reserved: int = 1) -> ClaimReference:
        """An allocated claim on our driver and another's, reserved for a pod (and for others)."""
        reference = ClaimReference("default", name, f"{name}-uid")
        users = [
            {"resource": "pods", "name": pod, "uid": f"{pod}-uid" if n == 0 else f"other-{n}"}
            for n in range(reserved)
        ]
        results = [
            {"request": f"container-{n}-request-0", "driver": DRA_DRIVER, "pool": NODE}
            | {"device": "slots", "shareID": f"00000000-0000-0000-0000-00000000000{n}"}
            for n in range(2)
        ]
        foreign = {"request": "nic", "driver": "nic.example", "pool": NODE, "device": "eth0"}
        self.server.seed(
            RESOURCE_CLAIMS,
            {
                "metadata": {
                    "name": reference.name,
                    "namespace": reference.namespace,
                    "uid": reference.uid,
                },
                "status": {
                    "reservedFor": users,
                    "allocation": {"devices": {"results": [*results, foreign]}},
                },
            },
        )
        return reference

    def add_placeholder(self, vgpu: str, phase: str = "Running", *, admitted: bool = True) -> None:
        """The placeholder pod of a VGPU, which its kubelet has noticed if it was ``admitted``."""
        self.server.seed(
            PODS,
            {
                "metadata": {
                    "name": placeholder_name(vgpu),
                    "namespace": NAMESPACE,
                    "labels": {LABEL_VGPU: vgpu},
                },
                "spec": {"nodeName": NODE},
                "status": {"phase": phase} | ({"startTime": STARTED} if admitted else {}),
            },
        )

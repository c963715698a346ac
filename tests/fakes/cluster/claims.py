"""Fakes claims that select a whole GPU, and the DRA driver that offers the GPUs of a node."""

import re

from kubeshare.api.types.constants import NVIDIA_DRA_DRIVER, WHOLE_GPU_RESOURCE
from kubeshare.api.types.v1 import GPUNODES, VGPUS
from kubeshare.kube.resources import NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from kubeshare.simulator.control import FakeApiServer
from kubeshare.simulator.control_tier.stored import Raw, ended

_SELECTED = re.compile(r"\.uuid == '(?P<uuid>[^']+)'")


def offer_by_claims(server: FakeApiServer, node: str, devices: list[Raw]) -> None:
    """NVIDIA's DRA driver offers the GPUs of a node; its kubelet counts none."""

    def without_plugin(found: Raw) -> None:
        found["status"]["allocatable"].pop(WHOLE_GPU_RESOURCE, None)

    server.change(NODES, node, "", without_plugin)
    offered = [
        {"name": f"gpu-{each['index']}", "attributes": {"uuid": {"string": each["uuid"]}}}
        for each in devices
    ]
    spec = {"driver": NVIDIA_DRA_DRIVER, "nodeName": node, "pool": {"name": node}}
    metadata = {"name": f"{node}-{NVIDIA_DRA_DRIVER}"}
    server.seed(RESOURCE_SLICES, {"metadata": metadata, "spec": spec | {"devices": offered}})


def report_driver(found: Raw) -> None:
    """Changes a GPUNode as its agent does when a DRA driver offers the GPUs."""
    for device in found["spec"]["devices"]:
        device["claimDriver"] = NVIDIA_DRA_DRIVER
    found["spec"]["draCount"] = len(found["spec"]["devices"])


def report_no_driver(found: Raw) -> None:
    """Changes a GPUNode as its agent does when the DRA driver has been stopped."""
    for device in found["spec"]["devices"]:
        device["claimDriver"] = ""
    found["spec"]["draCount"] = 0


def selected_gpus(server: FakeApiServer, pod: Raw) -> list[str] | None:
    """The UUIDs that the claims of a pod select; None while one of its claims is missing."""
    namespace, found = pod["metadata"]["namespace"], []
    for each in pod["spec"].get("resourceClaims", ()):
        # A claim of a template has no name here; such pods are never bound.
        claim = server.find(RESOURCE_CLAIMS, each.get("resourceClaimName", ""), namespace)
        if claim is None:
            return None
        for request in claim["spec"]["devices"]["requests"]:
            for selector in request["exactly"].get("selectors", ()):
                found += _SELECTED.findall(selector["cel"]["expression"])
    return found


def can_allocate(server: FakeApiServer, node: str, pod: Raw) -> bool:
    """Whether kube-scheduler can allocate the claims of a pod on a node."""
    wanted = selected_gpus(server, pod)
    gpunode = server.find(GPUNODES, node)
    if wanted is None or gpunode is None:
        return False
    others = [
        each
        for each in server.view(PODS)
        if each["spec"].get("nodeName") == node and not ended(each)
    ]
    allocated = {uuid for other in others for uuid in selected_gpus(server, other) or ()}
    here = {device["uuid"] for device in gpunode["spec"]["devices"]}
    return set(wanted) <= here - allocated


def collect_claims(server: FakeApiServer) -> None:
    """Acts as the garbage collector for the claims of vGPUs that are gone, once no pod has them."""
    vgpus = {vgpu["metadata"]["uid"] for vgpu in server.view(VGPUS)}
    used = {
        (pod["metadata"]["namespace"], each.get("resourceClaimName", ""))
        for pod in server.view(PODS)
        if not ended(pod)
        for each in pod["spec"].get("resourceClaims", ())
    }
    for claim in server.view(RESOURCE_CLAIMS):
        metadata = claim["metadata"]
        owners = [each["uid"] for each in metadata.get("ownerReferences", ())]
        key = (metadata["namespace"], metadata["name"])
        if owners and not vgpus.intersection(owners) and key not in used:
            server.remove(RESOURCE_CLAIMS, metadata["name"], metadata["namespace"])

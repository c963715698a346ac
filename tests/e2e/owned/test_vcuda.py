"""Pods of Tencent's Gaia by their manifests alone, on a node of their own with a real kubelet."""

import pytest

from e2e import pages
from e2e.owned.node import OwnedNode
from e2e.space import Space
from e2e.stage import Raw, Stage, eventually
from e2e.test_several_shares import expect_shares, holders_of, job, seen_by
from kubeshare.core.units import MI

pytestmark = pytest.mark.lab

CORE, MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
BLOCK = 256 * MI


def asking(name: str, cores: int, blocks: int) -> Raw:
    """A container that keeps its share busy."""
    limits = {CORE: str(cores), MEMORY: str(blocks)}
    return job(name) | {"resources": {"limits": limits}}


def create(space: Space, name: str, *containers: Raw) -> None:
    """Create a pod as in gpu-manager's samples, and wait until it runs."""
    spec = {"terminationGracePeriodSeconds": 1, "containers": containers}
    space.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    space.until_phase(name, "Running")


def published(space: Space, name: str) -> dict[str, str]:
    """The annotations of Gaia of a pod, without their prefix."""
    pod = space.find_pod(name)
    assert pod is not None
    annotations = pod["metadata"].get("annotations", {})
    return {
        key.removeprefix("tencent.com/"): value
        for key, value in annotations.items()
        if key.startswith("tencent.com/")
    }


def test_published_pods_share_a_gpu_and_are_held_to_their_cores_and_memory(
    stage: Stage, owned_node: OwnedNode, space: Space
) -> None:
    printed = pages.run(stage, pages.script("vcuda"), node=owned_node.name)
    assert "\tGPU0\tGPU1\tCPU Affinity" in printed
    assert "└── GPU1" in printed
    devices = owned_node.devices
    blocks = sum(gpu["memoryBytes"] // BLOCK for gpu in devices)
    owned_node.until_allocatable({CORE: str(100 * len(devices)), MEMORY: str(blocks)})
    create(space, "one", asking("learn", 50, 8))
    create(space, "two", asking("serve", 30, 4), asking("train", 100, 1))
    [(node, shared, _)] = holders_of(space, "one")
    minors = {gpu["uuid"]: str(gpu["minor"]) for gpu in devices}
    [whole] = minors.keys() - {shared}
    held = {share: (node, uuid) for node, uuid, share in holders_of(space, "two")}
    assert held == {"serve": (owned_node.name, shared), "train": (owned_node.name, whole)}
    assert node == owned_node.name
    eventually(
        lambda: published(space, "two").get("gpu-assigned") == "true", "the pod to be assigned"
    )
    written = published(space, "two")
    assert written.pop("predicate-time").isdigit()
    assert written == {
        "predicate-node": owned_node.name,
        "predicate-gpu-idx-0": minors[shared],
        "predicate-gpu-idx-1": minors[whole],
        "gpu-assigned": "true",
    }
    assert seen_by(space, "one", "learn") == {shared: 8 * BLOCK}
    assert seen_by(space, "two", "serve") == {shared: 4 * BLOCK}
    assert set(seen_by(space, "two", "train")) == {whole}
    # A fifth of the GPU is left, and still neither gets more than its cores.
    expect_shares(stage, node, shared, {"learn": 0.5, "serve": 0.3})

"""Pods of Tencent's Gaia by their manifests alone, on a node of their own with a real kubelet."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.space import Space
from e2e.stage import Stage, eventually
from e2e.test_owned import (  # noqa: F401 - fixtures
    HERE,
    gpunode,
    label_goes,
    plugin_returns,
    until_free,
    until_owned,
    without_plugin,
)
from e2e.test_pages import ROOT, script
from e2e.test_several_shares import expect_shares, holders_of, job, seen_by
from kubeshare.core.units import MI

pytestmark = pytest.mark.lab

CORE, MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
BLOCK = 256 * MI


@pytest.fixture
def page(stage: Stage, without_plugin: None, tmp_path: Path) -> Iterator[str]:  # noqa: F811
    """What the commands of the page print; the node is dedicated to vcuda pods."""
    del without_plugin
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_bytes(stage.lab.kubeconfig.read_bytes())
    programs = (ROOT / ".venv" / "bin", stage.lab.api.programs)
    environment = os.environ | {
        "KUBECONFIG": str(kubeconfig),
        "PATH": ":".join([*map(str, programs), os.environ["PATH"]]),
        "node": HERE,
    }
    command = ["bash", "-c", script("vcuda")]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    until_owned(stage)
    until_free(stage)
    yield done.stdout
    stage.kubectl("label", "node", HERE, "kubeshare.nthu/family-")


def until_offered(stage: Stage) -> None:
    """Wait until the kubelet offers the cores and the memory of both GPUs."""
    gpus = gpunode(stage)["spec"]["devices"]
    blocks = sum(gpu["memoryBytes"] // BLOCK for gpu in gpus)
    expected = (str(100 * len(gpus)), str(blocks))

    def offered() -> tuple[Any, Any]:
        node = stage.find("/api/v1/nodes", HERE)
        assert node is not None
        allocatable = node["status"]["allocatable"]
        return allocatable.get(CORE), allocatable.get(MEMORY)

    eventually(
        lambda: offered() == expected, f"{HERE} to offer {expected}", explain=lambda: str(offered())
    )


def ask(space: Space, name: str, cores: int, blocks: int) -> None:
    """Create a pod whose only container keeps its share busy, as in gpu-manager's samples."""
    limits = {CORE: str(cores), MEMORY: str(blocks)}
    spec = {
        "terminationGracePeriodSeconds": 1,
        "containers": [job(name) | {"resources": {"limits": limits}}],
    }
    space.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


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
    stage: Stage, page: str, space: Space
) -> None:
    assert "\tGPU0\tGPU1\tCPU Affinity" in page
    assert "└── GPU1" in page
    until_offered(stage)
    for name, cores, blocks in (("learn", 50, 8), ("serve", 30, 4)):
        ask(space, name, cores, blocks)
        space.until_phase(name, "Running")
    eventually(
        lambda: published(space, "serve").get("gpu-assigned") == "true", "the pod to be assigned"
    )
    [(node, uuid, _)] = holders_of(space, "learn")
    assert [(node, uuid, "")] == holders_of(space, "serve") == holders_of(space, "learn")
    assert node == HERE
    minors = {gpu["uuid"]: gpu["minor"] for gpu in gpunode(stage)["spec"]["devices"]}
    written = published(space, "serve")
    assert written.pop("predicate-time").isdigit()
    assert written == {
        "predicate-node": HERE,
        "predicate-gpu-idx-0": str(minors[uuid]),
        "gpu-assigned": "true",
    }
    assert seen_by(space, "learn", "learn") == {uuid: 8 * BLOCK}
    assert seen_by(space, "serve", "serve") == {uuid: 4 * BLOCK}
    # Nobody else is on the GPU, and still neither gets more than its cores.
    expect_shares(stage, node, uuid, {"learn": 0.5, "serve": 0.3})

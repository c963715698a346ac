"""Pods of Tencent's Gaia by their manifests alone, on a node of their own with a real kubelet."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from e2e.space import Space
from e2e.stage import Raw, Stage, eventually
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
def page(stage: Stage, without_plugin: None, tmp_path: Path) -> str:  # noqa: F811
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
    return done.stdout


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
    stage: Stage, page: str, space: Space
) -> None:
    assert "\tGPU0\tGPU1\tCPU Affinity" in page
    assert "└── GPU1" in page
    until_offered(stage)
    create(space, "one", asking("learn", 50, 8))
    create(space, "two", asking("serve", 30, 4), asking("train", 100, 1))
    [(node, shared, _)] = holders_of(space, "one")
    minors = {gpu["uuid"]: str(gpu["minor"]) for gpu in gpunode(stage)["spec"]["devices"]}
    [whole] = minors.keys() - {shared}
    held = {share: (node, uuid) for node, uuid, share in holders_of(space, "two")}
    assert held == {"serve": (HERE, shared), "train": (HERE, whole)}
    assert node == HERE
    eventually(
        lambda: published(space, "two").get("gpu-assigned") == "true", "the pod to be assigned"
    )
    written = published(space, "two")
    assert written.pop("predicate-time").isdigit()
    assert written == {
        "predicate-node": HERE,
        "predicate-gpu-idx-0": minors[shared],
        "predicate-gpu-idx-1": minors[whole],
        "gpu-assigned": "true",
    }
    assert seen_by(space, "one", "learn") == {shared: 8 * BLOCK}
    assert seen_by(space, "two", "serve") == {shared: 4 * BLOCK}
    assert set(seen_by(space, "two", "train")) == {whole}
    # A fifth of the GPU is left, and still neither gets more than its cores.
    expect_shares(stage, node, shared, {"learn": 0.5, "serve": 0.3})

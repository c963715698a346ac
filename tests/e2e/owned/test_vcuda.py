"""Pods of Tencent's Gaia by their manifests alone, on a node of their own with a real kubelet."""

import json
import os
import re
from pathlib import Path

import pytest

from e2e import pages
from e2e.owned.node import OwnedNode
from e2e.space import Space, container
from e2e.stage import NODE_AGENT, Raw, Stage, eventually
from e2e.test_several_shares import expect_shares, holders_of, job, seen_by
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.core.topology.cpus import read_cpu_list
from kubeshare.core.units import MI

pytestmark = pytest.mark.lab

CORE, MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
BLOCK = 256 * MI
STOP = "/tmp/stop"
SAMPLES = pages.ROOT / "examples" / "vcuda"


def asking(name: str, cores: int, blocks: int) -> Raw:
    """A container that keeps its share busy."""
    limits = {CORE: str(cores), MEMORY: str(blocks)}
    return job(name) | {"resources": {"limits": limits}}


def resting(cores: int, blocks: int) -> Raw:
    """A container that ends when it is told to, and is then started again."""
    limits = {CORE: str(cores), MEMORY: str(blocks)}
    script = f"trap 'exit 0' TERM; while ! [ -e {STOP} ]; do sleep 0.2; done"
    return container(["sh", "-c", script], resources={"limits": limits})


def create(space: Space, name: str, *containers: Raw, **annotations: str) -> None:
    """Create a pod as in gpu-manager's samples."""
    spec = {"terminationGracePeriodSeconds": 1, "containers": containers}
    metadata = {"name": name, "annotations": annotations}
    space.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def run(space: Space, name: str, *containers: Raw) -> None:
    """Create a pod, and wait until it runs."""
    create(space, name, *containers)
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


def until_offered(node: OwnedNode) -> None:
    """Wait until the node offers the cores and blocks of its GPUs."""
    blocks = sum(gpu["memoryBytes"] // BLOCK for gpu in node.devices)
    node.until_allocatable({CORE: str(100 * len(node.devices)), MEMORY: str(blocks)})


def cpus(space: Space, name: str) -> frozenset[int]:
    """The CPUs that a pod may use, according to the kernel."""
    words = space.run(name, "grep", "Cpus_allowed_list", "/proc/self/status")
    return read_cpu_list(words.split()[-1], "the kernel")


def usage(stage: Stage, node: OwnedNode) -> dict[str, Raw]:
    """Uid of each pod of Gaia → what it uses, as the node agent says."""
    [agent] = stage.system_pods(NODE_AGENT, node.name)
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{agent['metadata']['name']}:8080/proxy/usage"
    found: dict[str, Raw] = json.loads(stage.kubectl("get", "--raw", path))["usage"]
    return found


def test_published_pods_share_a_gpu_and_are_held_to_their_cores_and_memory(
    stage: Stage, owned_node: OwnedNode, space: Space
) -> None:
    commands = pages.script("vcuda") + pages.script("topology")
    printed = pages.run(stage, commands, node=owned_node.name)
    assert "\tGPU0\tGPU1\tCPU Affinity" in printed
    assert "└── GPU1" in printed
    assert '{"usage":{' in printed
    until_offered(owned_node)
    devices = owned_node.devices
    run(space, "one", asking("learn", 50, 8))
    run(space, "two", asking("serve", 30, 4), asking("train", 100, 1))  # S16
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
    # What gpu-manager's display API says of it, with the processes that the kernel knows.
    pod = space.find_pod("two")
    assert pod is not None
    found = usage(stage, owned_node)[pod["metadata"]["uid"]]
    assert found["spec"]["serve"] == {"gpu": 0.3, "mem": 1024}
    assert [each["card_idx"] for each in found["stat"]["train"]["dev"]] == [minors[whole]]
    [device] = found["stat"]["serve"]["dev"]
    assert device["card_idx"] == minors[shared]
    assert device["gpu"] > 0
    assert len(device["pids"]) == 1


def test_the_samples_of_gpu_managers_pages_see_the_memory_that_they_ask_for(
    stage: Stage, owned_node: OwnedNode, space: Space
) -> None:
    stage.kubectl("label", "node", owned_node.name, "kubeshare.nthu/family=vcuda")
    until_offered(owned_node)
    for sample in SAMPLES.glob("[0-9].yaml"):
        stage.kubectl("apply", "-n", space.name, "-f", str(sample))
    [whole] = {gpu["memoryBytes"] // MI for gpu in owned_node.devices}
    seen = {"vcuda": [7680], "vcuda-two": [whole] * 2, "vcuda-one": [whole], "vcuda-share": [5120]}
    for name, sizes in seen.items():
        space.until_phase(name, "Succeeded")
        printed = re.findall(r"/ +([0-9]+)MiB", space.log(name))
        assert list(map(int, printed)) == sizes, name


def test_what_happens_to_a_pod_or_an_agent_changes_nobodys_gpus(
    stage: Stage, owned_node: OwnedNode, space: Space, tmp_path: Path
) -> None:
    """S4, S6, S8, S9, S11 to S14, N3 and N4 of Gaia's cases with a real kubelet."""
    stage.kubectl("label", "node", owned_node.name, "kubeshare.nthu/family=vcuda")
    until_offered(owned_node)  # S6
    # S12: it is deleted while it starts. S8: a whole GPU, and at once a share.
    create(space, "gone", resting(200, 0))
    space.delete("pod", "gone")
    create(space, "whole", resting(100, 0))
    # S9, S11: two pods at once, of equal cores and different memory. S4: they name GPUs.
    blocks = {"half": 4, "rest": 8}
    names = tuple(blocks)
    for number, name in enumerate(names):
        named = {"tencent.com/predicate-gpu-idx-0": str(number), "kubeshare.nthu/cpuCores": "1"}
        create(space, name, resting(50, blocks[name]), **named)
    for name in ("whole", *names):
        space.until_phase(name, "Running")
    held = {name: holders_of(space, name) for name in ("whole", *names)}
    assert held["half"] == held["rest"] != held["whole"]
    memory = {
        holder["name"]: holder["memoryBytes"]
        for vgpu in stage.vgpus()
        for holder in vgpu["status"].get("holders", ())
        if holder["name"] in blocks
    }
    assert memory == {name: each * BLOCK for name, each in blocks.items()}
    for name in names:
        indices = [published(space, each)["predicate-gpu-idx-0"] for each in ("half", name)]
        assert indices[0] == indices[1]
    # S14: a container is started again.
    index = published(space, "half")["predicate-gpu-idx-0"]
    space.end_with("half", STOP)
    eventually(lambda: space.lives("half")[1] == 1, "the container to be started again")
    # S13: the agent is.
    gone = stage.containers(NODE_AGENT, owned_node.name)
    stage.kill_process(NODE_AGENT, owned_node.name)
    stage.until_ready(NODE_AGENT, owned_node.name, but=gone)
    assert {name: holders_of(space, name) for name in held} == held
    assert published(space, "half")["predicate-gpu-idx-0"] == index
    # N3, N4: a core each, of the two that every machine of this lab has.
    if len(os.sched_getaffinity(0)) > 1:
        space.until_phase("half", "Running")
        eventually(
            lambda: [len(cpus(space, name)) for name in names] == [1, 1], "a core for each share"
        )
        assert cpus(space, "half").isdisjoint(cpus(space, "rest"))
        inside = f"kubectl config set-context --current --namespace={space.name}\n"
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_bytes(stage.lab.kubeconfig.read_bytes())
        commands = inside + pages.script("cpu-binding")
        printed = pages.run(stage, commands, kubeconfig=kubeconfig, pod="half")
        [bound] = re.findall(r"Cpus_allowed_list:\s*(\S+)", printed)
        assert read_cpu_list(bound, "the page") == cpus(space, "half")

"""gpu-manager's and gpu-admission's sequences of pods, in the lab.

:mod:`e2e.owned.test_vcuda` has S4, S6, S8, S9, S11 to S14 and S16, :mod:`e2e.owned.test_extender`
has S10.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.owned import refitting
from e2e.owned.node import OwnedNode
from e2e.owned.nodes_without_kubelet import made_nodes
from e2e.owned.test_vcuda import CORE, STOP, create, published, resting, until_offered
from e2e.space import REST, Space, container
from e2e.stage import NODE_AGENT, Raw, Stage, eventually
from e2e.test_several_shares import holders_of
from fakes.node.kubelet import FakeKubelet
from kubeshare import fakegpu
from kubeshare.core.units import MICROS
from kubeshare.node.paths import NodePaths
from kubeshare.node.proto import dra_pb2, pluginregistration_pb2

pytestmark = pytest.mark.lab

SIX = """
model = V100-PCIE
count = 6
memory = 8192
memory.5 = 24576
link = SYS
link.0.1 = PIX
link.2.3 = PIX
link.4.5 = PIX
link.0.2 = PHB
link.0.3 = PHB
link.1.2 = PHB
link.1.3 = PHB
"""
"""``SOC(PHB(PIX(0,1),PIX(2,3)),PIX(4,5))``, the tree of gpu-manager's tests; one GPU is larger."""


@pytest.fixture
def empty_node(stage: Stage, owned_node: OwnedNode) -> Iterator[OwnedNode]:
    """The owned node without GPUs, for pods of Gaia; in the end it has its own again."""
    stage.kubectl("label", "node", owned_node.name, "kubeshare.nthu/family=vcuda")
    try:
        refitting.take_out(owned_node)
        yield owned_node
    finally:
        if owned_node.devices:
            refitting.take_out(owned_node)
        refitting.put_in(owned_node, stage.node(owned_node.name).profile)
        owned_node.until_free()


class Six:
    """The node with six GPUs, and the pods of one namespace on it.

    Args:
        node: it has these GPUs already.
        space: the namespace.
    """

    def __init__(self, node: OwnedNode, space: Space) -> None:
        self.node = node
        self.space = space
        self.stage = node.stage
        self._indices = {gpu["uuid"]: int(gpu["index"]) for gpu in node.devices}

    def indices(self, name: str) -> list[int]:
        """Wait until all of a pod is placed, and return the indices of its GPUs."""

        def placed() -> bool:
            pod = self.space.find_pod(name)
            return pod is not None and not pod["spec"].get("schedulingGates")

        eventually(placed, f"{name} to be placed", explain=lambda: self.space.describe(name))
        return sorted(self._indices[uuid] for _, uuid, _ in holders_of(self.space, name))

    def place(self, name: str, *containers: Raw) -> list[int]:
        """Create a pod, and return the indices of its GPUs."""
        create(self.space, name, *containers)
        return self.indices(name)

    def delete(self, *names: str) -> None:
        """Delete pods, and wait until their shares are released."""
        for name in names:
            self.space.delete("pod", name)
        eventually(
            lambda: not any(holders_of(self.space, name) for name in names),
            f"{', '.join(names)} to be released",
        )

    def used(self) -> dict[int, int]:
        """Index of each GPU in use -> what its holders have, in millionths."""
        found = {
            self._indices[vgpu["spec"]["uuid"]]: sum(
                holder["requestMicros"] for holder in vgpu["status"].get("holders", ())
            )
            for vgpu in self.stage.vgpus()
            if vgpu["spec"]["nodeName"] == self.node.name
        }
        return {index: micros for index, micros in found.items() if micros}


def test_the_sequences_of_gpu_manager_on_six_gpus(
    empty_node: OwnedNode, space: Space, tmp_path: Path
) -> None:
    """S1 to S3, S5, S15, S17 and S18."""
    # S18: no GPU. 40 blocks are more than most of the GPUs that come have, less than their average.
    for name in "ab":
        create(space, name, resting(50, 40))
    until_said(space, "a", f"{CORE} 0 left")
    profile = tmp_path / "six.profile"
    profile.write_text(SIX)
    refitting.put_in(empty_node, str(profile))
    until_offered(empty_node)
    six = Six(empty_node, space)
    # S17: each GPU counts its own memory.
    for name in "ab":
        assert six.indices(name) == [5]
        space.until_phase(name, "Running")
    create(space, "c", resting(50, 40))
    until_said(space, "c", "8Gi")
    six.delete("a", "b", "c")

    allocate_and_release(six)
    ask_twice(six)
    end_without_an_agent(six)
    fail_one(six)


def allocate_and_release(six: Six) -> None:
    """S1, the sequence of the allocator's test, and S5: a container without a GPU gets nothing."""
    assert six.place("p1", resting(300, 0), container(REST) | {"name": "bare"}) == [0, 1, 2]
    left = six.place("p2", resting(100, 0), resting(100, 0) | {"name": "other"})
    assert sorted(left + six.place("p3", resting(100, 0))) == [3, 4, 5]
    six.delete("p2")
    for name, cores in (("p4", 50), ("p5", 60), ("p6", 50)):
        six.place(name, resting(cores, 1))
    six.delete("p5")
    six.place("p7", resting(100, 0))
    assert six.indices("p4") == six.indices("p6")
    assert sorted(six.indices("p4") + six.indices("p7")) == left
    assert six.used() == dict.fromkeys(range(6), MICROS)

    space, stage = six.space, six.stage
    names = ("p1", "p3", "p4", "p6", "p7")
    for name in names:
        space.until_phase(name, "Running")
    written = published(space, "p1")
    assert written["predicate-gpu-idx-0"] == "0,1,2"
    assert "predicate-gpu-idx-1" not in written
    listed = stage.kubectl("exec", "-n", space.name, "p1", "-c", "bare", "--", "ls", "/run")
    assert "kubeshare" not in listed.split()
    six.delete(*names)
    grants = machine_paths(six).run_folder / "grants"
    eventually(
        lambda: not any(grants.iterdir()),
        "all grants to be removed",
        explain=lambda: str(list(grants.iterdir())),
    )


def ask_twice(six: Six) -> None:
    """S2: the kubelet asks again for what a pod has."""
    everything = six.place("all", resting(600, 0))
    assert everything == list(range(6))
    six.space.until_phase("all", "Running")
    first = prepared(six, "all")
    uuids = {gpu["uuid"] for gpu in six.node.devices}
    assert uuids <= {device.removeprefix("nvidia.com/gpu=") for device in first}
    assert prepared(six, "all") == first
    assert six.indices("all") == everything
    six.delete("all")


def end_without_an_agent(six: Six) -> None:
    """S3: one pod fails and one is deleted without an agent; a third one has not started."""
    space, stage, node = six.space, six.stage, six.node.name
    never = resting(100, 0) | {"image": "kubeshare:absent", "imagePullPolicy": "Never"}
    kept = six.place("pending", never)
    once = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "failed"}}
    script = f"while ! [ -e {STOP} ]; do sleep 0.2; done; exit 1"
    failing = resting(100, 0) | {"command": ["sh", "-c", script]}
    space.create(once | {"spec": {"restartPolicy": "Never", "containers": [failing]}})
    create(space, "deleted", resting(100, 0))
    for name in ("failed", "deleted"):
        space.until_phase(name, "Running")
    gone = stage.containers(NODE_AGENT, node)
    stage.kill_process(NODE_AGENT, node)
    space.end_with("failed", STOP)
    space.delete("pod", "deleted")
    space.until_phase("failed", "Failed")
    stage.until_ready(NODE_AGENT, node, but=gone)
    eventually(
        lambda: six.used() == {kept[0]: MICROS},
        "the GPUs of the others to be released",
        explain=lambda: str(six.used()),
    )
    assert six.indices("pending") == kept
    assert space.phase("pending") == "Pending"
    six.delete("pending")


def fail_one(six: Six) -> None:
    """S15: a GPU with an error is reported, and not chosen."""
    [failed] = six.place("before", resting(30, 1))
    fakegpu.raise_error(six.stage.node(six.node.name).state_folder, failed, fakegpu.LOST)
    eventually(
        lambda: [gpu["index"] for gpu in six.node.devices if not gpu["healthy"]] == [failed],
        "the GPU to be reported",
        explain=lambda: str(six.node.devices),
    )
    assert six.place("after", resting(30, 1)) != [failed]


def test_the_sequence_of_gpu_admission_on_three_nodes(stage: Stage, space: Space) -> None:
    """S7: three nodes of two GPUs, of 4 blocks each in that test and of 64 here."""
    names = ("gaia-0", "gaia-1", "gaia-2")
    with made_nodes(stage, space, names) as keep_ready:
        pods = (((10, 16), (10, 16)), ((100, 48), (80, 48)), ((200, 128),), ((10, 32),))
        found = []
        for number, asked in enumerate(pods):
            pod = f"p{number}"
            containers = [resting(*each) | {"name": f"c{at}"} for at, each in enumerate(asked)]
            keep_ready()
            create(space, pod, *containers)
            found.append(until_bound(space, pod))
            assert published(space, pod)["predicate-node"] == found[-1]
        assert found == ["gaia-0", "gaia-1", "gaia-2", "gaia-0"]


def until_bound(space: Space, name: str) -> str:
    """Wait until a pod is bound, and return its node."""

    def node() -> str:
        return str((space.find_pod(name) or {})["spec"].get("nodeName", ""))

    return eventually(node, f"{name} to be bound", explain=lambda: space.describe(name))


def until_said(space: Space, name: str, words: str) -> None:
    """Wait until a pod that has no GPU says why, in these words."""

    def conditions() -> list[Raw]:
        found: list[Raw] = (space.find_pod(name) or {}).get("status", {}).get("conditions", [])
        return found

    eventually(
        lambda: any(words in each.get("message", "") for each in conditions()),
        f"{name} to wait: {words}",
        explain=lambda: str(conditions()),
    )


def machine_paths(six: Six) -> NodePaths:
    """The paths of the node on this machine."""
    return NodePaths(six.stage.node(six.node.name).machine.path("/"))


def prepared(six: Six, name: str) -> list[str]:
    """The CDI devices that the driver of the node answers for the claim of a pod."""
    space = six.space
    pod = space.find_pod(name)
    assert pod is not None
    claims = space.stage.items(f"/apis/resource.k8s.io/v1/namespaces/{space.name}/resourceclaims")
    claim_name = pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
    [uid] = [each["metadata"]["uid"] for each in claims if each["metadata"]["name"] == claim_name]
    kubelet = FakeKubelet()
    socket = machine_paths(six).plugin_socket
    kubelet.info = pluginregistration_pb2.PluginInfo(endpoint=str(socket))
    claim = dra_pb2.Claim(namespace=space.name, uid=uid, name=claim_name)
    answer = asyncio.run(kubelet.prepare(claim))[uid]
    assert answer.error == ""
    return [device for each in answer.devices for device in each.cdi_device_ids]

"""Several different shares of one pod: each container is held to its own by the GPU's own log."""

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from e2e.space import BURN, REST, Space, container
from e2e.stage import NODE_AGENT, Raw, Stage, eventually
from kubeshare import fakegpu
from wakeups import least_disturbed

pytestmark = pytest.mark.lab

GIB = 1 << 30
HERE = "node-1"
WINDOW_NS = 4_000_000_000
TOLERANCE = 0.04
LOOK_AROUND = """
import json, pynvml
pynvml.nvmlInit()
gpus = [pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(pynvml.nvmlDeviceGetCount())]
print(json.dumps({
    pynvml.nvmlDeviceGetUUID(gpu): pynvml.nvmlDeviceGetMemoryInfo(gpu).total for gpu in gpus
}))
"""


def job(name: str, *more: str) -> Raw:
    """A container that keeps its GPUs busy, as a process of its own name in the GPU's log."""
    command = " ".join([f"/tmp/{name}", *BURN[1:], *more])
    script = f'cp "$(command -v {BURN[0]})" /tmp/{name} && exec {command}'
    return container(["sh", "-c", script]) | {"name": name}


def seen_by(space: Space, pod: str, name: str) -> dict[str, int]:
    """UUID of each GPU that a container sees -> the memory that it has there."""
    which = ("exec", "-n", space.name, pod, "-c", name, "--")
    found: dict[str, int] = json.loads(space.stage.kubectl(*which, "python3", "-c", LOOK_AROUND))
    return found


def holders_of(space: Space, name: str) -> list[tuple[str, str, str]]:
    """Node, UUID and share of each holder of a SharePod or pod."""
    return sorted(
        (vgpu["spec"]["nodeName"], vgpu["spec"]["uuid"], holder.get("share", ""))
        for vgpu in space.stage.vgpus()
        for holder in vgpu["status"].get("holders", [])
        if (holder["namespace"], holder["name"]) == (space.name, name)
    )


def busy(stage: Stage, node: str, uuid: str) -> tuple[int, dict[str, int]]:
    """The time, and how long a GPU has worked for the processes of each name, in ns."""
    seen = fakegpu.stat(stage.node(node).state_folder)
    [gpu] = [each for each in seen.gpus if each.uuid == uuid]
    total: dict[str, int] = {}
    for process in gpu.processes:
        total[process.comm] = total.get(process.comm, 0) + process.busy_ns
    return seen.now_ns, total


def measure(stage: Stage, node: str, uuid: str) -> dict[str, float]:
    """The share of each name in a window that begins now."""
    began, before = busy(stage, node, uuid)

    def end() -> tuple[int, dict[str, int]] | None:
        now = busy(stage, node, uuid)
        return now if now[0] >= began + WINDOW_NS else None

    ended, after = eventually(end, "the window to end")
    return {name: (total - before.get(name, 0)) / (ended - began) for name, total in after.items()}


def expect_shares(stage: Stage, node: str, uuid: str, targets: Mapping[str, float]) -> None:
    """The GPU works for each name as long as it should; a few windows are for settling."""
    for _ in range(5):
        found, lost = least_disturbed(lambda: measure(stage, node, uuid))
        off = [abs(found.get(name, 0.0) - target) for name, target in targets.items()]
        if max(off) < TOLERANCE + lost:
            return
    pytest.fail(f"{found}, not {dict(targets)}; {lost:.3f} lost")


def a_share(name: str, share: str, memory: str) -> dict[str, Any]:
    """A share for the container of its name, with the request as its limit."""
    amounts = {"request": share, "limit": share, "memory": memory}
    return {"name": name, **amounts, "containers": [name]}


def test_two_containers_have_shares_of_their_own_on_one_gpu(stage: Stage, space: Space) -> None:
    shares = [a_share("learn", "0.5", "2Gi"), a_share("serve", "0.3", "1Gi")]
    idle = container(REST) | {"name": "log"}
    space.share("a", {"shares": shares}, containers=[job("learn"), job("serve"), idle])
    place = space.ready("a")

    assert holders_of(space, "a") == [
        (place.node, place.uuid, "learn"),
        (place.node, place.uuid, "serve"),
    ]
    assert seen_by(space, "a", "learn") == {place.uuid: 2 * GIB}
    assert seen_by(space, "a", "serve") == {place.uuid: GIB}
    expect_shares(stage, place.node, place.uuid, {"learn": 0.5, "serve": 0.3})


def test_two_containers_of_a_pod_have_shares_of_two_gpus(stage: Stage, space: Space) -> None:
    written = {
        f"kubeshare.nthu/share.{name}": f"request=.6,limit=.6,memory=1Gi,containers={name}"
        for name in ("learn", "serve")
    }
    idle = container(REST) | {"name": "log"}
    absent = {"kubeshare.nthu/request": ""}
    containers = [job("learn"), job("serve"), idle]
    space.plain("a", "", annotations=absent | written, containers=containers)
    space.until_phase("a", "Running")

    (node, first, _), (other, second, _) = holders_of(space, "a")
    assert node == other
    assert first != second
    for _, uuid, name in holders_of(space, "a"):
        assert seen_by(space, "a", name) == {uuid: GIB}
        expect_shares(stage, node, uuid, {name: 0.6})


@pytest.fixture
def sockets(stage: Stage) -> Iterator[dict[str, str]]:
    """UUID of each GPU of node-1 -> the one CPU near it, as if the machine had two sockets."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("this machine has one CPU")
    devices = stage.node(HERE).layout.folder / "driver/sys/bus/pci/devices"
    files = sorted(devices.glob("*/local_cpulist"))
    before = [file.read_text() for file in files]
    for cpu, file in enumerate(files):
        file.write_text(f"{cpu}\n")

    def near() -> dict[str, str]:
        node = stage.find("/apis/kubeshare.nthu/v1/gpunodes", HERE)
        assert node is not None
        return {gpu["uuid"]: gpu["cpuList"] for gpu in node["spec"]["devices"]}

    eventually(lambda: sorted(near().values()) == ["0", "1"], "the agent to read it", explain=str)
    yield near()
    for file, text in zip(files, before, strict=True):
        file.write_text(text)
    stage.configure()


def allowed(space: Space, pod: str, name: str) -> str:
    """The CPUs that a container may use, according to the kernel."""
    which = ("exec", "-n", space.name, pod, "-c", name, "--")
    words = space.stage.kubectl(*which, "grep", "Cpus_allowed_list", "/proc/self/status")
    return words.split()[-1]


def test_each_container_is_bound_to_the_cpus_near_its_gpu(
    stage: Stage, space: Space, sockets: dict[str, str]
) -> None:
    """N1 of Gaia's cases, on two fake sockets of one CPU each."""
    written = {
        f"kubeshare.nthu/share.{name}": f"request=.6,memory=1Gi,containers={name}"
        for name in ("learn", "serve")
    }
    absent = {"kubeshare.nthu/request": ""}
    containers = [container(REST) | {"name": name} for name in ("learn", "serve", "log")]
    space.plain(
        "a", "", annotations=absent | written, containers=containers,
        nodeSelector={"kubernetes.io/hostname": HERE},
    )  # fmt: skip
    space.until_phase("a", "Running")
    everything = allowed(space, "a", "log")
    near = {share: sockets[uuid] for _, uuid, share in holders_of(space, "a")}
    assert sorted(near.values()) == ["0", "1"]

    def expect(expected: dict[str, str]) -> None:
        def found() -> dict[str, str]:
            return {name: allowed(space, "a", name) for name in expected}

        eventually(lambda: found() == expected, f"CPUs {expected}", explain=lambda: str(found()))

    expect(near | {"log": everything})
    # The next agent knows them from their cgroups, and releases them.
    gone = stage.containers(NODE_AGENT, HERE)
    stage.kill_process(NODE_AGENT, HERE)
    stage.until_ready(NODE_AGENT, HERE, but=gone)
    stage.configure(cpuCores="none")
    expect(dict.fromkeys(("learn", "serve", "log"), everything))


def test_a_gpu_and_a_half_and_a_limit_while_alone(stage: Stage, space: Space) -> None:
    wide = job("wide", "--gpus", "2")
    # A node of the lab has two GPUs.
    space.share("wide", {"request": "1.5"}, containers=[wide])
    space.until_phase("wide", "Running")
    alone = {"request": "0.3", "limit": "0.3", "limitAlone": "0.9", "memory": "1Gi"}
    space.share("beside", alone, containers=[job("beside")])
    place = space.ready("beside")

    held = {share: (node, uuid) for node, uuid, share in holders_of(space, "wide")}
    assert held["rest"] == (place.node, place.uuid), "it is on the GPU with room"
    assert sorted(seen_by(space, "wide", "wide")) == sorted(uuid for _, uuid in held.values())
    expect_shares(stage, place.node, place.uuid, {"wide": 0.7, "beside": 0.3})
    space.delete("shp", "wide")
    expect_shares(stage, place.node, place.uuid, {"beside": 0.9})

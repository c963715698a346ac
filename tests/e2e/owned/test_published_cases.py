"""The published cases of gpushare by a real kube-scheduler and kubelet, through both doors.

``published_cases.py`` says of each case by its number where it is.
"""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Final

import pytest
import yaml

from e2e import pages
from e2e.booting import space_in
from e2e.owned.gpushare_pods import GPU_COUNT, GPU_MEM, PREFIX, published
from e2e.owned.kube_scheduler import call, calling_the_extender, inspected
from e2e.owned.node import OwnedNode
from e2e.owned.published_cases import ELSEWHERE, HERE, PUBLIC
from e2e.owned.sized_pods import DOORS, EXTENDER, MANIFESTS, SizedPods
from e2e.space import REST, Space, container
from e2e.stage import NODE_AGENT, Raw, Stage, eventually
from kubeshare import fakegpu
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.core.units import MI
from kubeshare.lab.errors import LabError

CARD: Final = 16384
"""MiB of each of the two GPUs of the node; the published ones have 16276."""
ONE_DEVICE: Final = "Insufficient GPU Memory in one device"
NODE: Final = f"2 Insufficient {GPU_MEM}"
"""What kube-scheduler says where its own sums leave out both nodes of the lab."""
GRACE_SECONDS: Final = 3
ROUNDS: Final = 4


def test_each_published_case_is_somewhere() -> None:
    assert HERE.keys() | ELSEWHERE.keys() == PUBLIC
    assert not HERE.keys() & ELSEWHERE.keys()
    for described in HERE.values():
        assert described.partition(":")[0] in globals(), described
    for case in ELSEWHERE.values():
        assert case.test in (pages.ROOT / "tests" / case.path).read_text(), case


@pytest.fixture(scope="module", params=DOORS)
def door(request: pytest.FixtureRequest, stage: Stage, taken_over: OwnedNode) -> Iterator[str]:
    """The node counts in MiB, and pods are placed by one door."""
    taken_over.stop_plugin()
    taken_over.until_owned()
    taken_over.until_free()
    by_extender = request.param == EXTENDER
    with calling_the_extender(stage, taken_over) if by_extender else nullcontext():
        stage.configure(gpushare={"door": request.param, "memoryUnit": "MiB"})
        stage.kubectl("label", "node", taken_over.name, "gpushare=true")
        yield request.param
        taken_over.dedicate_to_none()
        stage.configure()


@pytest.fixture(scope="module")
def door_space(door: str, stage: Stage) -> Iterator[Space]:
    """A namespace for all tests of one door."""
    del door
    with space_in(stage) as space:
        yield space


@pytest.fixture
def pods(door: str, taken_over: OwnedNode, door_space: Space) -> Iterator[SizedPods]:
    """The pods of one test."""
    taken_over.until_allocatable({GPU_MEM: str(2 * CARD), GPU_COUNT: "2"})
    pods = SizedPods(door_space, taken_over, door)
    yield pods
    pods.clear()


def user_guide() -> Raw:
    """The StatefulSet of the user guide, with its GiB in MiB."""
    text = (pages.ROOT / "examples" / "gpushare" / "user-guide.yaml").read_text(encoding="utf-8")
    manifest: Raw = yaml.safe_load(text)
    [only] = manifest["spec"]["template"]["spec"]["containers"]
    only["resources"]["limits"][GPU_MEM] *= 1024
    return manifest


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def why(door: str, by_extender: str, by_manifests: str = "NoRoom") -> str:
    """What the condition says, by the door."""
    return by_extender if door == EXTENDER else by_manifests


@pytest.mark.lab
def test_which_gpu(door: str, pods: SizedPods) -> None:
    # 1 and 2: the fixture has waited for the capacity.
    pods.use(a=(0, 8138))
    pods.use(b=(1, 8138))
    pods.create("whole", 16276)
    pods.expect_waiting("whole", why(door, ONE_DEVICE))  # 10
    pods.delete("whole")

    pods.use(a1=(0, 4069), b1=(1, 4069))  # N2
    pods.create("half", 8138)
    pods.create("sum", 5000, 5000)
    pods.expect_waiting("half", why(door, ONE_DEVICE))  # 4
    pods.expect_waiting("sum", why(door, NODE))  # 16

    pods.use(a2=(0, 4069))  # N1
    pods.create("first", 8138)
    pods.expect_waiting("first", why(door, NODE))  # 3
    pods.delete("first")

    pods.use(b2=(1, 4069))
    pods.until_gone("a")  # N3
    assert pods.until_placed("half") == {"half": 0}  # 5
    assert "sum" not in pods.placed()  # 16
    pods.delete("sum")

    pods.until_gone("half", "a2", "b1", "b2")
    pods.create("closest", 8138)
    assert pods.until_placed("closest") == {"closest": 1}  # 6
    pods.create("both", 5000, 5000)
    assert pods.until_placed("both") == {"both": 0}  # 16
    expected = {"IDX": 0, "POD": 10000, "CONTAINER": 5000, "DEV": CARD}
    for name in ("c0", "c1"):  # 28
        variables, _ = pods.inside("both", name)
        assert expected.items() <= {key: _number(each) for key, each in variables.items()}.items()


@pytest.mark.lab
def test_how_many(door: str, pods: SizedPods, stage: Stage, taken_over: OwnedNode) -> None:
    pods.create("more", CARD + 1)
    pods.create("gib", 1024 * 1024)
    pods.expect_waiting("more", why(door, ONE_DEVICE, "NeverFits"))  # 12
    pods.expect_waiting("gib", why(door, NODE, "NeverFits"))  # 8
    halves = [f"half-{number}" for number in range(5)]
    for name in halves:
        pods.create(name, 8138, slow=True)
    placed, left = pods.all_but_one_placed(halves)
    assert Counter(placed.values()) == {0: 2, 1: 2}  # 7 and 9
    pods.expect_waiting(left, why(door, NODE))

    # 26: equal pods that came at once are on the GPUs that the record says.
    uuids = {gpu["index"]: gpu["uuid"] for gpu in taken_over.devices}
    by_gpu = {index: name for name, index in placed.items()}
    for index, name in by_gpu.items():
        variables, gpus = pods.inside(name)
        assert (variables["IDX"], gpus) == (str(index), {uuids[index]: 8138 * MI})

    stage.kubectl("label", "node", taken_over.name, "cgpu.disable.isolation=true")
    begun = time.monotonic()
    pods.delete(by_gpu[1], seconds=GRACE_SECONDS)
    assert pods.until_placed(left) == {left: 1}  # 23
    assert time.monotonic() - begun >= GRACE_SECONDS, "its containers had not ended"
    variables, gpus = pods.inside(left)
    assert (variables["CGPU_DISABLE"], gpus) == ("true", {uuids[1]: CARD * MI})  # 29
    stage.kubectl("label", "node", taken_over.name, "cgpu.disable.isolation-")

    rest = ("rest-0", "rest-1")
    for name in rest:
        pods.create(name, CARD - 2 * 8138)
    assert sorted(pods.until_placed(*rest).values()) == [0, 1]
    pods.create("one", 1)
    pods.expect_waiting("one", why(door, NODE))  # 11


@pytest.mark.lab
def test_what_follows(door: str, pods: SizedPods, stage: Stage, taken_over: OwnedNode) -> None:
    space = pods.space
    unshared = {"plain": {"cpu": "10m"}, "counted": {GPU_COUNT: "2"}}
    for name, limits in unshared.items():
        pods.create_of(name, [container(REST, resources={"limits": limits})])
    space.create(user_guide())
    lives = space.until_running(3, app="binpack-1")
    names = [f"binpack-1-{number}" for number in range(3)]
    assert set(pods.until_placed(*names).values()) == {0}  # 31
    table = pages.run(stage, "kubectl inspect gpushare")
    assert f"{3 * 3072}/{2 * CARD} (28%)" in table
    assert f"{3 * 3072}/{CARD}" in table
    expected = {"DEV": CARD, "CONTAINER": 3072, "POD": 3072, "IDX": 0}
    variables, _ = pods.inside(names[0], "binpack-1")
    assert expected.items() <= {key: _number(each) for key, each in variables.items()}.items()

    for name in unshared:  # 33 and 34
        space.until_phase(name, "Running")
        assert published(space, name) == {}
    space.event("counted", "NoGPU")
    assert PREFIX not in space.run("counted", "env")

    if door == EXTENDER:  # 20 and 24
        before = inspected(stage, taken_over.name)
        for replica in stage.system_pods("extender"):
            path = f"/api/v1/namespaces/{NAMESPACE}/pods/{replica['metadata']['name']}"
            stage.lab.api.send("DELETE", path, {"gracePeriodSeconds": 0})
        stage.until_ready("extender")
        expect_refusals(pods, taken_over.name)
        assert inspected(stage, taken_over.name) == before == {0: (9216, CARD), 1: (0, CARD)}

    # 25
    again = ["again-0", "again-1", "again-2"]
    for _ in range(ROUNDS):
        for name in again:
            pods.create(name, 1000)
        eventually(
            lambda: all("IDX" in published(space, name) for name in again), "the pods to be bound"
        )
        pods.delete(*again, seconds=0)
    eventually(lambda: set(pods.placed()) == set(names), "what was deleted to hold nothing")
    assert space.until_running(3, app="binpack-1") == lives


def expect_refusals(pods: SizedPods, node: str) -> None:
    """A bind of what is not there, or has no room, writes nothing (20 and 12)."""
    stage, space = pods.space.stage, pods.space
    pods.create("large", CARD + 1)
    pods.expect_waiting("large", ONE_DEVICE)
    pod, placed = space.find_pod("large"), pods.placed()
    assert pod is not None
    valid = {
        "PodName": "large",
        "PodNamespace": space.name,
        "PodUID": pod["metadata"]["uid"],
        "Node": node,
    }
    refused: dict[str, Raw | str] = {
        "not equal with expected another": valid | {"PodUID": "another"},
        'pods \\"b\\" not found': valid | {"PodName": "b"},
        'node \\"n9\\" not found': valid | {"Node": "n9"},
        "can't place the pod large": valid,
        "Error": "no object",
    }
    for words, arguments in refused.items():
        with pytest.raises(LabError, match="HTTP Error 500") as error:
            call(stage, "bind", arguments)
        assert words in str(error.value)
    assert (space.find_pod("large"), pods.placed()) == (pod, placed)


@pytest.mark.lab
def test_failing(door: str, pods: SizedPods, stage: Stage, taken_over: OwnedNode) -> None:
    pods.create("stays", 1000)
    assert pods.until_placed("stays") == {"stays": 0}
    life = pods.space.until_running(1)
    raise_error(stage, taken_over, gpu=1, xid=31)
    raise_error(stage, taken_over, gpu=0, xid=48)
    if door == MANIFESTS:  # 30
        taken_over.restart_kubelet()
    until_healthy(taken_over, [False, True])  # 35
    taken_over.until_allocatable({GPU_MEM: str(CARD), GPU_COUNT: "2"})
    pods.create("other", 1000)
    assert pods.until_placed("other") == {"other": 1}  # 17
    assert pods.placed() == {"stays": 0, "other": 1}
    assert life < pods.space.until_running(2)

    # An agent that starts knows of no error, so the GPU is healthy again.
    stage.kill_process(NODE_AGENT, taken_over.name)
    until_healthy(taken_over, [True, True])


def raise_error(stage: Stage, node: OwnedNode, *, gpu: int, xid: int) -> None:
    """Have an error happen to a GPU of the node."""
    fakegpu.raise_error(stage.node(node.name).state_folder, gpu, xid)


def until_healthy(node: OwnedNode, expected: list[bool]) -> None:
    """Wait until just these GPUs are reported as healthy, by their indices."""

    def seen() -> list[bool]:
        by_index = sorted((gpu["index"], gpu.get("healthy", True)) for gpu in node.devices)
        return [healthy for _, healthy in by_index]

    eventually(lambda: seen() == expected, f"GPUs healthy {expected}", explain=lambda: str(seen()))

"""gpu-admission's and gpu-manager's sequences of pods, through both doors."""

import asyncio

import pytest

from expectations.pods import expect_condition, expect_running
from fakes.cluster import FakeCluster, run_scenario
from fakes.cluster.disruptions import fail_gpu
from fakes.cluster.doors import DOORS, begin, create, link_six, node_of, place
from fakes.cluster.predicates import bind, container, fit, placed, pod
from fakes.cluster.state import the_pod
from fakes.cluster.vcuda import gated_pod, published
from kubeshare.api.types.constants import CONDITION_POD_SCHEDULED
from kubeshare.api.types.v1 import GPUNODES, VGPUS
from kubeshare.dialects.write_back import VCUDA_INDEX as INDEX

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("door", DOORS)
def test_the_test_of_gpu_admission(door: str) -> None:
    """S7: three nodes of two GPUs, of 4 blocks each in that test and of 64 here.

    There, the third pod asks for more blocks than a node has, which kube-scheduler refuses first.
    """

    async def play(cluster: FakeCluster) -> None:
        await begin(cluster, door)
        pods = (("10/16", "10/16"), ("100/48", "80/48"), ("200/128",), ("10/32",))
        for number, asked in enumerate(pods):
            await place(cluster, door, f"p{number}", *asked)
        found = [node_of(cluster, f"p{number}") for number in range(4)]
        assert found == ["n0", "n1", "n2", "n0"]

    run_scenario(play, n0=2, n1=2, n2=2)


@pytest.mark.parametrize("door", DOORS)
def test_a_fraction_after_a_whole_gpu_never_mismatches(door: str) -> None:
    """S8: in gpu-admission, the annotation of the whole GPU came too late for the fraction."""

    async def play(cluster: FakeCluster) -> None:
        await begin(cluster, door)
        if door == "extender":
            for name, cores in (("whole", "100"), ("part", "50")):
                pod(cluster, name, cores)
                assert (await fit(cluster, name))["NodeNames"] == ["n0"]
            for name in ("part", "whole"):
                bind(cluster, name, "n0")
        else:
            for name, cores in (("whole", "100"), ("part", "50")):
                gated_pod(cluster, name, container("c0", cores))
        await expect_running(cluster, "whole", "part")
        [[(_, whole)], [(_, part)]] = (placed(cluster)[name] for name in ("whole", "part"))
        assert whole != part
        assert published(cluster, "whole")[INDEX + "0"] == str(whole)
        assert published(cluster, "part")[INDEX + "0"] == str(part)

    run_scenario(play, n0=2)


def test_pods_of_equal_cores_that_start_in_another_order_have_their_own_memory() -> None:
    """S11: gpu-manager finds the pod of a container by the number of its cores."""

    async def play(cluster: FakeCluster) -> None:
        await begin(cluster, "extender")
        blocks = {"a": 8, "b": 24}
        for name, each in blocks.items():
            pod(cluster, name, f"30/{each}")
            assert (await fit(cluster, name))["NodeNames"] == ["n0"]
        for name in ("b", "a"):
            bind(cluster, name, "n0")
            await expect_running(cluster, name)
        memory = {
            holder["name"]: holder["memoryBytes"]
            for vgpu in cluster.server.all(VGPUS)
            for holder in vgpu["status"].get("holders", ())
        }
        assert memory == {name: each << 28 for name, each in blocks.items()}

    run_scenario(play, n0=1)


def test_a_pod_whose_binding_failed_is_placed_again() -> None:
    """S10: gpu-admission refuses it for ever, as one that had been predicated."""

    async def play(cluster: FakeCluster) -> None:
        await begin(cluster, "extender")
        pod(cluster, "a", "60")
        [first] = (await fit(cluster, "a"))["NodeNames"]
        other = {"n0": "n1", "n1": "n0"}[first]
        await cluster.quiet(5)  # the binding fails, and that node is full when it is tried again
        assert (await fit(cluster, "a", other))["NodeNames"] == [other]
        bind(cluster, "a", other)
        await expect_running(cluster, "a")

    run_scenario(play, n0=1, n1=1)


@pytest.mark.parametrize("door", DOORS)
def test_the_sequence_of_gpu_managers_allocator(door: str) -> None:
    """S1: six GPUs; each pod gets the GPUs of that test, and all cores are used at the end."""

    async def play(cluster: FakeCluster) -> None:
        await begin(cluster, door)
        link_six(cluster, "n0")
        await cluster.quiet(1)
        await place(cluster, door, "p1", "300")
        await place(cluster, door, "p2", "100", "100")
        await place(cluster, door, "p3", "100")
        gone = placed(cluster)["p2"]
        cluster.actors.delete(the_pod(cluster, "p2"))
        await cluster.until(lambda: "p2" not in placed(cluster))
        for name, asked in (("p4", "50/1"), ("p5", "60/1"), ("p6", "50/1")):
            await place(cluster, door, name, asked)
        cluster.actors.delete(the_pod(cluster, "p5"))
        await cluster.until(lambda: "p5" not in placed(cluster))
        await place(cluster, door, "p7", "100")
        held = placed(cluster)
        assert [index for _, index in held["p1"]] == [0, 1, 2]
        assert held["p4"] == held["p6"]
        assert sorted(held["p4"] + held["p7"]) == gone
        used = sum(
            holder["requestMicros"]
            for vgpu in cluster.server.all(VGPUS)
            for holder in vgpu["status"]["holders"]
        )
        assert used == 6_000_000

    run_scenario(play, n0=6)


@pytest.mark.parametrize("door", DOORS)
def test_two_pods_at_one_time_get_different_room(door: str) -> None:
    """S9: two filters of gpu-admission within a millisecond know nothing of each other."""

    async def play(cluster: FakeCluster) -> None:
        await begin(cluster, door)
        for name in "abc":
            create(cluster, door, name, "60")
        if door == "extender":
            answers = await asyncio.gather(*(fit(cluster, name) for name in "abc"))
            assert sorted(len(answer["NodeNames"]) for answer in answers) == [0, 1, 1]
            for name in placed(cluster):
                bind(cluster, name, "n0")
        await cluster.until(lambda: len(placed(cluster)) == 2)
        await expect_running(cluster, *placed(cluster))
        assert sorted(placed(cluster).values()) == [[("n0", 0)], [("n0", 1)]]

    run_scenario(play, n0=2)


@pytest.mark.parametrize("door", DOORS)
def test_a_gpu_with_an_error_is_not_chosen(door: str) -> None:
    """S15: gpu-manager reports every GPU as healthy, always."""

    async def play(cluster: FakeCluster) -> None:
        await begin(cluster, door)
        await place(cluster, door, "before", "30")
        [(_, failed)] = placed(cluster)["before"]
        fail_gpu(cluster, "n0", failed)
        await cluster.quiet(1)
        await place(cluster, door, "after", "30")
        assert placed(cluster)["after"] == [("n0", 1 - failed)]

    run_scenario(play, n0=2)


@pytest.mark.parametrize("door", DOORS)
def test_the_containers_of_a_pod_get_their_own_gpus_by_their_numbers(door: str) -> None:
    """S16: a whole GPU and half of another."""

    async def play(cluster: FakeCluster) -> None:
        await begin(cluster, door)
        await place(cluster, door, "a", "100", "50/4")
        written = [published(cluster, "a")[f"{INDEX}{number}"] for number in (0, 1)]
        assert sorted(written) == ["0", "1"]
        assert [index for _, index in placed(cluster)["a"]] == [0, 1]

    run_scenario(play, n0=2)


@pytest.mark.parametrize("door", DOORS)
def test_each_gpu_of_a_node_counts_its_own_memory(door: str) -> None:
    """S17: gpu-admission divides the memory of a node by the number of its GPUs."""

    async def play(cluster: FakeCluster) -> None:
        sizes = [{"memoryBytes": gib << 30} for gib in (8, 24)]
        devices = [
            gpu | size for gpu, size in zip(cluster.actors.devices["n0"], sizes, strict=True)
        ]
        cluster.server.change(GPUNODES, "n0", "", lambda obj: obj["spec"].update(devices=devices))
        await begin(cluster, door)
        for name in "ab":  # 40 blocks are 10 GiB: more than GPU 0 has, less than their average
            await place(cluster, door, name, "50/40")
        assert placed(cluster) == {name: [("n0", 1)] for name in "ab"}
        create(cluster, door, "c", "50/40")
        if door == "extender":
            [reason] = (await fit(cluster, "c"))["FailedNodes"].values()
        else:
            await expect_condition(cluster, "c", CONDITION_POD_SCHEDULED, status="False")
            reason = cluster.pod_condition("c")["message"]
        assert "8Gi" in reason

    run_scenario(play, n0=2)


@pytest.mark.parametrize("door", DOORS)
def test_a_node_without_gpus_is_passed_over(door: str) -> None:
    """S18."""

    async def play(cluster: FakeCluster) -> None:
        await begin(cluster, door)
        await place(cluster, door, "a", "50")
        assert node_of(cluster, "a") == "n1"

    run_scenario(play, n0=0, n1=1)

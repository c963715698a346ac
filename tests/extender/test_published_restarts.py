"""Gaia's sequences in which pods are asked for twice, and programs or pods end in the middle."""

from functools import partial

import pytest

from expectations.pods import expect_bound, expect_running
from fakes.cluster import FakeCluster, run_scenario, scenario
from fakes.cluster.doors import DOORS, begin, create, link_six, place
from fakes.cluster.predicates import expect_placed, fit, placed, schedule
from fakes.cluster.state import the_pod
from fakes.cluster.vcuda import published
from kubeshare.api.types.v1 import GPUNODES
from kubeshare.dialects.write_back import VCUDA_INDEX as INDEX
from kubeshare.kube.resources import PODS, Raw

pytestmark = pytest.mark.slow

OTHER = {"manifests": "scheduler", "extender": "extender"}
"""Door → the program that decides."""


async def reserve(cluster: FakeCluster, door: str, name: str, *asked: str) -> None:
    """Lets a pod have its GPUs and not be bound yet."""
    cluster.actors.binds = False
    create(cluster, door, name, *asked)
    if door == "extender":
        assert (await fit(cluster, name))["NodeNames"] == ["n0"]
    await cluster.until(lambda: name in placed(cluster))


async def release(cluster: FakeCluster, door: str, name: str) -> None:
    """Lets such a pod be bound; waits until it runs."""
    if door == "extender":
        assert await schedule(cluster, name) == ""
    cluster.actors.binds = True
    cluster.actors.reconcile()
    await expect_running(cluster, name)


async def restart(cluster: FakeCluster, door: str) -> None:
    """Kills the programs and starts them again."""
    await cluster.kill()
    cluster.start("devices", OTHER[door])
    await cluster.quiet(2)


def _set_owners(owners: list[Raw], pod: Raw) -> None:
    pod["metadata"]["ownerReferences"] = owners


def _set_restarts(count: int, pod: Raw) -> None:
    started = {"name": "c0", "restartCount": count, "state": {"running": {}}}
    pod["status"]["containerStatuses"] = [started]


@pytest.mark.parametrize("door", DOORS)
def test_who_is_asked_for_twice_keeps_the_first_answer(door: str) -> None:
    """S2: all six GPUs, asked for again while they are reserved, after a restart too."""

    async def play(cluster: FakeCluster) -> None:
        await begin(cluster, door)
        await reserve(cluster, door, "a", "600")
        first = placed(cluster)
        if door == "extender":
            assert (await fit(cluster, "a"))["NodeNames"] == ["n0"]
            assert placed(cluster) == first
        await restart(cluster, door)
        await release(cluster, door, "a")
        assert placed(cluster) == first
        assert [index for _, index in first["a"]] == list(range(6))

    run_scenario(play, n0=6)


@pytest.mark.parametrize("door", DOORS)
def test_of_pods_that_ended_while_nothing_ran_only_the_pending_one_keeps_its_gpu(
    door: str,
) -> None:
    """S3: gpu-manager's checkpoint has a pending pod, a failed one and a deleted one."""

    async def play(cluster: FakeCluster) -> None:
        await begin(cluster, door)
        for name in ("failed", "deleted"):
            await place(cluster, door, name, "100")
        await reserve(cluster, door, "pending", "100")
        kept = placed(cluster)["pending"]
        await cluster.kill()
        cluster.end("failed", "Failed")
        cluster.actors.delete(the_pod(cluster, "deleted"))
        await restart(cluster, door)
        await expect_placed(cluster, {"pending": kept})
        await release(cluster, door, "pending")
        await place(cluster, door, "rest", "500")
        assert placed(cluster)["pending"] == kept

    run_scenario(play, n0=6)


OWNERS: dict[str, list[Raw]] = {
    "nobody": [],
    "pod": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p-uid"}],
    "replicas": [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r-uid"}
        | {"controller": True}
    ],
}


@pytest.mark.parametrize("door", DOORS)
def test_predictions_that_do_not_come_true_fail_nobody(door: str) -> None:
    """S4: there, pods that name GPUs 5, 4 and 3 fail, since the node picks GPU 0."""

    async def play(cluster: FakeCluster) -> None:
        link_six(cluster, "n0")
        await begin(cluster, door)
        for (name, owners), predicted in zip(OWNERS.items(), "543", strict=True):
            written = {INDEX + "0": predicted, "tencent.com/predicate-time": "1"}
            create(cluster, door, name, "5/3", **written)
            cluster.server.change(PODS, name, "default", partial(_set_owners, owners))
            uid = the_pod(cluster, name)["metadata"]["uid"]
            if door == "extender":
                assert await schedule(cluster, name) == ""
            await expect_running(cluster, name)
            assert the_pod(cluster, name)["metadata"]["uid"] == uid
        assert placed(cluster) == {name: [("n0", 0)] for name in OWNERS}
        await cluster.until(
            lambda: all(published(cluster, name)[INDEX + "0"] == "0" for name in OWNERS)
        )

    run_scenario(play, n0=6)


@pytest.mark.parametrize("door", DOORS)
def test_a_container_that_restarts_keeps_its_gpus_in_their_order(door: str) -> None:
    """S14: the minors of the node are not in the order of its indices."""

    async def play(cluster: FakeCluster) -> None:
        minors = {0: 3, 1: 0, 2: 2, 3: 1}
        devices = [gpu | {"minor": minors[gpu["index"]]} for gpu in cluster.actors.devices["n0"]]
        cluster.server.change(GPUNODES, "n0", "", lambda obj: obj["spec"].update(devices=devices))
        cluster.link("n0", gpu_0_1="PIX", gpu_2_3="PIX")
        await begin(cluster, door)
        await place(cluster, door, "a", "200")
        first, written = placed(cluster), published(cluster, "a")[INDEX + "0"]
        assert sorted(map(int, written.split(","))) == sorted(
            minors[index] for _, index in first["a"]
        )
        for restarts in (1, 2):
            cluster.server.change(PODS, "a", "default", partial(_set_restarts, restarts))
            await restart(cluster, door)
            assert (placed(cluster), published(cluster, "a")[INDEX + "0"]) == (first, written)

    run_scenario(play, n0=4)


@scenario(agents=True, n0=2)
async def test_a_pod_that_is_deleted_while_it_is_prepared_holds_nobody_up(
    cluster: FakeCluster,
) -> None:
    """S12: gpu-manager tries to patch the deleted pod for ever, and starts no other."""
    cluster.start("agent/n0")
    await begin(cluster, "manifests")
    await cluster.kill("devices")  # so that the agent waits for the uid in the holder
    create(cluster, "manifests", "gone", "100")
    await expect_bound(cluster, "gone")
    await cluster.quiet(1)
    cluster.actors.delete(the_pod(cluster, "gone"))
    cluster.start("devices")
    await place(cluster, "manifests", "next", "200")
    assert placed(cluster) == {"next": [("n0", 0), ("n0", 1)]}
    await cluster.until(lambda: len(cluster.machines["n0"].left()) == 3)  # grant, spec, container


@scenario(agents=True, n0=2)
async def test_an_agent_that_restarts_beside_running_pods_needs_no_file_of_the_kubelet(
    cluster: FakeCluster,
) -> None:
    """S13: gpu-manager does not start before the kubelet has written its checkpoint."""
    cluster.start("agent/n0")
    await begin(cluster, "manifests")
    await place(cluster, "manifests", "a", "60")
    machine, before = cluster.machines["n0"], placed(cluster)
    left = machine.left()
    await cluster.kill("agent/n0")
    assert not list(machine.paths.device_plugins_folder.glob("*checkpoint*"))
    cluster.start("agent/n0")
    await cluster.quiet(60)
    assert (placed(cluster), machine.left()) == (before, left)
    await place(cluster, "manifests", "b", "40")
    assert placed(cluster)["b"] == before["a"]

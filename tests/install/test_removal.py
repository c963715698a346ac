"""Uninstalls KubeShare from a cluster in use; running pods keep their GPUs."""

import pytest

import samples
from expectations.pods import expect_running
from expectations.scheduling import expect_decided, expect_pending
from expectations.vgpus import expect_released, expect_vgpus
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.disruptions import label_node, own, report_unrecorded
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.api.types.v1 import SHAREPODS, VGPUS
from kubeshare.device_manager.owned.controller import SETTLED_SECONDS
from kubeshare.dialects.gpushare import GPU_COUNT as COUNT
from kubeshare.install import manifests
from kubeshare.install import uninstall as removal
from kubeshare.kube.client.errors import ApiError
from kubeshare.kube.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    NODES,
    PODS,
    VALIDATING_ADMISSION_POLICIES,
    Raw,
)
from kubeshare.simulator.control import Fault, ObjectPath, run_virtual

PROGRAMS = {"kubeshare-scheduler": "scheduler", "kubeshare-device-manager": "devices"}


def install(cluster: FakeCluster) -> list[manifests.Manifest]:
    """Installs the manifests; the programs stop with their workloads."""
    loaded = manifests.load(manifests.Options())
    for manifest in loaded:
        cluster.server.seed(manifests.resource_of(manifest), manifest)
    cluster.server.storage.after_change.append(lambda place, new: changed(cluster, place, new))
    return loaded


def changed(cluster: FakeCluster, place: ObjectPath, new: Raw | None) -> None:
    """Does what Kubernetes does after the deletion of an object."""
    if new is not None:
        return
    if place.plural == "deployments":
        cluster.beside(cluster.kill(PROGRAMS[place.name]))
    if place == ObjectPath("apps", "daemonsets", NAMESPACE, "kubeshare-node-agent"):
        cluster.beside(cluster.kill(*(f"agent/{node}" for node in cluster.machines)))
    if place.plural == "customresourcedefinitions":
        for resource in (SHAREPODS, VGPUS):
            if place.name.startswith(resource.plural):
                for obj in cluster.server.all(resource):
                    metadata = obj["metadata"]
                    cluster.server.remove(resource, metadata["name"], metadata.get("namespace", ""))


async def uninstall(
    cluster: FakeCluster,
    loaded: list[manifests.Manifest],
    wait: float = 0,
    said: list[str] | None = None,
) -> list[str]:
    say = (lambda _: None) if said is None else said.append
    async with (
        cluster.server.client("administrator") as client,
        cluster.server.client("device-manager") as device_manager,
    ):
        return await removal.uninstall(
            client, device_manager, loaded, wait=wait, deadline=60, say=say
        )


async def uninstall_at_last(
    cluster: FakeCluster, loaded: list[manifests.Manifest], wait: float = 0
) -> list[str]:
    """Repeats an interrupted uninstall."""
    try:
        return await uninstall(cluster, loaded, wait)
    except ApiError:
        return await uninstall(cluster, loaded, wait)


def nothing_is_left(cluster: FakeCluster) -> bool:
    kinds = cluster.server.all(CUSTOM_RESOURCE_DEFINITIONS)
    return not (
        kinds or cluster.vgpus() or cluster.placeholders() or cluster.server.all(DAEMON_SETS)
    )


def guarded(cluster: FakeCluster, placeholder: str) -> bool:
    """Whether there is the policy that protects this placeholder."""
    policy = cluster.server.stored(VALIDATING_ADMISSION_POLICIES, "kubeshare-guard-placeholders")
    return policy is not None and cluster.pod(placeholder, NAMESPACE) is not None


def deleted_by_device_manager(cluster: FakeCluster) -> list[str]:
    """What uninstall deleted in the name of the device manager."""
    return [
        each.path.name
        for each in cluster.server.requests
        if each.client == "device-manager" and each.is_write
    ]


def pods(cluster: FakeCluster) -> list[Raw]:
    return cluster.server.all(PODS, "default")


@scenario(n1=1, agents=True)
async def test_pods_run_on_and_keep_their_gpu_until_they_end(cluster: FakeCluster) -> None:
    loaded = install(cluster)
    cluster.start()
    await cluster.run("a")

    assert await uninstall(cluster, loaded, wait=20) == ["default/a on n1"]
    await cluster.quiet(300)
    assert cluster.machines["n1"].containers
    assert cluster.running("a")
    assert cluster.shares_gpu("a")
    (placeholder,) = cluster.placeholders()
    assert not cluster.server.all(SHAREPODS)
    assert guarded(cluster, placeholder)
    assert not deleted_by_device_manager(cluster)

    (pod,) = pods(cluster)
    cluster.actors.delete(pod)
    assert await uninstall(cluster, loaded, wait=60) == []
    assert nothing_is_left(cluster)
    assert {*deleted_by_device_manager(cluster)} == {placeholder}


@pytest.mark.slow
@scenario(n1=2, agents=True)
async def test_it_is_taken_off_while_sharepods_come(cluster: FakeCluster) -> None:
    loaded = install(cluster)
    cluster.start()
    await cluster.run("a", "0.7")
    cluster.share("b", "0.7")
    await expect_vgpus(cluster, 1 + 1)
    cluster.share("c", "0.3")

    running = await uninstall(cluster, loaded)

    assert "default/a on n1" in running
    assert cluster.running("a")
    assert not cluster.server.all(SHAREPODS)
    for pod in pods(cluster):
        assert not pod["metadata"]["ownerReferences"]
        cluster.actors.delete(pod)
    assert await uninstall(cluster, loaded, wait=60) == []
    assert nothing_is_left(cluster)


@scenario(n1=1)
async def test_a_gpu_is_kept_while_a_pod_runs_that_the_record_lacks(cluster: FakeCluster) -> None:
    loaded = install(cluster)
    cluster.start()
    await cluster.run("a")
    cluster.invariants.restored = True
    report_unrecorded(cluster, "default/b")
    cluster.delete("a")
    await expect_released(cluster, "a")

    assert await uninstall(cluster, loaded, wait=20) == ["default/b on n1"]
    assert cluster.vgpus()
    assert cluster.placeholders()
    assert cluster.server.all(DAEMON_SETS)

    report_unrecorded(cluster)
    assert await uninstall(cluster, loaded, wait=20) == []
    assert nothing_is_left(cluster)


@scenario(n1=1)
async def test_the_node_programs_stay_for_a_pod_whose_vgpu_the_record_lacks(
    cluster: FakeCluster,
) -> None:
    loaded = install(cluster)
    cluster.start()
    cluster.invariants.restored = True
    report_unrecorded(cluster, "default/b")

    assert await uninstall(cluster, loaded, wait=20) == ["default/b on n1"]
    assert cluster.server.all(DAEMON_SETS)

    report_unrecorded(cluster)
    assert await uninstall(cluster, loaded) == []
    assert nothing_is_left(cluster)


@scenario(n1=1)
async def test_a_cluster_without_kubeshare_stays_as_it_is(cluster: FakeCluster) -> None:
    loaded = manifests.load(manifests.Options())
    cluster.native_pod("native")
    assert await uninstall(cluster, loaded) == []
    assert cluster.pod("native")


@scenario(n1=1, agents=True)
async def test_what_is_given_back_takes_no_holder_and_goes_though_it_is_cut_off(
    cluster: FakeCluster,
) -> None:
    loaded = install(cluster)
    cluster.start()
    await cluster.run("a")
    cluster.configure(pool={"policy": "reservation"})
    cluster.delete("a")
    await expect_released(cluster, "a")
    ((name, holders),) = cluster.vgpus().items()
    assert not holders
    cluster.server.inject(Fault.refuse(), verb="delete", resource="pods")

    with pytest.raises(ApiError):
        await uninstall(cluster, loaded)

    (placeholder,) = cluster.placeholders()
    assert guarded(cluster, placeholder)
    assert cluster.vgpu(name)["status"]["phase"] == "Deleting"
    cluster.start("devices")
    await cluster.until(lambda: name not in cluster.vgpus())
    assert placeholder not in cluster.placeholders()


@pytest.mark.slow
@scenario(n1=1, agents=True)
async def test_what_does_not_go_is_named(cluster: FakeCluster) -> None:
    loaded = install(cluster)
    cluster.reserve("n1", "kept")
    metadata = {"name": "kubeshare-vgpu-kept", "namespace": NAMESPACE, "finalizers": ["a/b"]}
    spec = {"containers": [], "schedulingGates": [{"name": "a/b"}]}
    cluster.server.seed(PODS, {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})
    with pytest.raises(removal.RemovalError, match="vGPUs kept"):
        await uninstall(cluster, loaded)


def cut_off(fault: Fault, write: int) -> bool:
    """Uninstalls with a fault at one write, and again; returns whether there is that write."""

    async def steps(cluster: FakeCluster) -> None:
        loaded = install(cluster)
        cluster.start()
        await cluster.run("a")
        cluster.share("b", "0.9")
        await expect_decided(cluster, "b")
        before = cluster.server.writes
        cluster.server.inject_at_write(before + write, fault)
        assert await uninstall_at_last(cluster, loaded) == ["default/a on n1"]
        assert cluster.machines["n1"].containers
        await cluster.quiet(60)
        assert cluster.running("a")
        assert not cluster.server.all(SHAREPODS)
        (pod,) = pods(cluster)
        cluster.actors.delete(pod)
        assert await uninstall_at_last(cluster, loaded, wait=60) == []
        assert nothing_is_left(cluster)
        reached.append(cluster.server.writes - before >= write)

    reached: list[bool] = []
    cluster = FakeCluster(n1=1)
    cluster.agents = True
    run_virtual(cluster.play(steps))
    return reached[0]


@pytest.mark.slow
@pytest.mark.sampled
def test_it_may_be_cut_off_at_any_write_and_begun_again() -> None:
    """A write fails, before it takes effect or before its response."""
    write = 1
    while cut_off(Fault.reset(after=write % 4 == 1), write):
        write += samples.count(whole=2, sample=10)
    assert write > len(PROGRAMS)


@pytest.mark.slow
@scenario(n1=1, agents=True)
async def test_a_plain_pod_runs_on_and_one_that_waits_is_named(cluster: FakeCluster) -> None:
    loaded, said = install(cluster), list[str]()
    cluster.start()
    cluster.plain("a", "0.7")
    await expect_running(cluster, "a")
    cluster.plain("b", "0.7")
    await expect_pending(cluster, "b")

    assert await uninstall(cluster, loaded, wait=20, said=said) == ["default/a on n1"]
    assert (
        "1 pods wait behind the gate kubeshare.nthu/gpu, which is not removed any more" in said[1]
    )
    assert said[1].endswith("(default/b)")
    await cluster.quiet(100)
    assert cluster.running("a")
    cluster.end("a")
    await expect_released(cluster)
    assert await uninstall(cluster, loaded, wait=20) == []
    assert nothing_is_left(cluster)


@scenario(n1=1, n2=1, agents=True)
async def test_a_node_no_longer_counts_gpus_for_gpushare(cluster: FakeCluster) -> None:
    cluster.deadline = 5 * SETTLED_SECONDS
    loaded = install(cluster)
    cluster.start()
    own(cluster, "n1")
    label_node(cluster, "n1", family="gpushare")
    theirs = {COUNT: "4"}
    cluster.server.change(
        NODES, "n2", "", lambda node: node["status"]["allocatable"].update(theirs)
    )
    await cluster.until(lambda: counted(cluster, "n1") == "1")

    assert await uninstall(cluster, loaded, wait=60) == []
    await cluster.quiet(30)
    assert (counted(cluster, "n1"), counted(cluster, "n2")) == (None, "4")


def counted(cluster: FakeCluster, node: str) -> str | None:
    """The number of GPUs in the status of a node."""
    found = cluster.server.stored(NODES, node)
    assert found is not None
    count: str | None = found["status"]["allocatable"].get(COUNT)
    return count

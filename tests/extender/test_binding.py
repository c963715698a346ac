"""A bind reserves a share and binds the pod, or leaves nothing behind."""

import asyncio

import pytest

from expectations.pods import expect_running
from expectations.vgpus import expect_holders
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.disruptions import label_node
from fakes.cluster.extender import (
    bind,
    call,
    fit,
    held_by_others,
    placed,
    pod,
    schedule,
    start,
    vgpus,
)
from fakes.cluster.state import the_pod
from kubeshare.api.types.constants import LABEL_ROLE, LABEL_VGPU, ROLE_SHAREPOD
from kubeshare.device_manager.vgpu.orphans import BIND_SECONDS
from kubeshare.kube.resources import PODS, Raw
from kubeshare.simulator.control import Fault
from kubeshare.simulator.control_tier.stored import bound


@scenario(n1=2)
async def test_a_pod_is_bound_to_a_gpu_with_the_annotations_of_gpushare(
    cluster: FakeCluster,
) -> None:
    await start(cluster)
    pod(cluster, "a", 8, annotations={"mine": "kept"})
    assert await bind(cluster, "a") == (200, "")
    await expect_running(cluster, "a")
    assigned = "ALIYUN_COM_GPU_MEM_ASSIGNED"
    await cluster.until(
        lambda: the_pod(cluster, "a")["metadata"]["annotations"][assigned] == "true"
    )
    annotations = the_pod(cluster, "a")["metadata"]["annotations"]
    time = annotations.pop("ALIYUN_COM_GPU_MEM_ASSUME_TIME")
    assert time.isdigit()
    assert len(time) == len("1767225600000000000")
    [name] = [name for name, held in cluster.vgpus().items() if held]
    assert annotations == {
        "mine": "kept",
        "ALIYUN_COM_GPU_MEM_IDX": "0",
        "ALIYUN_COM_GPU_MEM_POD": "8",
        "ALIYUN_COM_GPU_MEM_DEV": "16",
        "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
        "kubeshare.nthu/gpuids": name,
        "kubeshare.nthu/node": "n1",
    }
    [holder] = cluster.vgpu(name)["status"]["holders"]
    assert (holder["requestMicros"], holder["limitMicros"]) == (500_000, 1_000_000)
    assert holder["memoryBytes"] == 8 << 30
    assert holder["podUid"] == holder["demand"] == the_pod(cluster, "a")["metadata"]["uid"]


@scenario(n1=1, n2=1)
async def test_a_refusal_says_nothing_of_other_nodes(cluster: FakeCluster) -> None:
    await start(cluster)
    pod(cluster, "p", 17)
    status, error = await bind(cluster, "p")
    assert status == 500
    assert "memory: 17Gi asked, and the largest GPU has 16Gi" in error
    assert "n1/" in error
    assert "n2" not in error


@scenario(n1=2)
async def test_the_fullest_gpu_that_fits_is_chosen(cluster: FakeCluster) -> None:
    await start(cluster)
    for number in range(5):
        pod(cluster, f"p{number}", 8)
        status, error = await bind(cluster, f"p{number}")
        assert status == (200 if number < 4 else 500)
    assert error.startswith("The node n1 can't place the pod p4 in ns default: n1/")
    assert "memory 0 left, 8Gi asked" in error
    assert placed(cluster) == {"p0": ("n1", 0), "p1": ("n1", 0), "p2": ("n1", 1), "p3": ("n1", 1)}
    await cluster.until(lambda: any("BindFailed" in each for each in cluster.events("p4")))


@scenario(n1=1)
async def test_no_error_names_a_gpuid_that_another_namespace_chose(cluster: FakeCluster) -> None:
    await start(cluster)
    await held_by_others(cluster, "covert", memoryBytes=15 << 30)
    pod(cluster, "p", 8)
    status, error = await bind(cluster, "p")
    assert (status, "a GPU on n1 that another namespace named: memory 1Gi left" in error) == (
        500,
        True,
    )
    assert "covert" not in error


@scenario(n1=2)
async def test_the_containers_of_a_pod_are_on_one_gpu(cluster: FakeCluster) -> None:
    await start(cluster)
    pod(cluster, "a", 5, 6)
    pod(cluster, "b", 5, 6)
    pod(cluster, "c", 5, 1)
    assert (await bind(cluster, "a"))[0] == 200
    assert (await bind(cluster, "b"))[0] == 200
    assert (await bind(cluster, "c"))[0] == 500
    await expect_holders(cluster, ["a"], ["b"])


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            {"PodUID": "x"},
            "The pod a in ns default's uid is {uid}, and it's not equal with expected x",
        ),
        ({"PodName": "b"}, 'pods "b" not found'),
        ({"Node": "n9"}, 'node "n9" not found'),
    ],
)
def test_a_bind_of_what_is_not_there_writes_nothing(more: dict[str, str], words: str) -> None:
    @scenario(n1=1)
    async def run(cluster: FakeCluster) -> None:
        await start(cluster)
        uid = pod(cluster, "a", 1)["metadata"]["uid"]
        await cluster.quiet(1)
        seen = len(cluster.server.requests)
        assert await bind(cluster, "a", **more) == (500, words.format(uid=uid))
        await cluster.quiet(5)
        writes = [each.resource for each in cluster.server.requests[seen:] if each.is_write]
        # Anybody may call: an event is written about a pod that exists only.
        assert writes == (["events"] if "Node" in more else [])

    run()


@scenario(n1=1)
async def test_arguments_that_cannot_be_read_are_an_error(cluster: FakeCluster) -> None:
    await start(cluster)
    for body in (b"", b"{", b"nonsense", b"[]", b"{}"):
        status, answer = await call(cluster, "bind", body)
        assert status == 500
        assert answer["Error"]


@scenario(n1=1)
async def test_a_pod_that_the_policy_has_not_seen_is_refused(cluster: FakeCluster) -> None:
    await start(cluster)
    made = pod(cluster, "a", 1)
    limits = {"aliyun.com/gpu-mem": "1"}
    made["spec"]["containers"][0]["resources"]["limits"] = limits
    cluster.server.seed(PODS, made)
    answer = await fit(cluster, "a")
    assert "none asks for kubeshare.nthu/vgpu" in answer["Error"]
    await cluster.quiet(1)
    status, error = await bind(cluster, "a")
    assert (status, error) == (500, answer["Error"])


@scenario(n1=1)
async def test_a_pod_that_asks_for_no_share_is_not_bound(cluster: FakeCluster) -> None:
    await start(cluster)
    pod(cluster, "a")
    await cluster.quiet(1)
    status, error = await bind(cluster, "a")
    assert (status, error) == (
        500,
        "it asks for no aliyun.com/gpu-mem: kube-scheduler binds it itself",
    )
    assert not bound(the_pod(cluster, "a"))


@scenario(n1=1)
async def test_a_bind_that_is_repeated_succeeds(cluster: FakeCluster) -> None:
    await start(cluster)
    pod(cluster, "a", 4)
    assert await bind(cluster, "a") == (200, "")
    await expect_running(cluster, "a")
    assert await bind(cluster, "a") == (200, "")
    await expect_holders(cluster, ["a"])


@scenario(n1=1)
async def test_binds_at_one_time_take_turns(cluster: FakeCluster) -> None:
    await start(cluster)
    names = [f"p{number}" for number in range(12)]
    for name in names:
        pod(cluster, name, 3)
    answers = await asyncio.gather(*(bind(cluster, name) for name in names))
    assert sorted(status for status, _ in answers) == [200] * 5 + [500] * 7
    refused = [each for each in cluster.server.requests if each.resource == "vgpus/status"]
    assert len([each for each in refused if each.client.startswith("extender")]) == 5


FAULTS = {
    "409": Fault.answer(409, "Conflict"),
    "403": Fault.answer(403, "Forbidden"),
    "422": Fault.answer(422, "Invalid"),
    "500": Fault.answer(500, "InternalError"),
    "500 after it": Fault.answer(500, "InternalError", after=True),
    "reset before it": Fault.reset(),
    "reset after it": Fault.reset(after=True),
    "no answer": Fault.hang(),
    "no answer after it": Fault.hang(after=True),
    "slow": Fault.slow(3.0),
    "late": Fault.late(3.0),
    "refused": Fault.refuse(),
}
WRITES = ("vgpus/status", "pods/binding")


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_bind_that_meets_a_fault_is_repeated_and_leaves_no_share(
    fault: str, write: str, times: int
) -> None:
    @scenario(n1=2)
    async def run(cluster: FakeCluster) -> None:
        await start(cluster)
        verb = "create" if write == "pods/binding" else "patch"
        cluster.server.inject(FAULTS[fault], verb=verb, resource=write, times=times)
        pod(cluster, "a", 10)
        assert await schedule(cluster, "a") == ""
        await expect_running(cluster, "a", seconds=BIND_SECONDS)
        pod(cluster, "b", 10)
        assert await schedule(cluster, "b") == ""
        await expect_running(cluster, "b")
        await expect_holders(cluster, ["a"], ["b"])
        for name in "ab":
            cluster.actors.delete(the_pod(cluster, name))
        await expect_holders(cluster, [], [])

    run()


@pytest.mark.parametrize("fault", ["409", "403", "422", "refused"])
def test_a_binding_that_is_refused_is_undone_at_once(fault: str) -> None:
    @scenario(n1=1)
    async def run(cluster: FakeCluster) -> None:
        await start(cluster)
        cluster.server.inject(FAULTS[fault], verb="create", resource="pods/binding", times=10)
        pod(cluster, "a", 10)
        status, error = await bind(cluster, "a")
        assert status == 500
        assert error
        await expect_holders(cluster, [])
        annotations = the_pod(cluster, "a")["metadata"]["annotations"]
        assert annotations.keys() == {"kubeshare.nthu/voided-binding"}

    run()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("write", WRITES)
def test_another_replica_goes_on_where_one_was_killed(write: str, *, after: bool) -> None:
    @scenario(n1=2)
    async def run(cluster: FakeCluster) -> None:
        await start(cluster, "extender", "extender/second")

        def kill() -> None:
            cluster.beside(cluster.kill("extender"))

        verb = "create" if write == "pods/binding" else "patch"
        fault = Fault.reset(after=after, action=kill)
        cluster.server.inject(fault, verb=verb, resource=write)
        pod(cluster, "a", 10)
        first = asyncio.create_task(bind(cluster, "a"))
        await cluster.until(lambda: "extender" not in cluster.programs)
        first.cancel()
        assert await schedule(cluster, "a", "extender/second") == ""
        await expect_running(cluster, "a")
        await expect_holders(cluster, ["a"], [])

    run()


@scenario(n1=1)
async def test_what_a_killed_bind_left_is_removed(cluster: FakeCluster) -> None:
    await start(cluster, "extender", "extender/second")
    cluster.server.inject(Fault.hang(), verb="create", resource="pods/binding")
    pod(cluster, "a", 10)
    killed = asyncio.create_task(bind(cluster, "a"))
    await expect_holders(cluster, ["a"])
    await cluster.kill("extender")
    killed.cancel()
    pod(cluster, "b", 10)
    answer = await fit(cluster, "b", replica="extender/second")
    assert answer["FailedNodes"] == {"n1": "Insufficient GPU Memory in one device"}
    await cluster.quiet(BIND_SECONDS / 2)
    await expect_holders(cluster, ["a"])
    await expect_holders(cluster, [], seconds=BIND_SECONDS)
    assert await schedule(cluster, "b", "extender/second") == ""
    await expect_running(cluster, "b")


@scenario(n1=1)
async def test_the_share_of_a_pod_that_is_gone_is_removed_at_once(cluster: FakeCluster) -> None:
    await start(cluster)
    cluster.server.inject(Fault.hang(), verb="create", resource="pods/binding")
    pod(cluster, "a", 10)
    killed = asyncio.create_task(bind(cluster, "a"))
    await expect_holders(cluster, ["a"])
    await cluster.kill("extender")
    killed.cancel()
    cluster.server.remove(PODS, "a", "default")
    await expect_holders(cluster, [], seconds=5.0)


@scenario(n1=1, n2=1)
async def test_a_pod_may_be_bound_elsewhere_after_a_bind_that_failed(cluster: FakeCluster) -> None:
    await start(cluster)
    cluster.server.inject(
        Fault.answer(500, "InternalError"), verb="create", resource="pods/binding"
    )
    pod(cluster, "a", 10)
    assert (await bind(cluster, "a", "n1"))[0] == 500
    answer = await fit(cluster, "a")
    assert answer["NodeNames"] == ["n1", "n2"], "its own share is no obstacle"
    assert (await bind(cluster, "a", "n2"))[0] == 200
    await expect_running(cluster, "a")
    assert placed(cluster) == {"a": ("n2", 0)}


@pytest.mark.parametrize("family", [None, "vcuda"])
def test_a_node_that_is_not_of_gpushare_is_refused(family: str | None) -> None:
    @scenario(n1=1, n2=1)
    async def run(cluster: FakeCluster) -> None:
        await start(cluster)
        label_node(cluster, "n2", family=family)
        pod(cluster, "a", 1)
        await cluster.quiet(1)
        status, error = await bind(cluster, "a", "n2")
        assert (status, error) == (500, "The node n2 is not for GPU share, need skip")
        await expect_holders(cluster, [], [])

    run()


@scenario(n1=1, n2=1)
async def test_the_pod_of_a_sharepod_gets_no_second_share(cluster: FakeCluster) -> None:
    """kube-scheduler asks the extender about every pod with the resource."""
    await start(cluster)
    [name] = [each["metadata"]["name"] for each in vgpus(cluster) if _node(each) == "n1"]
    labels = {LABEL_ROLE: ROLE_SHAREPOD, LABEL_VGPU: name}
    pod(cluster, "a", 4, labels=labels)
    pod(cluster, "b", labels=labels)
    await cluster.quiet(1)
    assert (await bind(cluster, "a", "n2"))[0] == 500
    assert (await bind(cluster, "b"))[0] == 500
    assert await bind(cluster, "a") == (200, "")
    assert [bound(the_pod(cluster, name)) for name in "ab"] == [True, False]
    await expect_holders(cluster, [], [])


def _node(vgpu: Raw) -> str:
    return str(vgpu["spec"]["nodeName"])

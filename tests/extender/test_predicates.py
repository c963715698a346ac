"""gpu-admission's filter decides and reserves; kube-scheduler binds; the GPUs are then named."""

import asyncio

import pytest

from expectations.pods import expect_condition, expect_running, expect_ungated
from fakes.cluster import FakeCluster, run_scenario, scenario
from fakes.cluster.disruptions import label_node
from fakes.cluster.extender import held_by_others
from fakes.cluster.predicates import (
    bind,
    expect_placed,
    filter_with,
    fit,
    placed,
    pod,
    schedule,
    start,
)
from fakes.cluster.state import gates, the_pod
from fakes.cluster.vcuda import published
from kubeshare.api.types.constants import CONDITION_POD_SCHEDULED, LABEL_ROLE, ROLE_SHAREPOD
from kubeshare.device_manager.sharepod.rescheduling.lost_allocation import RESTART_SECONDS
from kubeshare.device_manager.vgpu.orphans import BIND_SECONDS
from kubeshare.dialects.write_back import VCUDA_INDEX as INDEX
from kubeshare.kube.resources import NODES, PODS
from kubeshare.simulator.control import Fault
from kubeshare.simulator.control_tier.stored import bound

OWNER = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "r",
    "uid": "r",
    "controller": True,
}


def link(cluster: FakeCluster, *nodes: str) -> None:
    """Links the GPUs of nodes as in the Gaia paper."""
    for node in nodes:
        cluster.link(node, gpu_0_1="PXB", gpu_2_3="PIX")


@scenario(n1=4, n2=1)
async def test_one_node_fits_and_the_bound_pod_gets_the_annotations_of_gpu_admission(
    cluster: FakeCluster,
) -> None:
    await start(cluster)
    link(cluster, "n1")
    await cluster.quiet(1)
    forged = {INDEX + "7": "3", "tencent.com/predicate-node": "n2", "mine": "kept"}
    made = pod(cluster, "a", 50, 200, annotations=forged)
    answer = await fit(cluster, "a")
    words = f"pod {made['metadata']['uid']} has already been matched to another node"
    assert answer["Error"] == ""
    assert answer["NodeNames"] == ["n1"]
    assert answer["FailedNodes"] == {"n2": words}
    assert len(placed(cluster)["a"]) == 3
    assert the_pod(cluster, "a")["metadata"]["annotations"] == forged
    bind(cluster, "a", "n1")
    await expect_running(cluster, "a")
    assigned = "tencent.com/gpu-assigned"
    await cluster.until(lambda: published(cluster, "a").get(assigned) == "true")
    found = published(cluster, "a")
    assert found.pop("tencent.com/predicate-time").isdigit()
    assert found == {
        INDEX + "0": "0",
        INDEX + "1": "2,3",
        "tencent.com/predicate-node": "n1",
        assigned: "true",
    }
    annotations = the_pod(cluster, "a")["metadata"]["annotations"]
    assert annotations["mine"] == "kept"
    assert annotations["kubeshare.nthu/node"] == "n1"
    assert len(annotations["kubeshare.nthu/gpuids"].split(",")) == 3
    assert "kubeshare.nthu/vgpu" in the_pod(cluster, "a")["metadata"]["labels"]
    cluster.end("a")
    await cluster.until(lambda: not published(cluster, "a"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cores", "gpus"),
    [
        ([100], [2]),
        ([200], [2, 3]),
        ([50, 40, 10], [2, 2, 2]),
        ([100, 100], [2, 3]),
        ([100, 200], [2, 0, 1]),
    ],
)
def test_the_experiments_of_the_paper(cores: list[int], gpus: list[int]) -> None:
    async def play(cluster: FakeCluster) -> None:
        await start(cluster)
        link(cluster, "n1")
        await cluster.quiet(1)
        found = []
        for number, amount in enumerate(cores):
            pod(cluster, f"p{number}", amount)
            assert await schedule(cluster, f"p{number}") == ""
            await expect_running(cluster, f"p{number}")
            found += [index for _, index in placed(cluster)[f"p{number}"]]
        assert found == gpus

    run_scenario(play, n1=4)


@scenario(n1=1, n2=1)
async def test_a_repeated_call_changes_nothing(cluster: FakeCluster) -> None:
    await start(cluster)
    pod(cluster, "a", 50)
    first = await fit(cluster, "a")
    await cluster.quiet(1)
    writes = cluster.server.writes
    assert await fit(cluster, "a") == first
    assert cluster.server.writes == writes


@scenario(n1=1, n2=1)
async def test_a_pod_moves_to_another_node_when_its_own_fits_no_more(cluster: FakeCluster) -> None:
    await start(cluster)
    pod(cluster, "a", 50)
    [node] = (await fit(cluster, "a"))["NodeNames"]
    other = {"n1": "n2", "n2": "n1"}[node]
    assert (await fit(cluster, "a", other))["NodeNames"] == [other]
    assert placed(cluster) == {"a": [(other, 0)]}
    bind(cluster, "a", other)
    await expect_running(cluster, "a")


@scenario(n1=1, n2=1)
async def test_all_nodes_are_refused_with_their_reasons_when_none_fits(
    cluster: FakeCluster,
) -> None:
    await start(cluster)
    label_node(cluster, "n2", family="gpushare")
    pod(cluster, "a", 60)
    assert await schedule(cluster, "a") == ""
    await expect_running(cluster, "a")
    pod(cluster, "b", 50)
    answer = await fit(cluster, "b")
    assert answer["NodeNames"] == []
    assert answer["FailedNodes"]["n2"] == "no GPU device"
    assert "compute 0.4 left, 0.5 asked" in answer["FailedNodes"]["n1"]
    assert list(placed(cluster)) == ["a"]


@scenario(n1=1)
async def test_no_answer_names_a_gpuid_that_another_namespace_chose(cluster: FakeCluster) -> None:
    await start(cluster)
    await held_by_others(cluster, "covert", requestMicros=900_000)
    pod(cluster, "a", 50)
    words = "a GPU on n1 that another namespace named: compute 0.1 left, 0.5 asked"
    assert (await fit(cluster, "a"))["FailedNodes"]["n1"].startswith(words)
    cluster.start("devices")
    bind(cluster, "a", "n1")
    await cluster.until(
        lambda: any(words in each for each in cluster.events("a")), RESTART_SECONDS + 10
    )
    assert "covert" not in f"{cluster.events('a')}{the_pod(cluster, 'a')}"


@scenario(n1=1)
async def test_other_pods_fit_all_nodes(cluster: FakeCluster) -> None:
    await start(cluster)
    pod(cluster, "a")
    pod(cluster, "b", 50, labels={LABEL_ROLE: ROLE_SHAREPOD})
    for name in "ab":
        assert (await fit(cluster, name))["NodeNames"] == ["n1"]
    assert placed(cluster) == {}


@scenario(n1=1, n2=1)
async def test_whole_nodes_are_returned_as_they_were_sent(cluster: FakeCluster) -> None:
    await start(cluster)
    pod(cluster, "a", 50)
    nodes = {"items": cluster.server.all(NODES)}
    answer = await filter_with(cluster, {"pod": the_pod(cluster, "a"), "nodes": nodes})
    [fits] = answer["Nodes"]["items"]
    assert fits in nodes["items"]
    assert answer["NodeNames"] is None


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "EOF"),
        (b"{", "unexpected EOF"),
        (b"{}", "arg or pod is nil"),
        (b"[]", "Expected"),
    ],
)
def test_arguments_that_cannot_be_read_are_an_error(body: bytes, words: str) -> None:
    @scenario(n1=1)
    async def run(cluster: FakeCluster) -> None:
        await start(cluster)
        assert words in (await filter_with(cluster, body))["Error"]

    run()


@scenario(n1=1)
async def test_nothing_is_reserved_for_a_pod_that_does_not_exist(cluster: FakeCluster) -> None:
    """Whoever reaches the port may call."""
    await start(cluster)
    made = pod(cluster, "a", 50)
    for changed in ({"name": "b"}, {"uid": "forged"}, {"uid": ""}):
        forged = made | {"metadata": made["metadata"] | changed}
        answer = await filter_with(cluster, {"Pod": forged, "NodeNames": ["n1"]})
        assert answer["Error"]
    more = made | {"spec": pod(cluster, "c", 90)["spec"]}
    assert (await filter_with(cluster, {"Pod": more, "NodeNames": ["n1"]}))["NodeNames"] == ["n1"]
    await cluster.quiet(1)
    [vgpu] = [vgpu for vgpu in cluster.vgpus() if cluster.vgpus()[vgpu]]
    [holder] = cluster.vgpu(vgpu)["status"]["holders"]
    assert holder["requestMicros"] == 500_000, "what the API server has counts"


@pytest.mark.parametrize(
    ("cores", "blocks", "words"),
    [(150, 4, "not a multiple of 100"), (50, 0, "needs some of its memory")],
)
def test_an_amount_that_is_not_acceptable_is_an_error(cores: int, blocks: int, words: str) -> None:
    @scenario(n1=2)
    async def run(cluster: FakeCluster) -> None:
        await start(cluster)
        pod(cluster, "a", cores, blocks=blocks)
        assert words in (await fit(cluster, "a"))["Error"]

    run()


@scenario(n1=1)
async def test_a_gated_pod_is_left_to_the_scheduler(cluster: FakeCluster) -> None:
    await start(cluster)
    pod(cluster, "a", 50, gated=True)
    assert "kubeshare.nthu/gpu" in (await fit(cluster, "a"))["Error"]
    assert placed(cluster) == {}


@scenario(n1=1)
async def test_a_pod_whose_gate_was_removed_a_moment_ago_is_placed(cluster: FakeCluster) -> None:
    """kube-scheduler would try it again only after its back-off."""
    await start(cluster)
    pod(cluster, "a", 50, gated=True)
    await cluster.quiet(1)
    cluster.server.freeze_watches()
    cluster.server.change(PODS, "a", "default", lambda obj: obj["spec"].pop("schedulingGates"))
    assert (await fit(cluster, "a"))["NodeNames"] == ["n1"]


@scenario(n1=1)
async def test_the_door_says_who_places_the_pods(cluster: FakeCluster) -> None:
    await start(cluster)
    cluster.configure(vcuda={"door": "extender"})
    cluster.start("scheduler")
    pod(cluster, "a", 50, gated=True)
    await expect_ungated(cluster, "a")
    assert placed(cluster) == {}
    assert await schedule(cluster, "a") == ""
    await expect_running(cluster, "a")
    cluster.configure(vcuda={"door": "manifests"})
    pod(cluster, "b", 10, gated=True)
    await expect_condition(cluster, "b", CONDITION_POD_SCHEDULED, status="False")
    assert gates(cluster, "b"), "the kubelet offers nothing here, so the scheduler finds no node"


@scenario(n1=1)
async def test_a_reservation_goes_with_its_pod(cluster: FakeCluster) -> None:
    await start(cluster)
    pod(cluster, "a", 50)
    await fit(cluster, "a")
    cluster.server.remove(PODS, "a", "default")
    await expect_placed(cluster, {}, seconds=5.0)


@scenario(n1=1)
async def test_a_reservation_goes_if_the_pod_is_not_bound(cluster: FakeCluster) -> None:
    await start(cluster)
    pod(cluster, "a", 60)
    await fit(cluster, "a")
    pod(cluster, "b", 50)
    await cluster.quiet(BIND_SECONDS - 5)
    assert (await fit(cluster, "b"))["NodeNames"] == []
    await expect_placed(cluster, {}, seconds=10.0)
    assert (await fit(cluster, "b"))["NodeNames"] == ["n1"]


@scenario(n1=1, n2=1)
async def test_a_reservation_goes_when_the_pod_is_bound_elsewhere(cluster: FakeCluster) -> None:
    await start(cluster)
    pod(cluster, "a", 50)
    [node] = (await fit(cluster, "a"))["NodeNames"]
    other = {"n1": "n2", "n2": "n1"}[node]
    bind(cluster, "a", other)
    await expect_running(cluster, "a")
    await expect_placed(cluster, {"a": [(other, 0)]}, seconds=5.0)
    assert published(cluster, "a")["tencent.com/predicate-node"] == other


@scenario(n1=2)
async def test_a_pod_that_is_bound_too_late_has_its_share_reserved_again(
    cluster: FakeCluster,
) -> None:
    await start(cluster)
    pod(cluster, "a", 60)
    await fit(cluster, "a")
    await expect_placed(cluster, {}, seconds=BIND_SECONDS + 10)
    pod(cluster, "b", 60)
    assert await schedule(cluster, "b") == ""
    bind(cluster, "a", "n1")
    await expect_running(cluster, "a")
    assert sorted(placed(cluster).values()) == [[("n1", 0)], [("n1", 1)]]


@pytest.mark.parametrize("owned", [True, False])
def test_a_pod_that_is_bound_too_late_and_gets_no_share_is_restarted_if_it_has_an_owner(
    *, owned: bool
) -> None:
    @scenario(n1=1)
    async def run(cluster: FakeCluster) -> None:
        await start(cluster)
        pod(cluster, "a", 60, ownerReferences=[OWNER] if owned else [])
        await fit(cluster, "a")
        await expect_placed(cluster, {}, seconds=BIND_SECONDS + 10)
        pod(cluster, "b", 60)
        assert await schedule(cluster, "b") == ""
        bind(cluster, "a", "n1")
        words = "compute 0.4 left, 0.6 asked"
        await cluster.until(
            lambda: any(words in each for each in cluster.events("a")), RESTART_SECONDS + 10
        )
        if owned:
            await cluster.until(lambda: cluster.pod("a") is None)
            return
        assert bound(the_pod(cluster, "a"))
        cluster.actors.delete(the_pod(cluster, "b"))
        await expect_running(cluster, "a")

    run()


@scenario(n1=1)
async def test_a_pod_that_kube_scheduler_binds_without_a_call_gets_its_share(
    cluster: FakeCluster,
) -> None:
    await start(cluster)
    pod(cluster, "a", 60)
    bind(cluster, "a", "n1")
    await expect_running(cluster, "a")


@scenario(n1=1)
async def test_a_bound_pod_on_a_node_of_another_family_gets_no_share(cluster: FakeCluster) -> None:
    await start(cluster, family="gpushare")
    pod(cluster, "a", 60)
    bind(cluster, "a", "n1")
    await cluster.until(
        lambda: any("not dedicated to vcuda pods" in each for each in cluster.events("a")),
        RESTART_SECONDS + 10,
    )
    assert placed(cluster) == {}


@scenario(n1=2)
async def test_calls_at_one_time_never_give_a_gpu_twice(cluster: FakeCluster) -> None:
    await start(cluster)
    names = [f"p{number}" for number in range(6)]
    for name in names:
        pod(cluster, name, 100)
    answers = await asyncio.gather(*(fit(cluster, name) for name in names))
    assert sorted(len(each["NodeNames"]) for each in answers) == [0, 0, 0, 0, 1, 1]
    assert sorted(map(tuple, placed(cluster).values())) == [(("n1", 0),), (("n1", 1),)]


FAULTS = {
    "409": Fault.answer(409, "Conflict"),
    "422": Fault.answer(422, "Invalid"),
    "500": Fault.answer(500, "InternalError"),
    "500 after it": Fault.answer(500, "InternalError", after=True),
    "reset": Fault.reset(),
    "reset after it": Fault.reset(after=True),
    "no answer": Fault.hang(),
    "no answer after it": Fault.hang(after=True),
    "late": Fault.late(3.0),
    "twice": Fault.duplicate(),
}


@pytest.mark.slow
@pytest.mark.parametrize("resource", ["vgpus/status", "pods"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_a_write_leaves_the_pod_running_with_one_share(
    fault: str, resource: str
) -> None:
    """The holder, the names in the pod, the uid in the holder."""

    @scenario(n1=2)
    async def run(cluster: FakeCluster) -> None:
        await start(cluster)
        cluster.server.inject(FAULTS[fault], verb="patch", resource=resource, times=2)
        pod(cluster, "a", 60)
        assert await schedule(cluster, "a", attempts=150) == ""
        await expect_running(cluster, "a", seconds=BIND_SECONDS)
        pod(cluster, "b", 60)
        assert await schedule(cluster, "b", attempts=150) == ""
        await expect_running(cluster, "b", seconds=BIND_SECONDS)
        assert sorted(placed(cluster).values()) == [[("n1", 0)], [("n1", 1)]]
        for name in "ab":
            cluster.actors.delete(the_pod(cluster, name))
        await expect_placed(cluster, {}, seconds=60.0)

    run()

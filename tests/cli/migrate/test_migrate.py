"""Moves the nodes of gpushare and gpu-manager under their running pods, and back."""

from collections.abc import Callable

import pytest

from cli.migrate.former_cluster import LONG, isolating, legacy, migrate, pods_of, stop_plugin
from expectations.pods import expect_running
from expectations.vgpus import expect_holders, expect_no_vgpus, expect_owned, expect_phases
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.cluster_objects import GIB
from fakes.cluster.disruptions import cordon, label_node
from fakes.cluster.gpushare import gated_pod, offer
from fakes.cluster.legacy import ask_for, gpushare_pod, serve, stop, vcuda_pod
from fakes.cluster.state import owned, the_pod
from kubeshare.api.types.constants import ANNOTATION_PUBLISHED_LABELS
from kubeshare.api.types.v1 import GPUNODES
from kubeshare.cli.migrate import waiting
from kubeshare.cli.migrate.cluster_reader import MigrationError, WaitedError
from kubeshare.device_manager.owned.controller import SETTLED_SECONDS
from kubeshare.kube.client.errors import ApiError
from kubeshare.kube.resources import NODES, PODS
from kubeshare.simulator.control import Fault


def noted(cluster: FakeCluster, node: str) -> str | None:
    """The labels of the former plugins that are noted on a node."""
    found = cluster.server.stored(NODES, node)
    assert found is not None
    value: str | None = found["metadata"].get("annotations", {}).get(ANNOTATION_PUBLISHED_LABELS)
    return value


@scenario(n1=2, n2=2)
async def test_a_plugin_that_isolates_memory_is_stopped_by_its_own_label(
    cluster: FakeCluster,
) -> None:
    legacy(cluster)
    cluster.server.change(NODES, "n1", "", isolating)
    cluster.start()
    applied = await migrate(cluster, "apply", "n1")
    assert applied.fields["nodes"][0]["next"][0] == "kubectl label node n1 cgpu-"
    cluster.server.change(NODES, "n1", "", lambda obj: obj["metadata"]["labels"].pop("cgpu"))
    cordon(cluster, "n1", cordoned=False)
    await migrate(cluster, "apply", "n1")
    given = await migrate(cluster, "back", "n1")
    assert given.fields["nodes"][0]["next"][1] == "kubectl label node n1 cgpu=true"


@scenario(n1=2, n2=2)
async def test_all_labels_of_the_former_plugins_go_and_come_back(cluster: FakeCluster) -> None:
    legacy(cluster)
    cluster.server.change(
        NODES, "n1", "", lambda obj: obj["metadata"]["labels"].update(cgpu="true")
    )
    cluster.start()
    applied = await migrate(cluster, "apply", "n1")
    assert applied.fields["nodes"][0]["next"][0] == "kubectl label node n1 gpushare- cgpu-"
    assert noted(cluster, "n1") == "gpushare,cgpu"
    given = await migrate(cluster, "back", "n1")
    again = await migrate(cluster, "back", "n1")
    for answer in (given, again):
        assert answer.fields["nodes"][0]["next"][1:] == [
            "kubectl label node n1 gpushare=true cgpu=true",
            "kubectl annotate node n1 kubeshare.nthu/published-labels-",
            "kubectl uncordon n1",
        ]


@scenario(n1=2, n2=2)
async def test_a_node_is_moved_under_its_pods_and_takes_new_ones(cluster: FakeCluster) -> None:
    legacy(cluster)
    before = pods_of(cluster)
    cluster.start()
    planned = await migrate(cluster, "plan")
    assert (planned.code, planned.states) == (0, {"n1": "unprepared", "n2": "unprepared"})
    assert planned.pods("unrecorded") == ["a", "b", "two", "c"]
    assert "next: kubeshare migrate gpushare --apply n1" in planned.text
    assert cluster.vgpus() == {}

    applied = await migrate(cluster, "apply", "n1")
    assert (applied.code, applied.states) == (0, {"n1": "recorded"})
    assert applied.pods("recorded") == ["a", "b", "two"]
    assert any("3 of 3: pod default/two is recorded on GPU 0, 1" in line for line in applied.said)
    assert applied.fields["nodes"][0]["next"] == [
        "kubectl label node n1 gpushare-",
        "kubectl wait --for=condition=Owned gpunode/n1 --timeout=5m",
        "kubectl uncordon n1",
    ]
    await expect_holders(cluster, ["a", "b", "two"], ["two"])
    found = {
        each["name"]: (each["memoryBytes"], each["requestMicros"], each["parts"], each["attempt"])
        for vgpu in cluster.vgpus()
        for each in cluster.vgpu(vgpu)["status"]["holders"]
        if each["name"] != "two"
    }
    assert found == {"a": (12 * GIB, 750_000, 1, 0), "b": (3 * GIB, 187_500, 1, 0)}

    stop_plugin(cluster, "n1")
    assert (await migrate(cluster, "plan", "n1")).states == {"n1": "settling"}
    await expect_owned(cluster, "n1")
    offer(cluster, "n1", 32)
    gated_pod(cluster, "new", "12")
    gated_pod(cluster, "large", "12")
    cordon(cluster, "n1", cordoned=False)
    await expect_running(cluster, "new")
    await cluster.quiet(SETTLED_SECONDS)
    await expect_holders(cluster, ["a", "b", "two"], ["two", "new"])
    assert not cluster.running("large")
    assert (await migrate(cluster, "plan", "n1")).states == {"n1": "owned"}
    assert pods_of(cluster) == before

    cluster.end("a")
    await expect_running(cluster, "large")


@scenario(n1=2, n2=2)
async def test_the_former_plugin_may_be_stopped_first(cluster: FakeCluster) -> None:
    legacy(cluster)
    for node in ("n1", "n2"):
        stop_plugin(cluster, node)
    cluster.start()
    await cluster.quiet(LONG)
    applied = await migrate(cluster, "apply")
    assert (applied.code, applied.states) == (0, {"n1": "settling", "n2": "settling"})
    await expect_owned(cluster, "n1", seconds=SETTLED_SECONDS + 20)
    await expect_owned(cluster, "n2")


@scenario(n1=2, n2=2)
async def test_gpu_manager_pods_are_recorded_by_container_and_back(cluster: FakeCluster) -> None:
    cluster.deadline = LONG
    cluster.invariants.doubles = True
    label = "nvidia-device-enable"
    serve(cluster, "n1", vcuda_core="200", vcuda_memory="128")
    cluster.server.change(
        NODES, "n1", "", lambda obj: obj["metadata"]["labels"].update({label: "enable"})
    )
    vcuda_pod(cluster, "half", (50, 16, "0"))
    vcuda_pod(cluster, "several", (20, 8, "0"), (0, 0, ""), (100, 0, "1"))
    before = [the_pod(cluster, name) for name in ("half", "several")]
    cluster.start()
    planned = await migrate(cluster, "plan", system="gpu-manager")
    assert (planned.code, planned.states) == (0, {"n1": "unprepared"})
    assert planned.pods("unrecorded") == ["half", "several"]
    assert "next: kubeshare migrate gpu-manager --apply n1" in planned.text
    assert cluster.vgpus() == {}

    applied = await migrate(cluster, "apply", system="gpu-manager")
    assert (applied.code, applied.states) == (0, {"n1": "recorded"})
    assert applied.fields["nodes"][0]["next"][0] == f"kubectl label node n1 {label}-"
    found = {
        (each["name"], each["share"]): (each["memoryBytes"], each["requestMicros"], each["parts"])
        for vgpu in cluster.vgpus()
        for each in cluster.vgpu(vgpu)["status"]["holders"]
    }
    assert found == {
        ("half", ""): (4 * GIB, 500_000, 1),
        ("several", "c0"): (2 * GIB, 200_000, 2),
        ("several", "c2"): (16 * GIB, 1_000_000, 2),
    }
    cluster.server.change(NODES, "n1", "", lambda obj: obj["metadata"]["labels"].pop(label))
    stop(cluster, "n1")
    await expect_owned(cluster, "n1")

    given = await migrate(cluster, "back", system="gpu-manager")
    assert given.code == 0
    [node] = given.fields["nodes"]
    assert node["released"] == ["default/half", "default/several"]
    assert node["next"][1] == f"kubectl label node n1 {label}=enable"
    await expect_owned(cluster, "n1", "NotRequested")
    await expect_no_vgpus(cluster)
    assert [the_pod(cluster, name) for name in ("half", "several")] == before


@scenario(n1=2, n2=2)
async def test_what_is_not_consistent_is_named_and_the_node_waits_for_it(
    cluster: FakeCluster,
) -> None:
    legacy(cluster)
    gpushare_pod(cluster, "unknown", 1, 7)
    gpushare_pod(cluster, "forged", 1, 1, POD="5")
    gpushare_pod(cluster, "nowhere", 1, None)
    gpushare_pod(cluster, "much", 2, 1, node="n2")
    cluster.actors.binds_whole = False  # the former scheduler is off
    made = the_pod(cluster, "a") | {"metadata": {"name": "old", "namespace": "default"}}
    made["spec"] = {"containers": made["spec"]["containers"]}
    cluster.server.seed(PODS, made | {"status": {"phase": "Pending"}})
    cluster.start()
    planned = await migrate(cluster, "plan")
    assert planned.code == 1
    assert planned.fields["waiting"] == ["default/old"]
    assert "name GPU 7, and the node has 0, 1" in planned.problem("unknown")
    assert "ALIYUN_COM_GPU_MEM_POD: is 5" in planned.problem("forged")
    assert "ALIYUN_COM_GPU_MEM_IDX: is missing" in planned.problem("nowhere")
    over = "GPU 1 has 16Gi of memory, and its pods have 18Gi: default/c, default/much"
    assert over in planned.problem("c")
    assert over in planned.problem("much")

    applied = await migrate(cluster, "apply")
    assert applied.code == 1
    assert applied.pods("recorded") == ["a", "b", "two"]
    assert applied.states == {"n1": "recording", "n2": "recording"}
    for node in ("n1", "n2"):
        stop(cluster, node)
    await cluster.quiet(LONG)
    assert owned(cluster, "n1")["status"] == "False"
    assert "default/forged" in owned(cluster, "n1")["message"]

    for name in ("unknown", "forged", "nowhere", "much"):
        cluster.actors.delete(the_pod(cluster, name))
    await expect_owned(cluster, "n1")
    assert owned(cluster, "n2")["status"] == "False"
    assert (await migrate(cluster, "apply", "n2")).pods("recorded") == ["c"]
    await expect_owned(cluster, "n2")


def annotate(cluster: FakeCluster, name: str, **annotations: str) -> None:
    """What an author writes into a pod that runs."""
    cluster.server.change(
        PODS, name, "default", lambda pod: pod["metadata"]["annotations"].update(annotations)
    )


@scenario(n1=2, n2=2)
async def test_what_an_author_writes_into_a_recorded_pod_has_no_effect(
    cluster: FakeCluster,
) -> None:
    legacy(cluster)
    cluster.start()
    first = await migrate(cluster, "apply", "n1")
    for name in ("a", "b"):
        annotate(cluster, name, ALIYUN_COM_GPU_MEM_IDX="1", ALIYUN_COM_GPU_MEM_POD="99")
    gpushare_pod(cluster, "late", 12, 1)
    again = await migrate(cluster, "apply", "n1")
    assert (again.code, again.pods("recorded")) == (0, ["a", "b", "late", "two"])
    assert first.fields["nodes"][0]["pods"][0] == again.fields["nodes"][0]["pods"][0]
    await expect_holders(cluster, ["a", "b", "two"], ["two", "late"])


@scenario(n1=2, n2=2)
async def test_a_pod_that_was_recorded_in_part_and_says_something_else_now_is_named(
    cluster: FakeCluster,
) -> None:
    legacy(cluster)
    ask_for(cluster, "n1")
    cluster.start()
    await expect_phases(cluster, "Idle", "Idle")
    cluster.server.inject(FAULTS["reset"], verb="patch", resource="vgpus/status", skip=RECORDS - 1)
    with pytest.raises(ApiError):
        await migrate(cluster, "apply", "n1")
    written = {"scheduler.framework.gpushare.allocation": '{"0": {"1": 5}}'}
    annotate(cluster, "two", **written)
    assert "use --back" in (await migrate(cluster, "plan", "n1")).problem("two")
    await migrate(cluster, "back", "n1")
    assert (await migrate(cluster, "apply", "n1")).pods("recorded") == ["a", "b", "two"]
    await expect_holders(cluster, ["a", "b"], ["two"])


def no_agent(cluster: FakeCluster) -> None:
    cluster.actors.node_agents = False
    cluster.server.remove(GPUNODES, "n1")


def whole_gpus(cluster: FakeCluster) -> None:
    cluster.offer("n1", 2)
    serve_more = {"aliyun.com/gpu-mem": "32"}
    cluster.server.change(
        NODES, "n1", "", lambda obj: obj["status"]["allocatable"].update(serve_more)
    )


def mebibytes(cluster: FakeCluster) -> None:
    serve(cluster, "n1", gpu_mem="32768", gpu_count="2")


def thousands(cluster: FakeCluster) -> None:
    serve(cluster, "n1", gpu_mem="32k", gpu_count="2")  # as the API server writes 32000


def sliced(cluster: FakeCluster) -> None:
    offered = {"nvidia.com/gpu.shared": "4"}
    cluster.server.change(NODES, "n1", "", lambda obj: obj["status"]["allocatable"].update(offered))


def another_family(cluster: FakeCluster) -> None:
    vcuda_pod(cluster, "stranger", (50, 4, "0"))


def other_label(cluster: FakeCluster) -> None:
    label_node(cluster, "n1", family="vcuda")


BLOCKED: dict[Callable[[FakeCluster], None], str] = {
    no_agent: "no node agent of KubeShare",
    whole_gpus: "as whole ones too",
    mebibytes: "set gpushare.memoryUnit: MiB",
    thousands: "offers 32000 of aliyun.com/gpu-mem, which are MiB",
    sliced: "offers nvidia.com/gpu.shared there",
    another_family: "other pods use its GPUs: default/stranger",
    other_label: "dedicated to vcuda pods by its label kubeshare.nthu/family",
}


@pytest.mark.parametrize("block", BLOCKED, ids=lambda block: str(block.__name__))
def test_a_node_that_cannot_be_moved_is_left_as_it_is(block: Callable[..., None]) -> None:
    @scenario(n1=2, n2=2)
    async def run(cluster: FakeCluster) -> None:
        legacy(cluster)
        block(cluster)
        node = cluster.server.stored(NODES, "n1")
        applied = await migrate(cluster, "apply", "n1")
        assert (applied.code, applied.states) == (1, {"n1": "blocked"})
        assert BLOCKED[block] in applied.text
        assert "left as it is" in applied.said[0]
        assert cluster.server.stored(NODES, "n1") == node

    run()


FAULTS = {
    "409": Fault.answer(409, "Conflict"),
    "500 after it": Fault.answer(500, "InternalError", after=True),
    "reset": Fault.reset(),
    "reset after it": Fault.reset(after=True),
}
"""What may happen at a write; the command ends with an error, or is killed there."""
RECORDS = 4
"""The writes of the command on a node that is prepared."""
MOVE_WRITES = 12
"""Of the command and the device manager on a node that is not."""


async def moved_at_last(cluster: FakeCluster) -> None:
    """Repeats the command until it has an answer; then the node is as it should be."""
    before = pods_of(cluster)
    for _ in range(3):
        try:
            applied = await migrate(cluster, "apply", "n1")
        except ApiError:
            continue
        break
    assert (applied.code, applied.states) == (0, {"n1": "recorded"})
    assert (await migrate(cluster, "apply", "n1")).said == []
    stop_plugin(cluster, "n1")
    await expect_owned(cluster, "n1")
    await expect_holders(cluster, ["a", "b", "two"], ["two"])
    assert pods_of(cluster) == before


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("number", range(1, RECORDS + 1))
def test_recording_that_is_cut_off_at_any_write_goes_on(number: int, fault: str) -> None:
    @scenario(n1=2, n2=2)
    async def run(cluster: FakeCluster) -> None:
        legacy(cluster)
        ask_for(cluster, "n1")
        cluster.start()
        await expect_phases(cluster, "Idle", "Idle")
        cluster.server.inject(FAULTS[fault], verb="patch", resource="vgpus/status", skip=number - 1)
        await moved_at_last(cluster)

    run()


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, MOVE_WRITES + 1))
def test_a_move_that_is_cut_off_at_any_write_goes_on(number: int) -> None:
    @scenario(n1=2, n2=2)
    async def run(cluster: FakeCluster) -> None:
        legacy(cluster)
        cluster.start()
        await cluster.quiet(1)
        fault = [*FAULTS.values()][number % len(FAULTS)]
        cluster.server.inject_at_write(cluster.server.writes + number, lambda: fault)
        await moved_at_last(cluster)

    run()


@scenario(n1=2, n2=2)
async def test_back_removes_the_records_and_leaves_the_pods(cluster: FakeCluster) -> None:
    legacy(cluster)
    before = pods_of(cluster)
    cluster.start()
    await migrate(cluster, "apply")
    given = await migrate(cluster, "back", "n1")
    assert given.code == 0
    [node] = given.fields["nodes"]
    assert node["released"] == ["default/a", "default/b", "default/two"]
    assert node["sharing"] == []
    assert node["next"] == [
        "kubectl wait --for=jsonpath={.status.mode}=shared gpunode/n1 --timeout=5m",
        "kubectl label node n1 gpushare=true",
        "kubectl annotate node n1 kubeshare.nthu/published-labels-",
        "kubectl uncordon n1",
    ]
    await expect_owned(cluster, "n1", "NotRequested")
    assert [each for each in cluster.vgpus().values() if each] == [["c"]]
    assert [each["name"] for each in (await migrate(cluster, "back")).fields["nodes"]] == ["n2"]
    await expect_no_vgpus(cluster)
    assert pods_of(cluster) == before
    assert "no pods of gpushare" in (await migrate(cluster, "back")).text


@scenario(n1=2, n2=2)
async def test_back_keeps_the_pods_of_kubeshare_and_names_them(cluster: FakeCluster) -> None:
    legacy(cluster)
    cluster.start()
    await migrate(cluster, "apply", "n1")
    stop_plugin(cluster, "n1")
    await expect_owned(cluster, "n1")
    offer(cluster, "n1", 32)
    cordon(cluster, "n1", cordoned=False)
    gated_pod(cluster, "ours", "12")
    await expect_running(cluster, "ours")
    given = await migrate(cluster, "back", "n1")
    assert given.code == 1
    assert "must end: default/ours" in given.text
    await expect_holders(cluster, ["ours"])
    await cluster.quiet(LONG)
    assert cluster.running("ours", "a", "b", "two")
    cluster.end("ours")
    await expect_no_vgpus(cluster)


@pytest.mark.parametrize("number", range(1, 8))
def test_a_way_back_that_is_cut_off_at_any_write_goes_on(number: int) -> None:
    @scenario(n1=2, n2=2)
    async def run(cluster: FakeCluster) -> None:
        legacy(cluster)
        cluster.start()
        await migrate(cluster, "apply", "n1")
        fault = Fault.reset(after=bool(number % 2))
        cluster.server.inject_at_write(cluster.server.writes + number, lambda: fault)
        for _ in range(3):
            try:
                await migrate(cluster, "back", "n1")
            except ApiError:
                continue
            break
        await expect_no_vgpus(cluster)
        await expect_owned(cluster, "n1", "NotRequested")

    run()


@scenario(n1=2, n2=2)
async def test_a_selector_that_still_asks_for_the_node_is_named(cluster: FakeCluster) -> None:
    legacy(cluster)
    cluster.configure(owned={"selectors": ["gpushare=true"]})
    cluster.start()
    await migrate(cluster, "apply", "n1")
    with pytest.raises(MigrationError, match=r"owned\.selectors"):
        await migrate(cluster, "back", "n1")
    await expect_holders(cluster, ["a", "b", "two"], ["two"])


@scenario(n1=2, n2=2)
async def test_without_a_device_manager_the_command_says_so_and_goes_on_later(
    cluster: FakeCluster,
) -> None:
    legacy(cluster)
    with pytest.raises(WaitedError, match=r"no static vGPUs after 60 s.*device manager runs"):
        await migrate(cluster, "apply", "n1")
    assert waiting.SECONDS < LONG
    cluster.start()
    await expect_phases(cluster, "Idle", "Idle")
    assert (await migrate(cluster, "apply", "n1")).states == {"n1": "recorded"}


@scenario(n1=1)
async def test_a_node_that_is_not_there_is_named(cluster: FakeCluster) -> None:
    with pytest.raises(MigrationError, match="there is no node n7"):
        await migrate(cluster, "plan", "n7")
    assert "No node is managed by gpushare" in (await migrate(cluster, "plan")).text

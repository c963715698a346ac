"""``kubeshare explain`` shows the scheduler's decision, and what would change it."""

import pytest

from expectations.pods import expect_condition, expect_event, expect_running
from expectations.scheduling import assert_scheduled, expect_decided, expect_pending
from expectations.vgpus import expect_phases
from fakes.cluster import FakeCluster, run_scenario
from fakes.cluster.disruptions import own
from fakes.cluster.gpushare import dedicate, gated_pod
from fakes.cluster.quotas import label_gpus, limit
from kubeshare.api.types.constants import CONDITION_POD_SCHEDULED
from kubeshare.cli.main import main
from kubeshare.core.decision import Decision
from kubeshare.core.ledger.device import FreeGpu, SelectableGpu
from kubeshare.core.policies import policy
from kubeshare.core.policies.opening import new_device
from kubeshare.device_manager.owned.controller import SETTLED_SECONDS
from kubeshare.explain.errors import NotInstalledError
from kubeshare.explain.finding import Finding, NothingToExplainError, find_out
from kubeshare.explain.formats import finding_fields, finding_text
from kubeshare.kube.resources import RESOURCE_QUOTAS
from kubeshare.simulator.control import Fault

LOCALITY = policy("locality")
V100 = FreeGpu("V100", 1 << 34)


async def explained(cluster: FakeCluster, name: str) -> Finding:
    async with cluster.server.client() as client:
        return await find_out(client, LOCALITY, name, "default")


def test_one_that_waits_is_told_why_and_whose_leaving_would_help() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        cluster.start("scheduler")
        cluster.share("a", "0.7")
        await expect_decided(cluster, "a")
        cluster.share("b", "0.6")
        await expect_event(cluster, "b")
        gpuid = assert_scheduled(cluster, "a").gpuid
        before = cluster.server.requests[:]
        finding = await explained(cluster, "b")
        assert finding.held == ()
        assert finding.decision.outcome == "pending"
        assert finding.decision.reasons[f"n1/{gpuid}"] == "compute 0.3 left, 0.6 asked"
        assert finding.change is not None
        assert finding.change.words == (f"a leaves n1/{gpuid}",)
        # The same words as in the event.
        assert str(finding.change) in cluster.events("b")[0]
        made = cluster.server.requests[len(before) :]
        assert {each.verb for each in made} <= {"get", "list", "watch"}
        text = finding_text(finding)
        assert text.splitlines()[0] == "default/b: pending"
        assert text.splitlines()[-1] == f"    it fits when a leaves n1/{gpuid}"

    run_scenario(scenario, n1=1)


def test_one_that_is_placed_is_told_where_and_why_not_elsewhere() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        cluster.start("scheduler")
        cluster.share("a", "0.7")
        await expect_decided(cluster, "a")
        cluster.share("b", "0.6", affinity="red")
        await expect_decided(cluster, "b")
        mine, other = assert_scheduled(cluster, "b").gpuid, assert_scheduled(cluster, "a").gpuid
        for name in ("b", "sharepod/b", "shp/b", "pod/b"):
            finding = await explained(cluster, name)
            assert finding.held == (f"n1/{mine}",)
            assert finding.decision.devices == (mine,)
            occupied = "occupied, and affinity red asks for an idle or a new vGPU"
            assert finding.decision.reasons[f"n1/{other}"] == occupied
        printed = finding_fields(finding)
        assert printed["held"] == [f"n1/{mine}"]
        assert printed["decision"] == "bound"

    run_scenario(scenario, n1=2)


def test_one_whose_gpu_is_given_out_twice_is_told_what_to_do() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        cluster.start()
        own(cluster, "n1")
        await expect_phases(cluster, "Idle", seconds=2 * SETTLED_SECONDS)
        await cluster.run("a")
        [gpuid] = cluster.vgpus()
        assert "degraded" not in finding_fields(await explained(cluster, "a"))
        cluster.offer("n1", 1)
        await expect_condition(cluster, "a", "Allocated", "GPUsOffered")
        finding = await explained(cluster, "a")
        words = finding_fields(finding)["degraded"][f"n1/{gpuid}"]
        assert words.startswith("GPUsOffered: another pod may get GPU")
        assert "`kubectl describe gpunode n1`" in words
        assert f"    n1/{gpuid} is degraded: {words}" in finding_text(finding).splitlines()

    run_scenario(scenario, n1=1)


def test_a_new_vgpu_is_explained_by_who_chooses_its_gpu() -> None:
    selected = new_device("A", "n1", V100, [SelectableGpu(uuid="GPU-7", kind=V100)])
    decision = Decision(
        outcome="bound",
        node="n1",
        devices=("A", "B"),
        new=(selected, new_device("B", "n1", V100)),
        reasons={},
    )
    assert finding_text(Finding(name="default/a", decision=decision)).splitlines() == [
        "default/a: bound n1/A n1/B (new)",
        "    n1/A: its GPU is GPU-7, as the policy chooses",
        "    n1/B: its GPU is the choice of the device plugin on n1",
    ]


def test_a_plain_pod_is_explained_by_what_it_says_itself() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        cluster.start()
        cluster.plain("a", "0.7")
        await expect_running(cluster, "a")
        cluster.plain("b", "0.6")
        await expect_pending(cluster, "b")
        (gpuid,) = cluster.vgpus()
        assert (await explained(cluster, "a")).held == (f"n1/{gpuid}",)
        waits = await explained(cluster, "pod/b")
        assert waits.decision.reasons[f"n1/{gpuid}"] == "compute 0.3 left, 0.6 asked"

    run_scenario(scenario, n1=1)


def test_a_quota_of_the_namespace_is_told() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        hard = {"requests.kubeshare.nthu/gpu": "500m"}
        metadata = {"name": "gpus", "namespace": "default"}
        cluster.server.seed(RESOURCE_QUOTAS, {"metadata": metadata, "spec": {"hard": hard}})
        cluster.share("a", "0.6")
        finding = await explained(cluster, "a")
        words = "ResourceQuota gpus allows 0.5 GPUs: 0 held, 0.6 asked"
        assert dict(finding.decision.reasons) == {"quota": words}

    run_scenario(scenario, n1=1)


def test_a_limit_by_model_and_pool_is_told() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        label_gpus(cluster, "n1", pool="research")
        limit(cluster, {"model": "V100", "pools": ["research"], "gpus": 1})
        cluster.start()
        await cluster.run("a", "0.6")
        cluster.share("b", "0.6")
        finding = await explained(cluster, "b")
        words = "GPUQuota gpus is 1 V100 GPUs in pool research: 0.6 held, 0.6 asked"
        assert (finding.decision.outcome, finding.decision.field) == ("pending", "quota")
        assert finding.decision.reasons["quota"] == words
        assert finding.change is not None
        assert str(finding.change).startswith("it fits when a leaves n1/")

    run_scenario(scenario, n1=2)


def test_a_value_that_nobody_can_have_is_told_by_its_field() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        cluster.share("a", "0.7", limit="0.5")
        finding = await explained(cluster, "a")
        assert (finding.decision.outcome, finding.decision.field) == (
            "rejected",
            "spec.gpu.request",
        )

    run_scenario(scenario, n1=1)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("z", "no SharePod or pod z in namespace default"),
        ("shp/z", "no shp z in namespace default"),
        ("", "the name is missing"),
        ("pod/", "the name is missing: give NAME, sharepod/NAME or pod/NAME"),
        ("node/n1", "node is not a kind to explain: sharepod or pod is"),
        ("pod/whole", "default/whole asks for no share of a GPU"),
    ],
)
def test_what_cannot_be_explained_is_said(name: str, words: str) -> None:
    async def scenario(cluster: FakeCluster) -> None:
        cluster.native_pod("whole")
        with pytest.raises(NothingToExplainError, match=words):
            await explained(cluster, name)

    run_scenario(scenario, n1=1)


def test_a_cluster_without_kubeshare_is_said_so() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        cluster.share("a")
        cluster.server.inject(Fault.answer(404), verb="list", resource="vgpus")
        with pytest.raises(NotInstalledError, match="`kubeshare install` puts it there"):
            await explained(cluster, "a")

    run_scenario(scenario, n1=1)


def test_a_cluster_that_is_not_there_is_no_traceback(
    tmp_path: object, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert main(["explain", "a", "--kubeconfig", f"{tmp_path}/none"]) == 3
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "kubeconfig" in captured.err


def test_a_policy_that_is_not_there_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "a", "--policy", "nearest"]) == 2
    assert "policy nearest is not registered" in capsys.readouterr().err


def of_gang(needed: int, priority: int = 0) -> dict[str, str]:
    labels = {"group_name": "g", "min_available": needed, "priority": priority}
    return {f"sharedgpu/{key}": str(value) for key, value in labels.items()}


def test_of_a_gang_it_is_told_for_whom_there_is_no_room_and_whose_leaving_helps() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        cluster.start()
        await cluster.run("x", "0.5")
        cluster.share("a", "1", labels=of_gang(2))
        waits = await explained(cluster, "a")
        words = "1 of the 2 members that it needs are there"
        assert dict(waits.decision.reasons) == {"gang g": words}
        cluster.plain("b", "1", labels=of_gang(2))
        await expect_condition(cluster, "a", "Scheduled", message="room for 1")
        waits = await explained(cluster, "b")
        (gpuid,) = cluster.vgpus()
        assert waits.decision.outcome == "pending"
        assert waits.decision.reasons["gang g"] == "room for 1 of the 2 members that it needs"
        assert waits.decision.reasons[f"n1/{gpuid}"] == "compute 0.5 left, 1 asked"
        assert waits.change is not None
        assert waits.change.words == (f"x leaves n1/{gpuid}",)
        printed = finding_fields(waits)
        assert printed["gang"]["members"] == {
            "SharePod default/a": "waits",
            "Pod default/b": "waits",
        }
        assert (printed["gang"]["there"], printed["gang"]["placed"]) == (2, 0)
        assert printed["gang"]["timeoutSeconds"] == 300
        cluster.delete("x")
        await expect_running(cluster, "a", "b")
        placed = await explained(cluster, "a")
        assert placed.held
        assert "gang g: needs 2 members, 2 are there, 2 are placed" in finding_text(placed)

    run_scenario(scenario, n1=2)


def test_a_gang_that_fits_is_told_where_each_would_go() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        for name in "ab":
            cluster.share(name, "1", labels=of_gang(2))
        found = await explained(cluster, "b")
        assert found.decision.outcome == "bound"
        assert found.gang is not None
        assert all(where.startswith("would go to n1/") for where in found.gang.members.values())
        assert not found.preemption

    run_scenario(scenario, n1=2)


def test_of_a_near_gang_it_is_told_where_most_would_fit_and_who_would_leave_there() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        cluster.configure(preemption=True)
        cluster.start()
        marked = {"annotations": {"kubeshare.nthu/preemptible": "true"}}
        await cluster.run(
            "x", "1", spec={"nodeSelector": {"kubernetes.io/hostname": "n2"}}, **marked
        )
        near = {"annotations": {"kubeshare.nthu/gang-near": "node"}, "labels": of_gang(3, 0)}
        for name in "abc":
            cluster.share(name, "1", **near)
        await expect_condition(cluster, "c", "Scheduled", message="on one node")
        waits = await explained(cluster, "c")
        (gpuid,) = cluster.vgpus()
        words = "room for 2 of the 3 members that it needs on one node"
        assert waits.decision.reasons["gang g"] == words
        assert waits.decision.reasons["n1"] == "room for 1"
        assert waits.change is not None
        assert waits.change.words == (f"x leaves n2/{gpuid}",)
        assert finding_fields(waits)["gang"]["near"] == "node"
        assert "needs 3 members on one node, 3 are there" in finding_text(waits)
        cluster.delete("x")
        await expect_running(cluster, *"abc")
        cluster.share("d", "1", **near)
        await expect_condition(cluster, "d", "Scheduled", message="n2: no free GPU")
        later = await explained(cluster, "d")
        assert later.decision.outcome == "pending"
        assert "n1" not in later.decision.reasons

    run_scenario(scenario, n1=1, n2=3)


def test_a_member_that_does_not_agree_with_its_gang_is_told_so() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        cluster.share("a", "0.1", labels=of_gang(2))
        cluster.share("b", "0.1", labels=of_gang(3))
        found = await explained(cluster, "b")
        assert found.decision.field == "sharedgpu/min_available"
        assert "SharePod default/a" in str(dict(found.decision.reasons))

    run_scenario(scenario, n1=1)


@pytest.mark.parametrize(
    ("on", "preemptible", "request_", "words"),
    [
        (False, True, "1", "does not say preemption: true"),
        (True, False, "1", "none of the pods with kubeshare.nthu/preemptible (0) is of a priority"),
        (True, True, "1", "preempted would be, where disruption budgets allow it: low leaves"),
    ],
    ids=["it is off", "nobody may be", "somebody would be"],
)
def test_it_is_told_who_would_be_preempted_or_why_nobody_is(
    on: bool, preemptible: bool, request_: str, words: str
) -> None:
    async def scenario(cluster: FakeCluster) -> None:
        cluster.configure(preemption=on)
        cluster.start()
        annotations = {"kubeshare.nthu/preemptible": "true"} if preemptible else {}
        await cluster.run("low", "0.6", annotations=annotations)
        await cluster.kill("scheduler")
        cluster.share("high", request_, labels={"sharedgpu/priority": "5"})
        found = await explained(cluster, "high")
        assert words in found.preemption
        assert words in finding_text(found)

    run_scenario(scenario, n1=1)


def test_a_priority_that_counts_for_less_is_told() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        cluster.configure(preemption=True, maxPriority={"default": 0})
        cluster.start()
        await cluster.run("low", "0.6", annotations={"kubeshare.nthu/preemptible": "true"})
        await cluster.kill("scheduler")
        cluster.share("high", "1", labels={"sharedgpu/priority": "5"})
        found = await explained(cluster, "high")
        assert "of a priority below 0 and" in found.preemption
        assert "sharedgpu/priority 5 counts as 0, the most that its" in finding_text(found)
        assert finding_fields(found)["priorityNote"] == found.priority_note

    run_scenario(scenario, n1=1)


def test_that_all_who_may_be_preempted_would_not_do_is_told() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        cluster.configure(preemption=True)
        cluster.start()
        await cluster.run("low", "0.3", annotations={"kubeshare.nthu/preemptible": "true"})
        await cluster.run("stays", "0.3")
        await cluster.kill("scheduler")
        cluster.share("high", "1", labels={"sharedgpu/priority": "5"})
        found = await explained(cluster, "high")
        assert "there would be no room if all left that may be preempted" in found.preemption

    run_scenario(scenario, n1=1)


def test_what_is_set_aside_for_it_is_told() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        entry = {"node": "n1", "until": "9999-01-01T00:00:00Z", "message": "no cpu"}
        cluster.share("a", "0.3", setAside=[entry])
        found = await explained(cluster, "a")
        assert found.decision.reasons["n1"] == "set aside until 9999-01-01T00:00:00Z: no cpu"

    run_scenario(scenario, n1=1)


def test_a_pod_of_gpushare_is_explained_by_its_own_policy_unit_and_nodes() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        cluster.deadline = 5 * SETTLED_SECONDS
        cluster.configure(gpushare={"memoryUnit": "MiB"})
        cluster.start()
        await dedicate(cluster, "n1", 16384)
        gated_pod(cluster, "a", "12288")
        await expect_running(cluster, "a")
        gated_pod(cluster, "b", "8192")
        await expect_condition(cluster, "b", CONDITION_POD_SCHEDULED, status="False")
        finding = await explained(cluster, "pod/b")
        assert finding.decision.outcome == "pending"
        assert finding.decision.reasons["n2"] == "not dedicated to gpushare pods"
        (gpu,) = [why for place, why in finding.decision.reasons.items() if place.startswith("n1/")]
        assert gpu == "memory 4Gi left, 8Gi asked"
        assert finding.change is not None

    run_scenario(scenario, n1=1, n2=1)

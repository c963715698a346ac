"""Plain pods are gated until their share is there, then released in one write."""

from functools import partial
from typing import Any

from expectations.pods import expect_event, expect_running
from expectations.scheduling import expect_decided, expect_pending
from expectations.vgpus import expect_activated, expect_holders, expect_holding, expect_vgpus
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.state import gates, the_pod
from kubeshare.api.affinity_terms import require_node
from kubeshare.api.state.stripping import LARGE
from kubeshare.api.types.v1 import VGPUS
from kubeshare.kube.resources import NODES, PODS
from kubeshare.scheduler.binding import PLACEHOLDER_BIND_SECONDS
from kubeshare.simulator.control import Fault

Raw = dict[str, Any]


def reason(cluster: FakeCluster, name: str = "a") -> str:
    return str(cluster.pod_condition(name).get("reason", ""))


@scenario(n1=1)
async def test_a_pod_gets_its_part_is_let_go_and_runs(cluster: FakeCluster) -> None:
    cluster.plain("a")
    cluster.start()
    await expect_running(cluster, "a")
    pod = the_pod(cluster, "a")
    (gpuid,) = cluster.vgpus()
    assert not gates(cluster, "a")
    assert pod["metadata"]["annotations"]["kubeshare.nthu/gpuids"] == gpuid
    assert pod["metadata"]["annotations"]["kubeshare.nthu/node"] == "n1"
    assert pod["metadata"]["labels"]["kubeshare.nthu/vgpu"] == gpuid
    assert reason(cluster) == "Bound"
    [holder] = cluster.vgpu(gpuid)["status"]["holders"]
    assert holder["demand"] == holder["podUid"] == pod["metadata"]["uid"]
    condition = cluster.pod_condition("a")
    assert (condition["status"], condition["message"]) == ("True", f"vGPU {gpuid} on node n1")


@scenario(n1=2)
async def test_a_pod_whose_author_forged_what_the_scheduler_writes_gets_what_it_asks_for(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    await cluster.run("victim", "0.9")
    (victims,) = cluster.vgpus()
    forged = {"kubeshare.nthu/gpuids": victims, "kubeshare.nthu/node": "n1"}
    cluster.plain("a", "0.3", annotations=forged)
    cluster.plain("b", "0.9", annotations=forged)
    await expect_running(cluster, "a")
    await expect_pending(cluster, "b", reason="NoRoom")
    assert cluster.vgpus()[victims] == ["victim"]
    assert the_pod(cluster, "a")["metadata"]["annotations"]["kubeshare.nthu/gpuids"] != victims
    assert gates(cluster, "b")


@scenario(n1=1)
async def test_the_gate_stays_until_the_gpu_is_there(cluster: FakeCluster) -> None:
    cluster.native_pod("native")
    cluster.actors.node_agents = False
    cluster.start()
    await expect_running(cluster, "native")
    cluster.plain("a")
    await expect_pending(cluster, "a", reason="NoRoom")
    cluster.server.remove(PODS, "native", "default")
    await expect_pending(cluster, "a", reason="Creating")
    assert gates(cluster, "a")
    cluster.actors.node_agents = True
    cluster.actors.reconcile()
    await expect_running(cluster, "a")


@scenario(n1=1)
async def test_a_pod_for_which_nothing_fits_waits_with_the_reason_and_comes_next(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    cluster.plain("a", "0.7")
    await expect_running(cluster, "a")
    cluster.plain("b", "0.7")
    await expect_pending(cluster, "b", reason="NoRoom")
    assert "compute 0.3 left, 0.7 asked" in cluster.pod_condition("b")["message"]
    cluster.actors.delete(the_pod(cluster, "a"))
    await expect_running(cluster, "b")
    assert reason(cluster, "b") == "Bound"


@scenario(n1=1)
async def test_a_pod_and_a_sharepod_of_the_same_name_each_get_their_part(
    cluster: FakeCluster,
) -> None:
    cluster.start("scheduler")
    cluster.plain("a")
    cluster.share("a")
    await expect_decided(cluster, "a")
    await expect_holders(cluster, ["a", "a"])


@scenario(n1=1)
async def test_what_its_author_required_of_nodes_is_kept_and_tightened(
    cluster: FakeCluster,
) -> None:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    cluster.plain("a", spec={"affinity": {"nodeAffinity": required, "podAffinity": {"mine": 1}}})
    cluster.start()
    await expect_running(cluster, "a")
    affinity = the_pod(cluster, "a")["spec"]["affinity"]
    assert affinity["podAffinity"] == {"mine": 1}
    here = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert terms == {"nodeSelectorTerms": [{**term, "matchFields": [here]}]}


@scenario(n1=1)
async def test_a_bad_value_is_told_by_the_name_of_its_annotation(cluster: FakeCluster) -> None:
    cluster.start("scheduler")
    cluster.plain("a", "7")
    await expect_event(cluster, "a")
    assert reason(cluster) == "Invalid"
    assert cluster.pod_condition("a")["message"].startswith("kubeshare.nthu/request: ")
    assert "Correct it and apply the Pod again" in cluster.events("a")[0]


@scenario(n1=1)
async def test_a_pod_that_asks_for_a_share_and_not_for_how_much_is_told_so(
    cluster: FakeCluster,
) -> None:
    cluster.start("scheduler")
    cluster.plain("a", "", annotations={"kubeshare.nthu/memory": ""})
    await expect_event(cluster, "a")
    condition = cluster.pod_condition("a")
    words = "is missing: the pod waits for a share of a GPU and does not say how much"
    assert condition["reason"] == "Invalid"
    assert condition["message"] == f"kubeshare.nthu/request: {words}"


@scenario(n1=3)
async def test_two_and_a_half_gpus_of_a_pod(cluster: FakeCluster) -> None:
    cluster.start()
    # An empty annotation is absent.
    cluster.plain("a", "2.5", annotations={"kubeshare.nthu/memory": ""})
    await expect_running(cluster, "a")
    await expect_holding(cluster, "a", "a", "a")
    gpuids = the_pod(cluster, "a")["metadata"]["annotations"]["kubeshare.nthu/gpuids"]
    assert len(gpuids.split(",")) == 3


@scenario(n1=1)
async def test_a_pod_behind_somebody_elses_gate_takes_nothing_until_that_is_gone(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    gates = ("kueue.x-k8s.io/admission", "kubeshare.nthu/gpu", "example.com/budget")
    cluster.plain("a", spec={"schedulingGates": [{"name": name} for name in gates]})
    await expect_pending(cluster, "a", reason="Postponed")
    words = "it waits behind kueue.x-k8s.io/admission, example.com/budget, which others remove"
    assert cluster.pod_condition("a")["message"] == words
    assert not cluster.vgpus()
    for index in (0, 1):
        change = partial(_remove_gate, index=index)
        cluster.server.change(PODS, "a", "default", change)
    await expect_running(cluster, "a")


def _remove_gate(pod: Raw, index: int) -> None:
    del pod["spec"]["schedulingGates"][index]


def container(cpu: str) -> Raw:
    limits = {"kubeshare.nthu/vgpu": "1", "cpu": cpu}
    return {"name": "main", "image": "train:1", "resources": {"limits": limits}}


def offer(cluster: FakeCluster, node: str, **amounts: str) -> None:
    cluster.server.change(NODES, node, "", lambda obj: obj["status"]["allocatable"].update(amounts))


@scenario(n1=1, n2=2)
async def test_a_node_without_room_for_its_cpu_is_passed_over(cluster: FakeCluster) -> None:
    offer(cluster, "n1", cpu="1", pods="9")
    offer(cluster, "n2", cpu="4", pods="9")
    cluster.start()
    cluster.plain("a", spec={"containers": [container("2")]})
    await expect_running(cluster, "a")
    assert the_pod(cluster, "a")["spec"]["nodeName"] == "n2"


@scenario(n1=1)
async def test_two_pods_are_not_let_go_together_where_there_is_room_for_one(
    cluster: FakeCluster,
) -> None:
    offer(cluster, "n1", cpu="3")
    cluster.start()
    cluster.plain("a", spec={"containers": [container("2")]})
    cluster.plain("b", spec={"containers": [container("2")]})
    await expect_running(cluster, "a")
    await expect_pending(cluster, "b", reason="NoRoom")
    assert "n1: cpu 0.99 left, 2 asked" in cluster.pod_condition("b")["message"]
    assert gates(cluster, "b")
    cluster.end("a")
    await expect_running(cluster, "b")


@scenario(n1=1, n2=1)
async def test_a_node_that_is_cordoned_before_the_gpu_is_there_is_given_up(
    cluster: FakeCluster,
) -> None:
    cluster.actors.node_agents = False
    cluster.start()
    cluster.plain("a")
    await expect_holders(cluster, ["a"])
    (gpuid,) = cluster.vgpus()
    node = cluster.vgpu(gpuid)["spec"]["nodeName"]
    cluster.server.change(NODES, node, "", lambda obj: obj["spec"].update(unschedulable=True))

    def elsewhere() -> bool:
        return [vgpu["spec"]["nodeName"] for vgpu in cluster.server.all(VGPUS)] == [
            {"n1": "n2", "n2": "n1"}[node]
        ]

    await cluster.until(elsewhere)
    cluster.actors.node_agents = True
    cluster.actors.reconcile()
    await expect_running(cluster, "a")


@scenario(n1=1)
async def test_who_changed_the_pod_meanwhile_is_not_overwritten(cluster: FakeCluster) -> None:
    cluster.start()

    def annotate() -> None:
        cluster.server.change(
            PODS, "a", "default", lambda pod: pod["metadata"]["annotations"].update(note="mine")
        )

    cluster.server.inject(Fault.preceded_by(annotate), verb="patch", resource="pods")
    cluster.plain("a")
    await expect_running(cluster, "a")
    assert the_pod(cluster, "a")["metadata"]["annotations"]["note"] == "mine"


@scenario(n1=1, n2=2)
async def test_a_gpu_that_a_native_pod_took_first_is_left_to_it_where_another_node_has_one(
    cluster: FakeCluster,
) -> None:
    cluster.start("scheduler")
    cluster.plain("a")
    await expect_vgpus(cluster, 1)
    (first,) = cluster.vgpus()
    assert cluster.vgpu(first)["spec"]["nodeName"] == "n1"
    cluster.native_pod("whole", affinity=require_node({}, "n1"))
    await expect_running(cluster, "whole")
    cluster.start("devices")
    await expect_running(cluster, "a")
    assert the_pod(cluster, "a")["spec"]["nodeName"] == "n2"
    assert any("GPUNotFree" in event for event in cluster.events("a"))
    assert cluster.decisions() == {"bound": 2, "stale": 1}
    await expect_vgpus(cluster, 1)


@scenario(n1=1)
async def test_a_gpu_that_a_native_pod_took_first_is_waited_for_where_there_is_no_other(
    cluster: FakeCluster,
) -> None:
    cluster.start("scheduler")
    cluster.plain("a")
    await expect_vgpus(cluster, 1)
    cluster.native_pod("whole")
    await expect_running(cluster, "whole")
    cluster.start("devices")
    await expect_pending(cluster, "a", reason="GPUNotFree")
    await cluster.quiet(60)
    assert gates(cluster, "a")
    cluster.end("whole")
    await expect_running(cluster, "a")


@scenario(n1=1, n2=2)
async def test_a_namesake_made_later_waits_its_own_time_for_a_gpu_that_is_taken(
    cluster: FakeCluster,
) -> None:
    cluster.start("scheduler")
    cluster.plain("a")
    await expect_vgpus(cluster, 1)
    (first,) = cluster.vgpus()
    cluster.native_pod("whole", affinity=require_node({}, "n1"))
    await expect_running(cluster, "whole")
    cluster.start("devices")
    await expect_pending(cluster, "a", reason="GPUNotFree")
    await cluster.quiet(PLACEHOLDER_BIND_SECONDS - 2)
    cluster.server.remove(PODS, "a", "default")
    cluster.plain("a")
    await cluster.quiet(PLACEHOLDER_BIND_SECONDS - 2)
    assert cluster.vgpus() == {first: ["a"]}
    await expect_running(cluster, "a")
    assert the_pod(cluster, "a")["spec"]["nodeName"] == "n2"


def with_claim(name: str) -> Raw:
    return {
        "containers": [container("1")],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}],
    }


@scenario(n1=1, n2=2)
async def test_a_pod_goes_where_its_volume_is_reached_or_waits_and_says_so(
    cluster: FakeCluster,
) -> None:
    cluster.storage.bound("data", "n2")
    cluster.start()
    cluster.plain("a", "0.9", spec=with_claim("data"))
    await expect_running(cluster, "a")
    assert the_pod(cluster, "a")["spec"]["nodeName"] == "n2"
    cluster.storage.bound("lost", "n9")
    cluster.plain("b", spec=with_claim("lost"))
    await expect_pending(cluster, "b")
    assert "n1: it does not reach volume lost" in cluster.pod_condition("b")["message"]


@scenario(n1=2, n2=2)
async def test_the_first_of_a_gang_knows_of_the_volumes_of_the_others(cluster: FakeCluster) -> None:
    """As after a restart: all members exist before the first is decided."""
    cluster.storage.bound("data", "n2")
    cluster.reserve("n1", "x", "y")
    cluster.start("devices")
    await expect_activated(cluster)
    said = {"sharedgpu/group_name": "g", "sharedgpu/min_available": "2"}
    cluster.plain("a", "0.6", labels=said)
    cluster.plain("b", "0.6", labels=said, spec=with_claim("data"))
    cluster.start("scheduler")
    await expect_running(cluster, "a", "b")
    assert the_pod(cluster, "a")["spec"]["nodeName"] == "n1"
    assert the_pod(cluster, "b")["spec"]["nodeName"] == "n2"


@scenario(n1=1)
async def test_a_claim_that_is_not_bound_yet_keeps_nobody_back(cluster: FakeCluster) -> None:
    cluster.start()
    cluster.plain("a", spec=with_claim("to-come"))
    await expect_running(cluster, "a")


@scenario(n1=1, n2=2)
async def test_a_claim_that_is_bound_at_once_is_waited_for(cluster: FakeCluster) -> None:
    cluster.storage.kind("fast", waits=False)
    cluster.storage.claim("data", "fast")
    cluster.start()
    cluster.plain("a", spec=with_claim("data"))
    await expect_pending(cluster, "a", reason="Postponed")
    assert "claim data is bound to no volume yet" in cluster.pod_condition("a")["message"]
    await cluster.quiet(120)
    cluster.storage.bound("data", "n2")
    await expect_running(cluster, "a", seconds=90)
    assert the_pod(cluster, "a")["spec"]["nodeName"] == "n2"


@scenario(n1=1, n2=1)
async def test_a_pod_goes_where_a_volume_is_free_for_its_claim(cluster: FakeCluster) -> None:
    cluster.storage.kind("disk", waits=True)
    cluster.storage.claim("data", "disk")
    cluster.storage.free("small", "n1", "disk", capacity="1Mi")
    cluster.start()
    cluster.plain("a", spec=with_claim("data"))
    await expect_pending(cluster, "a", reason="Postponed")
    assert "no volume of class disk is free" in cluster.pod_condition("a")["message"]
    cluster.storage.free("large", "n2", "disk")
    await expect_running(cluster, "a", seconds=90)
    assert the_pod(cluster, "a")["spec"]["nodeName"] == "n2"


@scenario(n1=1, n2=1)
async def test_a_volume_that_becomes_free_on_a_node_with_room_lets_one_in(
    cluster: FakeCluster,
) -> None:
    cluster.storage.kind("disk", waits=True)
    cluster.storage.claim("data", "disk")
    cluster.storage.free("here", "n1", "disk")
    cluster.native_pod("whole", affinity=require_node({}, "n1"))
    cluster.start()
    await expect_running(cluster, "whole")
    cluster.plain("a", spec=with_claim("data"))
    await expect_pending(cluster, "a", "reaches no free volume of class disk")
    await cluster.quiet()
    cluster.storage.free("there", "n2", "disk")
    await expect_running(cluster, "a", seconds=90)


@scenario(n1=1, n2=1)
async def test_a_pod_goes_where_a_volume_can_be_made_for_its_claim(cluster: FakeCluster) -> None:
    zone = {"key": "kubernetes.io/hostname", "values": ["n2"]}
    there = [{"matchLabelExpressions": [zone]}]
    cluster.storage.kind("zonal", waits=True, provisioner="csi", allowedTopologies=there)
    cluster.storage.claim("data", "zonal")
    cluster.start()
    cluster.plain("a", spec=with_claim("data"))
    await expect_running(cluster, "a")
    assert the_pod(cluster, "a")["spec"]["nodeName"] == "n2"


@scenario(n1=1)
async def test_the_claims_of_a_pod_are_read_once(cluster: FakeCluster) -> None:
    cluster.storage.bound("data", "n1")
    cluster.start()
    await cluster.run("first", "0.9")
    cluster.plain("a", spec=with_claim("data"))
    await expect_pending(cluster, "a", reason="NoRoom")
    cluster.delete("first")
    await expect_running(cluster, "a")
    reads = [each for each in cluster.server.requests if each.resource.startswith("persistent")]
    assert [each.resource for each in reads] == ["persistentvolumeclaims", "persistentvolumes"]


@scenario(n1=1)
async def test_a_large_pod_keeps_all_its_labels_and_annotations(cluster: FakeCluster) -> None:
    """Its condition was written before the program was killed, so no answer shows it whole."""
    cluster.start("devices")
    cluster.plain("a", annotations={"example.com/notes": LARGE * "x"}, labels={"app": "train"})
    cluster.server.inject(Fault.hang(after=False), verb="patch", resource="pods", name="a")
    cluster.start("scheduler")
    await cluster.until(lambda: reason(cluster) == "Bound")
    await cluster.quiet(1)
    await cluster.kill("scheduler")
    assert gates(cluster, "a")
    cluster.start()
    await expect_running(cluster, "a")
    metadata = the_pod(cluster, "a")["metadata"]
    assert metadata["labels"]["app"] == "train"
    assert len(metadata["annotations"]["example.com/notes"]) == LARGE

"""Plain pods are gated until their share is there, then released in one write."""

from typing import Any

from expectations import (
    expect_activated,
    expect_decided,
    expect_event,
    expect_holders,
    expect_pending,
    expect_running,
    expect_vgpus,
)
from fakes.cluster import World, scenario
from fakes.cluster.state import gates, the_pod
from kubeshare.api.affinity_terms import require_node
from kubeshare.api.types.v1 import VGPUS
from kubeshare.kube.resources import NODES, PODS
from kubeshare.scheduler.binding import PLACEHOLDER_BIND_SECONDS
from kubeshare.simulator.control import Fault

Raw = dict[str, Any]


def reason(world: World, name: str = "a") -> str:
    return str(world.pod_condition(name).get("reason", ""))


@scenario(n1=1)
async def test_a_pod_gets_its_part_is_let_go_and_runs(world: World) -> None:
    world.plain("a")
    world.start()
    await expect_running(world, "a")
    pod = the_pod(world, "a")
    (gpuid,) = world.vgpus()
    assert not gates(world, "a")
    assert pod["metadata"]["annotations"]["kubeshare.nthu/gpuids"] == gpuid
    assert pod["metadata"]["annotations"]["kubeshare.nthu/node"] == "n1"
    assert pod["metadata"]["labels"]["kubeshare.nthu/vgpu"] == gpuid
    assert reason(world) == "Bound"
    [holder] = world.vgpu(gpuid)["status"]["holders"]
    assert holder["demand"] == holder["podUid"] == pod["metadata"]["uid"]
    await expect_event(world, "a")
    assert f"Bound: vGPU {gpuid} on node n1" in world.events("a")


@scenario(n1=1)
async def test_the_gate_stays_until_the_gpu_is_there(world: World) -> None:
    world.native_pod("native")
    world.actors.node_agents = False
    world.start()
    await expect_running(world, "native")
    world.plain("a")
    await expect_pending(world, "a", reason="NoRoom")
    world.server.remove(PODS, "native", "default")
    await expect_pending(world, "a", reason="Creating")
    assert gates(world, "a")
    world.actors.node_agents = True
    world.actors.reconcile()
    await expect_running(world, "a")


@scenario(n1=1)
async def test_a_pod_for_which_nothing_fits_waits_with_the_reason_and_comes_next(
    world: World,
) -> None:
    world.start()
    world.plain("a", "0.7")
    await expect_running(world, "a")
    world.plain("b", "0.7")
    await expect_pending(world, "b", reason="NoRoom")
    assert "compute 0.3 left, 0.7 asked" in world.pod_condition("b")["message"]
    world.actors.delete(the_pod(world, "a"))
    await expect_running(world, "b")
    assert reason(world, "b") == "Bound"


@scenario(n1=1)
async def test_a_pod_and_a_sharepod_of_the_same_name_each_get_their_part(world: World) -> None:
    world.start("scheduler")
    world.plain("a")
    world.share("a")
    await expect_decided(world, "a")
    await expect_holders(world, ["a", "a"])


@scenario(n1=1)
async def test_what_its_author_required_of_nodes_is_kept_and_tightened(world: World) -> None:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    world.plain("a", spec={"affinity": {"nodeAffinity": required, "podAffinity": {"mine": 1}}})
    world.start()
    await expect_running(world, "a")
    affinity = the_pod(world, "a")["spec"]["affinity"]
    assert affinity["podAffinity"] == {"mine": 1}
    here = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert terms == {"nodeSelectorTerms": [{**term, "matchFields": [here]}]}


@scenario(n1=1)
async def test_a_bad_value_is_told_by_the_name_of_its_annotation(world: World) -> None:
    world.start("scheduler")
    world.plain("a", "7")
    await expect_event(world, "a")
    assert reason(world) == "Invalid"
    assert world.pod_condition("a")["message"].startswith("kubeshare.nthu/request: ")
    assert "Correct it and apply the Pod again" in world.events("a")[0]


@scenario(n1=3)
async def test_different_shares_are_refused_by_a_condition_and_hold_nothing(world: World) -> None:
    world.start()
    # An empty annotation is absent.
    absent = {"kubeshare.nthu/memory": ""}
    world.plain("a", "2.5", annotations=absent)
    await expect_event(world, "a")
    assert reason(world) == "Invalid"
    message = world.pod_condition("a")["message"]
    assert message.startswith("metadata.annotations: the nodes of this version attach one share")
    assert not world.vgpus()


@scenario(n1=1)
async def test_a_pod_behind_somebody_elses_gate_takes_nothing_until_that_is_gone(
    world: World,
) -> None:
    world.start()
    mine = [{"name": "kueue.x-k8s.io/admission"}, {"name": "kubeshare.nthu/gpu"}]
    world.plain("a", spec={"schedulingGates": mine})
    await expect_pending(world, "a", reason="Postponed")
    assert "kueue.x-k8s.io/admission" in world.pod_condition("a")["message"]
    assert not world.vgpus()
    world.server.change(PODS, "a", "default", lambda pod: pod["spec"]["schedulingGates"].pop(0))
    await expect_running(world, "a")


def container(cpu: str) -> Raw:
    limits = {"kubeshare.nthu/vgpu": "1", "cpu": cpu}
    return {"name": "main", "image": "train:1", "resources": {"limits": limits}}


def offer(world: World, node: str, **amounts: str) -> None:
    world.server.change(NODES, node, "", lambda obj: obj["status"]["allocatable"].update(amounts))


@scenario(n1=1, n2=2)
async def test_a_node_without_room_for_its_cpu_is_passed_over(world: World) -> None:
    offer(world, "n1", cpu="1", pods="9")
    offer(world, "n2", cpu="4", pods="9")
    world.start()
    world.plain("a", spec={"containers": [container("2")]})
    await expect_running(world, "a")
    assert the_pod(world, "a")["spec"]["nodeName"] == "n2"


@scenario(n1=1)
async def test_two_pods_are_not_let_go_together_where_there_is_room_for_one(world: World) -> None:
    offer(world, "n1", cpu="3")
    world.start()
    world.plain("a", spec={"containers": [container("2")]})
    world.plain("b", spec={"containers": [container("2")]})
    await expect_running(world, "a")
    await expect_pending(world, "b", reason="NoRoom")
    assert "n1: cpu 0.99 left, 2 asked" in world.pod_condition("b")["message"]
    assert gates(world, "b")
    world.end("a")
    await expect_running(world, "b")


@scenario(n1=1, n2=1)
async def test_a_node_that_is_cordoned_before_the_gpu_is_there_is_given_up(world: World) -> None:
    world.actors.node_agents = False
    world.start()
    world.plain("a")
    await expect_holders(world, ["a"])
    (gpuid,) = world.vgpus()
    node = world.vgpu(gpuid)["spec"]["nodeName"]
    world.server.change(NODES, node, "", lambda obj: obj["spec"].update(unschedulable=True))

    def elsewhere() -> bool:
        return [vgpu["spec"]["nodeName"] for vgpu in world.server.all(VGPUS)] == [
            {"n1": "n2", "n2": "n1"}[node]
        ]

    await world.until(elsewhere)
    world.actors.node_agents = True
    world.actors.reconcile()
    await expect_running(world, "a")


@scenario(n1=1)
async def test_who_changed_the_pod_meanwhile_is_not_overwritten(world: World) -> None:
    world.start()

    def annotate() -> None:
        world.server.change(
            PODS, "a", "default", lambda pod: pod["metadata"]["annotations"].update(note="mine")
        )

    world.server.inject(Fault.preceded_by(annotate), verb="patch", resource="pods")
    world.plain("a")
    await expect_running(world, "a")
    assert the_pod(world, "a")["metadata"]["annotations"]["note"] == "mine"


@scenario(n1=1, n2=2)
async def test_a_gpu_that_a_native_pod_took_first_is_left_to_it_where_another_node_has_one(
    world: World,
) -> None:
    world.start("scheduler")
    world.plain("a")
    await expect_vgpus(world, 1)
    (first,) = world.vgpus()
    assert world.vgpu(first)["spec"]["nodeName"] == "n1"
    world.native_pod("whole", affinity=require_node({}, "n1"))
    await expect_running(world, "whole")
    world.start("devices")
    await expect_running(world, "a")
    assert the_pod(world, "a")["spec"]["nodeName"] == "n2"
    assert any("GPUNotFree" in event for event in world.events("a"))
    await expect_vgpus(world, 1)


@scenario(n1=1)
async def test_a_gpu_that_a_native_pod_took_first_is_waited_for_where_there_is_no_other(
    world: World,
) -> None:
    world.start("scheduler")
    world.plain("a")
    await expect_vgpus(world, 1)
    world.native_pod("whole")
    await expect_running(world, "whole")
    world.start("devices")
    await expect_pending(world, "a", reason="GPUNotFree")
    await world.quiet(60)
    assert gates(world, "a")
    world.end("whole")
    await expect_running(world, "a")


@scenario(n1=1, n2=2)
async def test_a_namesake_made_later_waits_its_own_time_for_a_gpu_that_is_taken(
    world: World,
) -> None:
    world.start("scheduler")
    world.plain("a")
    await expect_vgpus(world, 1)
    (first,) = world.vgpus()
    world.native_pod("whole", affinity=require_node({}, "n1"))
    await expect_running(world, "whole")
    world.start("devices")
    await expect_pending(world, "a", reason="GPUNotFree")
    await world.quiet(PLACEHOLDER_BIND_SECONDS - 2)
    world.server.remove(PODS, "a", "default")
    world.plain("a")
    await world.quiet(PLACEHOLDER_BIND_SECONDS - 2)
    assert world.vgpus() == {first: ["a"]}
    await expect_running(world, "a")
    assert the_pod(world, "a")["spec"]["nodeName"] == "n2"


def with_claim(name: str) -> Raw:
    return {
        "containers": [container("1")],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}],
    }


@scenario(n1=1, n2=2)
async def test_a_pod_goes_where_its_volume_is_reached_or_waits_and_says_so(world: World) -> None:
    world.storage.bound("data", "n2")
    world.start()
    world.plain("a", "0.9", spec=with_claim("data"))
    await expect_running(world, "a")
    assert the_pod(world, "a")["spec"]["nodeName"] == "n2"
    world.storage.bound("lost", "n9")
    world.plain("b", spec=with_claim("lost"))
    await expect_pending(world, "b")
    assert "n1: it does not reach volume lost" in world.pod_condition("b")["message"]


@scenario(n1=2, n2=2)
async def test_the_first_of_a_gang_knows_of_the_volumes_of_the_others(world: World) -> None:
    """As after a restart: all members exist before the first is decided."""
    world.storage.bound("data", "n2")
    world.reserve("n1", "x", "y")
    world.start("devices")
    await expect_activated(world)
    said = {"sharedgpu/group_name": "g", "sharedgpu/min_available": "2"}
    world.plain("a", "0.6", labels=said)
    world.plain("b", "0.6", labels=said, spec=with_claim("data"))
    world.start("scheduler")
    await expect_running(world, "a", "b")
    assert the_pod(world, "a")["spec"]["nodeName"] == "n1"
    assert the_pod(world, "b")["spec"]["nodeName"] == "n2"


@scenario(n1=1)
async def test_a_claim_that_is_not_bound_yet_keeps_nobody_back(world: World) -> None:
    world.start()
    world.plain("a", spec=with_claim("to-come"))
    await expect_running(world, "a")


@scenario(n1=1, n2=2)
async def test_a_claim_that_is_bound_at_once_is_waited_for(world: World) -> None:
    world.storage.kind("fast", waits=False)
    world.storage.claim("data", "fast")
    world.start()
    world.plain("a", spec=with_claim("data"))
    await expect_pending(world, "a", reason="Postponed")
    assert "claim data is bound to no volume yet" in world.pod_condition("a")["message"]
    await world.quiet(120)
    world.storage.bound("data", "n2")
    await expect_running(world, "a", seconds=90)
    assert the_pod(world, "a")["spec"]["nodeName"] == "n2"


@scenario(n1=1, n2=1)
async def test_a_pod_goes_where_a_volume_is_free_for_its_claim(world: World) -> None:
    world.storage.kind("disk", waits=True)
    world.storage.claim("data", "disk")
    world.storage.free("small", "n1", "disk", capacity="1Mi")
    world.start()
    world.plain("a", spec=with_claim("data"))
    await expect_pending(world, "a", reason="Postponed")
    assert "no volume of class disk is free" in world.pod_condition("a")["message"]
    world.storage.free("large", "n2", "disk")
    await expect_running(world, "a", seconds=90)
    assert the_pod(world, "a")["spec"]["nodeName"] == "n2"


@scenario(n1=1, n2=1)
async def test_a_pod_goes_where_a_volume_can_be_made_for_its_claim(world: World) -> None:
    zone = {"key": "kubernetes.io/hostname", "values": ["n2"]}
    there = [{"matchLabelExpressions": [zone]}]
    world.storage.kind("zonal", waits=True, provisioner="csi", allowedTopologies=there)
    world.storage.claim("data", "zonal")
    world.start()
    world.plain("a", spec=with_claim("data"))
    await expect_running(world, "a")
    assert the_pod(world, "a")["spec"]["nodeName"] == "n2"


@scenario(n1=1)
async def test_the_claims_of_a_pod_are_read_once(world: World) -> None:
    world.storage.bound("data", "n1")
    world.start()
    await world.run("first", "0.9")
    world.plain("a", spec=with_claim("data"))
    await expect_pending(world, "a", reason="NoRoom")
    world.delete("first")
    await expect_running(world, "a")
    reads = [each for each in world.server.requests if each.resource.startswith("persistent")]
    assert [each.resource for each in reads] == ["persistentvolumeclaims", "persistentvolumes"]

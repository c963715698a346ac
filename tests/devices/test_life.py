"""The life of SharePods and vGPUs: both programs, with all that they work with."""

import asyncio
from typing import Any

from cluster_fake import World, expect_pending, expect_scheduled, in_world
from kube_fake import Fault
from kubeshare.api.v1 import SHAREPODS, VGPUS
from kubeshare.devices.placeholder import TRIES
from kubeshare.devices.release import GRACE
from kubeshare.kube.resources import PODS

Raw = dict[str, Any]


def _pod_uids(world: World) -> dict[str, str]:
    """The name of each holder -> the uid of the pod that it names."""
    found = [each for vgpu in world.server.all(VGPUS) for each in vgpu["status"]["holders"]]
    return {each["name"]: each["podUid"] for each in found}


def _is_ready(world: World, name: str) -> bool:
    return bool(world.condition(name, "Ready").get("status") == "True")


def test_three_sharepods_share_one_gpu_and_it_is_given_back_after_the_last() -> None:
    async def story(world: World) -> None:
        world.start()
        for name, request in (("a", "0.3"), ("b", "0.4"), ("c", "0.3")):
            world.share(name, request)
        await world.until(lambda: world.running("a", "b", "c"))
        assert world.shares_gpu("a", "b", "c")
        world.native_pod("whole")
        for name in ("a", "b"):
            world.delete(name)
        await world.until(lambda: world.shares_gpu("c"))
        assert not world.running("whole")
        world.delete("c")
        await world.until(lambda: world.running("whole"))
        assert not world.vgpus()
        assert not world.placeholders()

    in_world(story, n1=1)


def test_a_sharepod_of_two_gpus_runs_on_both_and_gives_both_back() -> None:
    async def story(world: World) -> None:
        world.start()
        world.share("a", "0.6", count=2)
        world.share("b", "0.6", count=2)
        await world.until(lambda: world.running("a") or world.running("b"))
        first, second = ("a", "b") if world.running("a") else ("b", "a")
        assert list(world.vgpus().values()) == [[first], [first]]
        gpus = world.sharepod(first)["status"]["gpus"]
        assert sorted(each["uuid"] for each in gpus) == ["GPU-n1-0", "GPU-n1-1"]
        world.delete(first)
        await world.until(lambda: world.running(second))
        world.delete(second)
        await world.until(lambda: not world.vgpus() and not world.placeholders())

    in_world(story, n1=2)


def test_the_status_tells_phase_gpu_and_node() -> None:
    async def story(world: World) -> None:
        world.start()
        world.share("a")
        await world.until(lambda: _is_ready(world, "a"))
        status = world.sharepod("a")["status"]
        placed = expect_scheduled(world, "a")
        assert status["phase"] == "Running"
        assert status["nodeName"] == "n1"
        assert status["gpus"] == [{"id": placed.gpuid, "uuid": "GPU-n1-0"}]
        assert world.condition("a", "Allocated")["status"] == "True"

    in_world(story, n1=1)


def test_a_sharepod_on_a_warm_vgpu_costs_six_writes_and_no_read() -> None:
    async def story(world: World) -> None:
        world.start()
        world.share("first")
        await world.until(lambda: _is_ready(world, "first"))
        await world.quiet()
        before = len(world.server.requests)
        world.share("second")
        await world.until(lambda: _is_ready(world, "second"))
        await world.quiet()
        asked = [each for each in world.server.requests[before:] if each.resource != "events"]
        assert [f"{each.verb} {each.resource}" for each in asked if each.verb != "watch"] == [
            "patch vgpus/status",
            "patch sharepods",
            "patch sharepods/status",
            "create pods",
            "patch vgpus/status",
            "patch sharepods/status",
        ]

    in_world(story, n1=1)


def test_the_pod_is_the_sharepods_own_spec_bound_to_the_node_of_its_gpu() -> None:
    preferred = [{"weight": 1, "preference": {"matchExpressions": []}}]
    mine = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    spec = {
        "affinity": mine,
        "initContainers": [{"name": "fetch", "image": "curl:1"}],
        "restartPolicy": "OnFailure",
    }

    async def story(world: World) -> None:
        world.start()
        made = world.share("a", spec=spec, annotations={"note": "kept"})
        await world.until(lambda: world.running("a"))
        pod = world.pod("a")
        assert pod is not None
        [owner] = pod["metadata"]["ownerReferences"]
        assert owner["uid"] == made["metadata"]["uid"]
        assert owner["controller"]
        assert owner["blockOwnerDeletion"]
        assert pod["metadata"]["annotations"] == {"note": "kept"}
        assert "gpu" not in pod["spec"]
        assert pod["spec"]["restartPolicy"] == "OnFailure"
        assert pod["spec"]["initContainers"] == spec["initContainers"]
        [container] = pod["spec"]["containers"]
        assert container["resources"]["limits"] == {"kubeshare.nthu/vgpu": "1"}
        affinity = pod["spec"]["affinity"]["nodeAffinity"]
        assert affinity["preferredDuringSchedulingIgnoredDuringExecution"] == preferred
        required = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
        [term] = required["nodeSelectorTerms"]
        assert term["matchFields"][0]["values"] == ["n1"]

    in_world(story, n1=1)


def test_nothing_of_a_gpu_is_an_ordinary_pod() -> None:
    async def story(world: World) -> None:
        world.start()
        world.share("a", None)
        await world.until(lambda: _is_ready(world, "a"))
        pod = world.pod("a")
        assert pod is not None
        assert "resources" not in pod["spec"]["containers"][0]
        assert not world.vgpus()

    in_world(story, n1=1)


def test_a_gpuid_given_with_a_node_is_shared_by_all_who_name_it() -> None:
    async def story(world: World) -> None:
        world.start("devices")
        world.share("a", "0.5", id="abcde", spec={"nodeName": "n1"})
        world.share("b", "0.5", id="abcde", spec={"nodeName": "n1"})
        await world.until(lambda: world.running("a", "b"))
        assert world.vgpus() == {"abcde": ["a", "b"]}

    in_world(story, n1=1)


def test_a_gpuid_without_room_waits_with_the_reason_until_there_is() -> None:
    async def story(world: World) -> None:
        world.start()
        world.share("a", "0.6", id="abcde", spec={"nodeName": "n1"})
        await world.until(lambda: world.running("a"))
        world.share("b", "0.5", id="abcde", spec={"nodeName": "n1"})
        await world.until(lambda: world.condition("b", "Allocated"))
        told = world.condition("b", "Allocated")
        assert told["reason"] == "NoRoom"
        assert "compute 0.4 left, 0.5 asked" in told["message"]
        assert world.pod("b") is None
        await world.until(lambda: any("0.4 left" in event for event in world.events("b")))
        world.delete("a")
        await world.until(lambda: world.running("b"))

    in_world(story, n1=1)


def test_a_gpuid_on_another_node_than_the_one_given_is_told() -> None:
    async def story(world: World) -> None:
        world.start()
        world.share("a", id="abcde", spec={"nodeName": "n1"})
        await world.until(lambda: world.running("a"))
        world.share("b", id="abcde", spec={"nodeName": "n2"})
        await world.until(lambda: world.condition("b", "Allocated"))
        assert "abcde is on node n1" in world.condition("b", "Allocated")["message"]

    in_world(story, n1=1, n2=1)


def test_a_pod_that_succeeds_stays_and_gives_its_gpu_back() -> None:
    async def story(world: World) -> None:
        world.start()
        world.share("a")
        await world.until(lambda: world.running("a"))
        world.end("a")
        await world.until(lambda: not world.vgpus())
        assert world.sharepod("a")["status"]["phase"] == "Succeeded"
        assert world.condition("a", "Ready")["reason"] == "PodSucceeded"
        assert world.condition("a", "Allocated")["reason"] == "Released"
        assert len(world.sharepod("a")["status"]["gpus"]) == 1, "where it was can still be read"
        assert world.pod("a") is not None
        world.server.remove(PODS, "a", "default")
        await world.quiet()
        assert world.pod("a") is None, "it has succeeded and must not run again"
        assert not world.vgpus()

    in_world(story, n1=1)


def test_a_pod_that_is_deleted_is_made_again_and_scheduled_again() -> None:
    async def story(world: World) -> None:
        world.start()
        world.share("a")
        await world.until(lambda: _is_ready(world, "a"))
        first = world.pod("a")
        assert first is not None
        world.actors.delete(first)

        def another() -> bool:
            pod = world.pod("a")
            return pod is not None and pod["metadata"]["uid"] != first["metadata"]["uid"]

        await world.until(another)
        await world.until(lambda: world.running("a"))
        expect_scheduled(world, "a")

    in_world(story, n1=1)


def test_a_force_deleted_pod_keeps_its_part_until_its_node_says_that_it_has_stopped() -> None:
    async def story(world: World) -> None:
        world.start()
        world.share("a", "0.7")
        await world.until(lambda: world.running("a"))
        world.actors.node_agents = False
        world.server.remove(PODS, "a", "default")
        world.share("b", "0.7")
        await world.quiet(60)
        assert world.shares_gpu("a")
        assert world.pod("a") is None, "its former self may still run"
        expect_pending(world, "b")
        assert world.condition("a", "Allocated")["reason"] == "Releasing"
        world.actors.node_agents = True
        world.actors.look()
        await world.until(lambda: world.running("a") or world.running("b"))

    in_world(story, n1=1)


def test_a_sharepod_that_is_deleted_before_its_pod_is_bound_leaves_nothing() -> None:
    async def story(world: World) -> None:
        world.start()
        world.share("a")
        await world.until(lambda: world.running("a"))
        world.actors.binds = False
        world.share("b")
        await world.until(lambda: world.pod("b"))
        await world.quiet(1)
        assert _pod_uids(world)["b"] == "", "only what was bound may run on the node"
        world.delete("b")
        await world.until(lambda: world.pod("b") is None and world.shares_gpu("a"))

    in_world(story, n1=1)


def test_a_pod_that_kube_scheduler_cannot_place_is_told_with_its_words() -> None:
    async def story(world: World) -> None:
        world.start()
        world.share("a")
        await world.until(lambda: world.running("a"))
        world.actors.binds = False
        world.share("b")
        await world.until(lambda: world.condition("b", "Ready").get("reason") == "Unschedulable")
        assert world.condition("b", "Ready")["message"] == "insufficient cpu"
        world.actors.binds = True
        world.actors.look()
        await world.until(lambda: _is_ready(world, "b"))

    in_world(story, n1=1)


def test_a_pod_of_somebody_else_is_never_touched() -> None:
    async def story(world: World) -> None:
        world.server.seed(
            PODS,
            {
                "metadata": {"name": "a", "namespace": "default"},
                "spec": {"containers": [{"name": "theirs"}]},
                "status": {"phase": "Pending"},
            },
        )
        world.start()
        world.share("a")
        await world.until(lambda: world.condition("a", "Ready").get("reason") == "NameTaken")
        assert "belongs to somebody else" in world.condition("a", "Ready")["message"]
        theirs = world.pod("a")
        assert theirs is not None
        assert theirs["spec"]["containers"] == [{"name": "theirs"}]
        world.server.remove(PODS, "a", "default")
        await world.until(lambda: _is_ready(world, "a"))

    in_world(story, n1=1)


def _no_pod_without_image(pod: Raw, _old: Raw | None) -> str | None:
    if all(container.get("image") for container in pod["spec"]["containers"]):
        return None
    return "spec.containers[0].image: Required value"


def test_the_api_servers_words_about_an_invalid_pod_are_told_and_the_part_is_given_back() -> None:
    async def story(world: World) -> None:
        world.server.add_rule(PODS, _no_pod_without_image)
        world.start()
        world.share("a", spec={"containers": [{"name": "main"}]})
        await world.until(lambda: world.condition("a", "Ready").get("reason") == "InvalidPod")
        assert "image: Required value" in world.condition("a", "Ready")["message"]
        await world.until(lambda: not world.vgpus())
        await world.quiet(30)
        tries = [each for each in world.server.requests if each.resource == "pods"]
        creations = [each for each in tries if each.place.name == "" and each.verb == "create"]
        assert len(creations) <= 2 + len(world.placeholders())
        good = {"containers": [{"name": "main", "image": "train:1"}]}
        world.server.change(SHAREPODS, "a", "default", lambda shp: shp["spec"].update(good))
        await world.until(lambda: _is_ready(world, "a"))

    in_world(story, n1=1)


def test_a_placeholder_that_fails_is_made_again_a_bounded_number_of_times() -> None:
    async def story(world: World) -> None:
        world.actors.node_agents = False
        world.start()
        world.share("a")
        failed: set[str] = set()

        def fail() -> None:
            for pod in world.server.all(PODS, "kubeshare-system"):
                failed.add(pod["metadata"]["uid"])
                status = {"phase": "Failed", "message": "UnexpectedAdmissionError"}
                world.server.seed(PODS, pod | {"status": status})

        def given_up() -> bool:
            fail()
            [*gpuids] = world.vgpus()
            return any("not made again" in event for name in gpuids for event in world.events(name))

        started = asyncio.get_running_loop().time()
        await world.until(given_up, seconds=120)
        assert asyncio.get_running_loop().time() - started > 10, "without a pause between them"
        assert world.condition("a", "Allocated")["reason"] == "PlaceholderFailed"
        await world.quiet(600)
        fail()
        assert len(failed) == TRIES

    in_world(story, n1=1)


def test_a_placeholder_that_is_lost_fences_the_vgpu_and_tells_the_owners() -> None:
    async def story(world: World) -> None:
        world.start()
        world.share("a")
        await world.until(lambda: _is_ready(world, "a"))
        [placeholder] = world.placeholders()
        world.server.remove(PODS, placeholder, "kubeshare-system")
        await world.until(lambda: world.condition("a", "Allocated")["reason"] == "GPULost")
        [gpuid] = world.vgpus()
        await world.until(lambda: any("PlaceholderLost" in each for each in world.events(gpuid)))
        assert not world.placeholders(), "another one could be given another GPU"
        world.share("b")
        await world.until(lambda: world.condition("b", "Scheduled"))
        expect_pending(world, "b")
        world.delete("a")
        await world.until(lambda: world.running("b"))

    in_world(story, n1=1)


def test_a_gpu_that_a_native_pod_took_first_is_waited_for_with_kube_schedulers_words() -> None:
    async def story(world: World) -> None:
        world.start("scheduler")
        world.share("a")
        await world.until(lambda: world.condition("a", "Scheduled"))
        world.native_pod("whole")
        await world.until(lambda: world.running("whole"))
        world.start("devices")
        await world.until(lambda: world.condition("a", "Allocated").get("reason") == "GPUNotFree")
        assert "insufficient nvidia.com/gpu" in world.condition("a", "Allocated")["message"]
        world.end("whole")
        await world.until(lambda: world.running("a"))

    in_world(story, n1=1)


def test_a_node_agent_that_is_down_is_told_after_a_moment() -> None:
    async def story(world: World) -> None:
        world.actors.node_agents = False
        world.start()
        world.share("a")
        await world.until(lambda: world.condition("a", "Allocated").get("reason") == "Creating")
        assert "node agent of n1" in world.condition("a", "Allocated")["message"]
        world.actors.node_agents = True
        world.actors.look()
        await world.until(lambda: _is_ready(world, "a"))

    in_world(story, n1=1)


def test_a_vgpu_that_nobody_took_a_part_of_goes_after_a_moment() -> None:
    async def story(world: World) -> None:
        spec = {"nodeName": "n1", "pool": "onDemand", "memoryBytes": 1 << 34}
        world.server.seed(VGPUS, {"metadata": {"name": "left"}, "spec": spec})
        world.start()
        await world.quiet(GRACE - 1)
        assert world.vgpus(), "whoever made it is about to take a part"
        await world.until(lambda: not world.vgpus() and not world.placeholders())

    in_world(story, n1=1)


def test_a_placeholder_without_its_vgpu_goes() -> None:
    async def story(world: World) -> None:
        world.start()
        world.share("a")
        await world.until(lambda: world.running("a"))
        await world.kill()
        [gpuid] = world.vgpus()
        world.delete("a")
        await world.until(lambda: world.pod("a") is None)
        world.server.remove(VGPUS, gpuid)
        world.start()
        await world.until(lambda: not world.placeholders())

    in_world(story, n1=1)


def test_a_refusal_that_may_pass_is_told_and_tried_again() -> None:
    async def story(world: World) -> None:
        quota = Fault.answer(403, "Forbidden")
        world.server.inject(quota, verb="create", resource="pods", skip=1, times=10)
        world.start()
        world.share("a")
        await world.until(lambda: world.condition("a", "Ready").get("reason") == "PodForbidden")
        await world.until(lambda: _is_ready(world, "a"))

    in_world(story, n1=1)


def test_a_decision_taken_back_while_the_pod_runs_frees_nothing_before_its_node_says_so() -> None:
    async def story(world: World) -> None:
        world.start()
        world.share("a", "0.6")
        await world.until(lambda: _is_ready(world, "a"))
        undecided = {"gpu": {"request": "0.5", "memory": "1Gi", "attempt": 1}, "nodeName": ""}
        world.server.change(SHAREPODS, "a", "default", lambda shp: shp["spec"].update(undecided))
        await world.until(lambda: world.condition("a", "Scheduled")["reason"] == "Releasing")
        assert world.shares_gpu("a")
        pod = world.pod("a")
        assert pod is not None
        world.actors.delete(pod)
        await world.until(lambda: world.condition("a", "Scheduled")["reason"] == "Bound")
        await world.until(lambda: world.running("a"))

    in_world(story, n1=1)


def _held(world: World, uid: str) -> None:
    """A vGPU of which a SharePod ``a`` holds a part, for a pod that was never bound."""
    holder = {
        "demand": uid,
        "namespace": "default",
        "name": "a",
        "podUid": "",
        "container": "",
        "requestMicros": 1,
        "limitMicros": 1,
        "memoryBytes": 1,
    }
    spec = {"nodeName": "n1", "pool": "onDemand", "memoryBytes": 1 << 34}
    status = {"phase": "Creating", "holders": [holder]}
    world.server.seed(VGPUS, {"metadata": {"name": "x"}, "spec": spec, "status": status})


def test_a_holder_whose_sharepod_was_not_seen_yet_is_not_taken_for_an_orphan() -> None:
    async def story(world: World) -> None:
        world.server.inject(Fault.hang(), verb="watch", resource="sharepods")
        world.start("devices")
        await world.quiet(1)
        _held(world, world.share("a")["metadata"]["uid"])
        await world.quiet(5)
        assert world.shares_gpu("a")

    in_world(story, n1=1)


def test_a_finished_sharepod_holds_nothing() -> None:
    async def story(world: World) -> None:
        made = world.share("a", id="x", spec={"nodeName": "n1"})
        world.server.seed(SHAREPODS, made | {"status": {"phase": "Succeeded"}})
        _held(world, made["metadata"]["uid"])
        world.start("devices")
        await world.until(lambda: not world.vgpus())

    in_world(story, n1=1)


def test_a_pod_that_failed_before_it_was_bound_holds_nothing() -> None:
    async def story(world: World) -> None:
        made = world.share("a", id="x", spec={"nodeName": "n1"})
        uid = made["metadata"]["uid"]
        _held(world, uid)
        owner = {"apiVersion": "v1", "kind": "SharePod", "name": "a", "controller": True}
        metadata = {"name": "a", "namespace": "default", "ownerReferences": [owner | {"uid": uid}]}
        pod = {"metadata": metadata, "spec": {"containers": []}, "status": {"phase": "Failed"}}
        world.server.seed(PODS, pod)
        world.start("devices")
        await world.until(lambda: not world.vgpus())
        assert world.sharepod("a")["status"]["phase"] == "Failed"

    in_world(story, n1=1)


def test_a_vgpu_that_gets_a_holder_in_the_last_moment_stays() -> None:
    async def story(world: World) -> None:
        world.start()
        world.share("a")
        await world.until(lambda: world.running("a"))
        [gpuid] = world.vgpus()

        def take_a_part() -> None:
            uid = world.share("b", id=gpuid, spec={"nodeName": "n1"})["metadata"]["uid"]
            part = {"demand": uid, "namespace": "default", "name": "b", "podUid": ""}
            amounts = {"requestMicros": 1, "limitMicros": 1, "memoryBytes": 1, "container": ""}
            taken = {"holders": [part | amounts]}
            world.server.change(VGPUS, gpuid, "", lambda vgpu: vgpu["status"].update(taken))

        conflict = Fault("answer", 409, "Conflict", action=take_a_part)
        world.server.inject(conflict, verb="patch", resource="vgpus/status")
        world.delete("a")
        await world.until(lambda: world.running("b"))
        assert world.vgpus() == {gpuid: ["b"]}
        patches = [each for each in world.server.requests if each.resource == "vgpus/status"]
        tries = [each for each in patches if "Deleting" in str(each.body)]
        assert len(tries) == 1

    in_world(story, n1=1)


def test_the_placeholder_goes_before_its_vgpu() -> None:
    async def story(world: World) -> None:
        world.start()
        world.share("a")
        await world.until(lambda: world.running("a"))
        kept: list[bool] = []
        world.server.storage.after_change.append(
            lambda *_: kept.append(bool(world.vgpus()) or not world.placeholders())
        )
        world.delete("a")
        await world.until(lambda: not world.vgpus())
        assert all(kept)

    in_world(story, n1=1)


def test_a_gpu_whose_vgpu_was_deleted_by_force_is_kept_while_pods_run_on_it() -> None:
    async def story(world: World) -> None:
        world.start()
        world.share("a")
        await world.until(lambda: world.running("a"))
        [gpuid] = world.vgpus()
        world.server.remove(VGPUS, gpuid)
        world.native_pod("whole")
        await world.quiet()
        assert world.running("a")
        assert not world.running("whole")
        world.delete("a")
        await world.until(lambda: world.running("whole"))

    in_world(story, n1=1)


def test_a_sharepod_that_is_being_deleted_gets_no_pod() -> None:
    async def story(world: World) -> None:
        made = world.share("a", id="x", spec={"nodeName": "n1"})
        made["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["theirs"]}
        world.server.seed(SHAREPODS, made)
        world.start()
        await world.quiet()
        assert world.pod("a") is None
        assert not world.vgpus()

    in_world(story, n1=1)


def test_a_decision_whose_part_was_not_seen_yet_is_not_undone() -> None:
    async def story(world: World) -> None:
        world.server.inject(Fault.hang(), verb="watch", resource="vgpus")
        world.start("devices")
        await world.quiet(1)
        world.start("scheduler")
        world.share("a")
        await world.until(lambda: world.running("a"))
        assert world.sharepod("a")["spec"]["gpu"]["attempt"] == 1

    in_world(story, n1=1)


def test_a_part_given_by_name_that_was_not_seen_yet_is_not_taken_twice() -> None:
    async def story(world: World) -> None:
        world.server.inject(Fault.hang(), verb="watch", resource="vgpus")
        world.start("devices")
        await world.quiet(1)
        _held(world, "the-uid")
        made = {"metadata": {"name": "a", "namespace": "default", "uid": "the-uid"}}
        gpu = {"request": "0.1", "memory": "1Gi", "id": "x"}
        spec = {"nodeName": "n1", "gpu": gpu, "containers": [{"name": "main", "image": "i:1"}]}
        world.server.seed(SHAREPODS, made | {"spec": spec})
        await world.until(lambda: world.running("a"))
        assert world.vgpus() == {"x": ["a"]}

    in_world(story, n1=1)


def test_a_decision_whose_pod_was_not_seen_yet_is_not_undone() -> None:
    async def story(world: World) -> None:
        world.server.inject(Fault.hang(), verb="watch", resource="pods")
        world.start("devices")
        await world.quiet(1)
        world.server.seed(
            PODS,
            {
                "metadata": {"name": "a", "namespace": "default"},
                "spec": {"containers": [], "nodeName": "n1"},
                "status": {"phase": "Running"},
            },
        )
        world.share("a", id="x", attempt=1, spec={"nodeName": "n1"})
        await world.quiet(5)
        assert world.sharepod("a")["spec"]["nodeName"] == "n1"

    in_world(story, n1=1)

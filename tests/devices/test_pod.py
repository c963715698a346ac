"""The pod of a SharePod: what it is made of, and what keeps it from running."""

from typing import Any

from cluster_fake import World, story
from kube_fake import Fault
from kubeshare.api.v1 import SHAREPODS
from kubeshare.kube.resources import PODS

Raw = dict[str, Any]


@story(n1=1)
async def test_the_pod_is_the_sharepods_own_spec_bound_to_the_node_of_its_gpu(world: World) -> None:
    preferred = [{"weight": 1, "preference": {"matchExpressions": []}}]
    mine = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    spec = {
        "affinity": mine,
        "initContainers": [{"name": "fetch", "image": "curl:1"}],
        "restartPolicy": "OnFailure",
    }
    world.start()
    made = await world.run("a", spec=spec, annotations={"note": "kept"})
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


@story(n1=1)
async def test_nothing_of_a_gpu_is_an_ordinary_pod(world: World) -> None:
    world.start()
    world.share("a", None)
    await world.until(lambda: world.ready("a"))
    pod = world.pod("a")
    assert pod is not None
    assert "resources" not in pod["spec"]["containers"][0]
    assert not world.vgpus()


@story(n1=1)
async def test_a_pod_that_kube_scheduler_cannot_place_is_told_with_its_words(world: World) -> None:
    world.start()
    await world.run("a")
    world.actors.binds = False
    world.share("b")
    await world.until(lambda: world.condition("b", "Ready").get("reason") == "Unschedulable")
    assert world.condition("b", "Ready")["message"] == "insufficient cpu"
    world.actors.binds = True
    world.actors.look()
    await world.until(lambda: world.ready("b"))


@story(n1=1)
async def test_a_pod_of_somebody_else_is_never_touched(world: World) -> None:
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
    await world.until(lambda: world.ready("a"))


def _no_pod_without_image(pod: Raw, _old: Raw | None) -> str | None:
    if all(container.get("image") for container in pod["spec"]["containers"]):
        return None
    return "spec.containers[0].image: Required value"


@story(n1=1)
async def test_the_api_servers_words_about_an_invalid_pod_are_told_and_the_part_is_given_back(
    world: World,
) -> None:
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
    await world.until(lambda: world.ready("a"))


@story(n1=1)
async def test_a_refusal_that_may_pass_is_told_and_tried_again(world: World) -> None:
    quota = Fault.answer(403, "Forbidden")
    world.server.inject(quota, verb="create", resource="pods", skip=1, times=10)
    world.start()
    world.share("a")
    await world.until(lambda: world.condition("a", "Ready").get("reason") == "PodForbidden")
    await world.until(lambda: world.ready("a"))

"""The pod of a SharePod: its manifest, and what keeps it from running."""

from typing import Any

import pytest

from expectations.pods import (
    expect_bound,
    expect_condition,
    expect_pod,
    expect_ready,
    expect_running,
)
from expectations.scheduling import expect_decided
from expectations.vgpus import expect_activated, expect_no_vgpus, expect_phase
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.state import the_pod
from kubeshare.api.types.constants import LABEL_VGPU, VGPU_RESOURCE
from kubeshare.api.types.v1 import SHAREPODS, VGPU, VGPUS, VGPUSpec
from kubeshare.device_manager.sharepod.pods import manifest
from kubeshare.kube.meta import ObjectMeta
from kubeshare.kube.resources import PODS
from kubeshare.simulator.control import Fault

Raw = dict[str, Any]


@scenario(n1=1)
async def test_the_pod_is_the_sharepods_own_spec_bound_to_the_node_of_its_gpu(
    cluster: FakeCluster,
) -> None:
    preferred = [{"weight": 1, "preference": {"matchExpressions": []}}]
    mine = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    spec = {
        "affinity": mine,
        "initContainers": [{"name": "fetch", "image": "curl:1"}],
        "restartPolicy": "OnFailure",
    }
    cluster.start()
    made = await cluster.run("a", spec=spec, annotations={"note": "kept"})
    pod = the_pod(cluster, "a")
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


def _asking(pod: Raw) -> list[str]:
    """The containers of a pod that ask for its part of the GPU."""
    every = [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]
    limits = {one["name"]: one.get("resources", {}).get("limits", {}) for one in every}
    assert all(limit.get(VGPU_RESOURCE, "1") == "1" for limit in limits.values())
    return [name for name, limit in limits.items() if VGPU_RESOURCE in limit]


SEVERAL = {
    "initContainers": [
        {"name": "fetch", "image": "curl:1"},
        {"name": "sidecar", "image": "proxy:1", "restartPolicy": "Always"},
    ],
    "containers": [
        {"name": "train", "image": "train:1", "resources": {"limits": {"cpu": "1"}}},
        {"name": "log", "image": "log:1"},
        {"name": "serve", "image": "serve:1"},
    ],
}


@scenario(n1=1)
async def test_all_containers_but_the_init_containers_share(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("a", spec=SEVERAL)
    pod = the_pod(cluster, "a")
    assert _asking(pod) == ["train", "log", "serve"]
    assert pod["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "1"


@scenario(n1=1)
async def test_the_containers_that_are_named_share_and_no_other(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("a", spec=SEVERAL, containers=["train", "sidecar"])
    pod = the_pod(cluster, "a")
    assert _asking(pod) == ["sidecar", "train"]


@scenario(n1=1)
async def test_a_container_that_asks_itself_shares_and_no_other(cluster: FakeCluster) -> None:
    asks = {"name": "train", "image": "t:1", "resources": {"limits": {VGPU_RESOURCE: "2"}}}
    cluster.start()
    await cluster.run("a", spec={"containers": [asks, {"name": "log", "image": "log:1"}]})
    pod = the_pod(cluster, "a")
    assert _asking(pod) == ["train"]


@scenario(n1=1)
async def test_a_container_that_there_is_not_is_told_before_a_gpu_is_taken(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    cluster.share("a", spec=SEVERAL, containers=["trian"])
    await expect_decided(cluster, "a")
    condition = cluster.condition("a", "Scheduled")
    assert condition["reason"] == "Invalid"
    assert "spec.gpu.containers" in condition["message"]
    assert "there is no container trian" in condition["message"]
    assert not cluster.vgpus()


EVERY_FIELD: Raw = {
    "activeDeadlineSeconds": 3600,
    "automountServiceAccountToken": False,
    "containers": [
        {
            "name": "main",
            "image": "train:1",
            "env": [{"name": "A", "value": "b"}],
            "envFrom": [{"secretRef": {"name": "keys"}}],
            "lifecycle": {"preStop": {"sleep": {"seconds": 5}}},
            "livenessProbe": {"exec": {"command": ["true"]}},
            "ports": [{"containerPort": 80}],
            "securityContext": {"runAsNonRoot": True},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        }
    ],
    "dnsPolicy": "None",
    "dnsConfig": {"nameservers": ["10.0.0.1"]},
    "enableServiceLinks": False,
    "hostAliases": [{"ip": "10.0.0.2", "hostnames": ["x"]}],
    "hostname": "trainer",
    "imagePullSecrets": [{"name": "registry"}],
    "nodeSelector": {"kind": "gpu"},
    "overhead": {"cpu": "1m"},
    "preemptionPolicy": "Never",
    "priorityClassName": "high",
    "readinessGates": [{"conditionType": "example.com/ready"}],
    "resourceClaims": [{"name": "nic", "resourceClaimName": "nic"}],
    "runtimeClassName": "kata",
    "schedulerName": "volcano",
    "securityContext": {"fsGroup": 1},
    "serviceAccountName": "trainer",
    "shareProcessNamespace": True,
    "terminationGracePeriodSeconds": 7,
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone"}],
    "volumes": [{"name": "data", "emptyDir": {}}],
    "aFieldOfTomorrow": {"kept": [1, 2, 3]},
}


@pytest.mark.parametrize("restarts", ["Always", "OnFailure", "Never"])
def test_every_other_field_of_a_podspec_passes_through(restarts: str) -> None:
    metadata = {"name": "a", "namespace": "default", "uid": "1"}
    spec = EVERY_FIELD | {"restartPolicy": restarts}
    vgpu = VGPU(metadata=ObjectMeta(name="x"), spec=VGPUSpec(node_name="n1"))

    made = manifest({"metadata": metadata, "spec": spec | {"gpu": {"id": "x"}}}, [vgpu])["spec"]

    (container,) = made.pop("containers")
    assert container.pop("resources") == {"limits": {VGPU_RESOURCE: "1"}}
    assert made.pop("affinity")
    assert made | {"containers": [container]} == spec


@scenario(n1=1)
async def test_nothing_of_a_gpu_is_an_ordinary_pod(cluster: FakeCluster) -> None:
    cluster.start()
    cluster.share("a", None, labels={LABEL_VGPU: "theirs", "team": "red"})
    await expect_ready(cluster, "a")
    pod = the_pod(cluster, "a")
    assert "resources" not in pod["spec"]["containers"][0]
    assert LABEL_VGPU not in pod["metadata"]["labels"]
    assert not cluster.vgpus()


@scenario(n1=1)
async def test_a_pod_that_kube_scheduler_cannot_place_is_told_with_its_words(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    await cluster.run("a")
    cluster.actors.binds = False
    cluster.share("b")
    await expect_condition(cluster, "b", "Ready", "Unschedulable")
    assert cluster.condition("b", "Ready")["message"] == "insufficient cpu"
    cluster.actors.binds = True
    cluster.actors.reconcile()
    await expect_ready(cluster, "b")


@scenario(n1=1)
async def test_a_pod_of_somebody_else_is_never_touched(cluster: FakeCluster) -> None:
    cluster.server.seed(
        PODS,
        {
            "metadata": {"name": "a", "namespace": "default"},
            "spec": {"containers": [{"name": "theirs"}]},
            "status": {"phase": "Pending"},
        },
    )
    cluster.start()
    cluster.share("a")
    await expect_condition(cluster, "a", "Ready", "NameTaken")
    assert "belongs to another owner" in cluster.condition("a", "Ready")["message"]
    theirs = the_pod(cluster, "a")
    assert theirs["spec"]["containers"] == [{"name": "theirs"}]
    cluster.server.remove(PODS, "a", "default")
    await expect_ready(cluster, "a")


@scenario(n1=1)
async def test_the_pod_of_a_large_sharepod_is_whole(cluster: FakeCluster) -> None:
    args = ["x" * 100_000]
    cluster.start()
    cluster.share("a", spec={"containers": [{"name": "main", "image": "train:1", "args": args}]})
    cluster.share("b")
    await expect_ready(cluster, "a")
    await expect_ready(cluster, "b")
    (container,) = the_pod(cluster, "a")["spec"]["containers"]
    assert container["args"] == args
    reads = [
        each.path.name
        for each in cluster.server.requests
        if each.resource == "sharepods" and each.verb == "get"
    ]
    assert reads == ["a"]


def _no_pod_without_image(pod: Raw, _old: Raw | None) -> str | None:
    if all(container.get("image") for container in pod["spec"]["containers"]):
        return None
    return "spec.containers[0].image: Required value"


@scenario(n1=1)
async def test_the_api_servers_words_about_an_invalid_pod_are_told_and_the_part_is_given_back(
    cluster: FakeCluster,
) -> None:
    cluster.server.add_rule(PODS, _no_pod_without_image)
    cluster.start()
    cluster.share("a", spec={"containers": [{"name": "main"}]})
    await expect_condition(cluster, "a", "Ready", "InvalidPod")
    assert "image: Required value" in cluster.condition("a", "Ready")["message"]
    await expect_no_vgpus(cluster)
    await cluster.quiet(30)
    await expect_condition(cluster, "a", "Allocated", "Released", status="False")
    await expect_condition(cluster, "a", "Ready", "InvalidPod", status="False")
    # The decision stands: an edit that mends the spec goes on from it.
    await expect_condition(cluster, "a", "Scheduled", "Bound", status="True")
    tries = [each for each in cluster.server.requests if each.resource == "pods"]
    creations = [each for each in tries if each.path.name == "" and each.verb == "create"]
    # A placeholder, the pod, and the pod once more when its GPU is known before the refusal is.
    assert len(creations) <= 3 + len(cluster.placeholders())
    good = {"containers": [{"name": "main", "image": "train:1"}]}
    cluster.server.change(SHAREPODS, "a", "default", lambda shp: shp["spec"].update(good))
    await expect_ready(cluster, "a")


@scenario(n1=1)
async def test_fields_that_are_null_are_no_reason_not_to_run(cluster: FakeCluster) -> None:
    cluster.start()
    fields = ("initContainers", "nodeSelector", "tolerations", "affinity", "volumes")
    cluster.share("a", spec=dict.fromkeys(fields))
    await expect_ready(cluster, "a")


@scenario(n1=1)
async def test_a_refused_pod_gives_back_its_part_of_a_gpu_that_was_there_before(
    cluster: FakeCluster,
) -> None:
    cluster.server.add_rule(PODS, _no_pod_without_image)
    cluster.start()
    await cluster.run("a", "0.3")
    cluster.share("b", "0.3", spec={"containers": [{"name": "main"}]})
    await expect_condition(cluster, "b", "Ready", "InvalidPod")
    await expect_condition(cluster, "b", "Allocated", "Released", status="False", seconds=5)
    await cluster.until(lambda: [len(held) for held in cluster.vgpus().values()] == [1])


@scenario(n1=1)
async def test_a_refusal_that_may_pass_is_told_and_tried_again(cluster: FakeCluster) -> None:
    quota = Fault.answer(403, "Forbidden")
    cluster.server.inject(quota, verb="create", resource="pods", skip=1, times=10)
    cluster.start()
    cluster.share("a")
    await expect_condition(cluster, "a", "Ready", "PodForbidden")
    await expect_ready(cluster, "a")


@scenario(n1=2)
async def test_a_pod_is_not_let_run_while_one_of_its_gpus_is_not_held(cluster: FakeCluster) -> None:
    """As when a paused former leader removes a holder."""
    cluster.actors.binds = False
    cluster.start()
    cluster.share("a", "0.6", count=2)
    await expect_pod(cluster, "a")
    await cluster.kill()
    lost, kept = cluster.vgpus()
    cluster.server.change(VGPUS, lost, "", lambda vgpu: vgpu["status"].update(holders=[]))
    cluster.actors.binds = True
    cluster.start("devices")
    await expect_bound(cluster, "a")
    await cluster.quiet(5)
    assert cluster.vgpus() == {lost: [], kept: ["a"]} or cluster.vgpus() == {kept: ["a"]}
    assert cluster.pod_uids() == {"a": ""}


@scenario(n1=1)
async def test_a_pod_that_came_and_went_while_the_watch_was_broken_is_made_again(
    cluster: FakeCluster,
) -> None:
    cluster.reserve("n1", "x")
    cluster.start()
    await expect_phase(cluster, "x", phase="Idle")
    await cluster.kill("devices")
    cluster.server.inject(Fault.hang(), verb="watch", resource="pods")
    cluster.start("devices")
    cluster.actors.binds = False
    cluster.share("a", id="x", spec={"nodeName": "n1"})
    await expect_pod(cluster, "a")
    cluster.server.remove(PODS, "a", "default")
    cluster.actors.binds = True
    # The new list contains neither the pod nor its end.
    cluster.server.compact()
    await expect_running(cluster, "a", seconds=120)


@scenario(n1=1)
async def test_the_status_is_written_at_the_version_that_has_the_finalizer(
    cluster: FakeCluster,
) -> None:
    cluster.native_pod("a", 0)
    cluster.reserve("n1", "gpu0")
    cluster.start("devices")
    await expect_activated(cluster)
    cluster.share("a", id="gpu0", spec={"nodeName": "n1"})
    await expect_condition(cluster, "a", "Ready", "NameTaken")
    writes = [
        each.resource
        for each in cluster.server.requests
        if each.is_write and each.path.plural == "sharepods"
    ]
    after = writes[writes.index("sharepods") + 1 :]
    assert after == ["sharepods/status"], "a conflict would have it written twice"

"""What the published versions write back is written with the decision, and never read."""

from typing import Any

from expectations.pods import expect_running
from expectations.scheduling import expect_decided
from fakes import manifests
from fakes.cluster import FakeCluster, scenario
from kubeshare.api import sharepods
from kubeshare.api.types.constants import GATE, LABEL_ROLE, ROLE_POD, VGPU_RESOURCE
from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.dialects import pod, sharepod
from kubeshare.kube.resources import PODS

AMOUNTS = {
    "kubeshare/gpu_request": "0.3",
    "kubeshare/gpu_limit": "1.0",
    "kubeshare/gpu_mem": "1073741824",
}


def annotations_of(obj: Any) -> dict[str, str]:
    assert obj is not None
    return dict(obj["metadata"].get("annotations") or {})


def seed_pod(cluster: FakeCluster, annotations: dict[str, str], **labels: str) -> None:
    """A plain pod as the admission policy mutates it, in a published spelling."""
    spelled = {f"sharedgpu/{name}": value for name, value in labels.items()}
    metadata = {
        "namespace": "default",
        "annotations": annotations,
        "labels": {LABEL_ROLE: ROLE_POD, **spelled},
    }
    gated = manifests.pod(
        "a", {VGPU_RESOURCE: "1"}, metadata=metadata, schedulingGates=[{"name": GATE}]
    )
    cluster.server.seed(PODS, gated | {"status": {"phase": "Pending"}})


@scenario(n1=1)
async def test_a_sharepod_in_the_published_spelling_gets_its_gpuid(cluster: FakeCluster) -> None:
    cluster.share("a", None, annotations=AMOUNTS)
    cluster.share("b", "0.3")
    cluster.start()
    await expect_running(cluster, "a", "b")
    gpuid = cluster.sharepod("a")["spec"]["gpu"]["id"]
    assert annotations_of(cluster.sharepod("a"))["kubeshare/GPUID"] == gpuid
    assert annotations_of(cluster.pod("a"))["kubeshare/GPUID"] == gpuid
    assert "kubeshare/GPUID" not in annotations_of(cluster.sharepod("b"))


@scenario(n1=1)
async def test_the_written_gpuid_is_not_read_once_the_decision_is_undone(
    cluster: FakeCluster,
) -> None:
    cluster.share("a", None, annotations=AMOUNTS)
    cluster.start("scheduler")
    await expect_decided(cluster, "a")

    def undo(raw: Any) -> None:
        raw["spec"]["gpu"].pop("id")
        raw["spec"].pop("nodeName")

    decided = cluster.sharepod("a")
    undo(decided)
    assert "kubeshare/GPUID" in annotations_of(decided)
    demand = sharepod.demand_of(decided)
    assert demand is not None
    assert demand.device_id == ""
    assert sharepods.gpuids_of(decided) == sharepods.gpuids(sharepods.view(decided)) == ()
    # An author that undoes the decision by hand leaves the annotation; it is written anew.
    cluster.server.change(SHAREPODS, "a", "default", undo)
    await cluster.until(lambda: cluster.sharepod("a")["spec"]["gpu"]["attempt"] == 2)
    written = annotations_of(cluster.sharepod("a"))["kubeshare/GPUID"]
    assert written == cluster.sharepod("a")["spec"]["gpu"]["id"]


@scenario(n1=1)
async def test_a_plain_pod_in_the_published_spelling_gets_its_gpuid(cluster: FakeCluster) -> None:
    seed_pod(cluster, AMOUNTS)
    cluster.start()
    await expect_running(cluster, "a")
    bound = cluster.pod("a")
    annotations = annotations_of(bound)
    assert annotations["kubeshare/GPUID"] == annotations["kubeshare.nthu/gpuids"]
    demand = pod.demand_of(bound or {})
    assert demand is not None
    assert demand.device_id == ""


@scenario(n1=1)
async def test_a_pod_with_labels_of_the_second_version_gets_uuid_model_and_memory(
    cluster: FakeCluster,
) -> None:
    seed_pod(cluster, {}, gpu_limit="1.0", gpu_request="0.5", gpu_mem="1073741824")
    cluster.plain("b", "0.1")
    cluster.start()
    await expect_running(cluster, "a", "b")
    annotations = annotations_of(cluster.pod("a"))
    (vgpu,) = cluster.vgpus()
    spec = cluster.vgpu(vgpu)["spec"]
    assert annotations["sharedgpu/gpu_uuid"] == spec["uuid"]
    assert annotations["sharedgpu/gpu_model"] == spec["model"].replace(" ", "-")
    assert annotations["sharedgpu/gpu_mem"] == "1073741824"
    others = annotations_of(cluster.pod("b"))
    assert not [key for key in others if key.startswith(("sharedgpu/", "kubeshare/"))]

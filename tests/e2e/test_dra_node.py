"""A node whose GPUs NVIDIA's DRA driver offers: each policy chooses the physical GPU."""

from collections.abc import Iterator

import pytest

from e2e.space import Space, container
from e2e.stage import Raw, Stage, eventually
from e2e.test_owned import schedule_by
from kubeshare.api.types.constants import NAMESPACE, NVIDIA_DRA_DRIVER
from kubeshare.lab.node import gpus

pytestmark = pytest.mark.lab

HERE = "node-2"
ON_IT = {"kubernetes.io/hostname": HERE}
CLAIMS = f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"


@pytest.fixture
def by_claims(stage: Stage) -> Iterator[list[str]]:
    """The node has the DRA driver instead of the plugin; the UUIDs of its GPUs by index."""
    node = stage.node(HERE)
    stage.lab.add_gpu_class()
    stage.lab.stop_component(f"{HERE}/{gpus.DEVICE_PLUGIN}")
    gpus.start_dra_driver(node.machine, node.layout)
    eventually(lambda: are_free(stage), "the GPUs to be offered by claims", seconds=120)
    yield [device["uuid"] for device in devices(stage)]
    node.machine.stop(gpus.DRA_DRIVER)
    stage.lab.api.send("DELETE", f"{SLICES}/{HERE}-{NVIDIA_DRA_DRIVER}")
    stage.lab.up()
    eventually(lambda: not offered(stage), "the GPUs to be offered by the plugin", seconds=120)


def devices(stage: Stage) -> list[Raw]:
    found = stage.find("/apis/kubeshare.nthu/v1/gpunodes", HERE)
    assert found is not None
    return sorted(found["spec"]["devices"], key=lambda device: int(device["index"]))


def offered(stage: Stage) -> int:
    """How many GPUs can be selected; none while the plugin offers some."""
    node = stage.find("/api/v1/nodes", HERE)
    assert node is not None
    if int(node["status"]["allocatable"].get("nvidia.com/gpu", 0)):
        return 0
    return sum(device.get("claimDriver") == NVIDIA_DRA_DRIVER for device in devices(stage))


def are_free(stage: Stage) -> bool:
    """Whether both GPUs can be selected, and no pod has one by the kubelet's report."""
    return offered(stage) == 2 and not any(each.get("inUse", False) for each in devices(stage))


def uuids_of(stage: Stage) -> dict[str, str]:
    """UUID that was selected -> UUID that the placeholder got."""
    specs = [vgpu["spec"] for vgpu in stage.vgpus() if vgpu["spec"]["nodeName"] == HERE]
    return {spec.get("selectedUuid", ""): spec.get("uuid", "") for spec in specs}


def until_given_back(stage: Stage) -> None:
    eventually(
        lambda: not (uuids_of(stage) or stage.items(CLAIMS)) and are_free(stage),
        "vGPUs and claims to be gone, and both GPUs to be free",
        seconds=180,
        explain=lambda: str((stage.vgpus(), stage.items(CLAIMS))),
    )


def test_each_policy_opens_fills_and_releases_the_gpus_that_it_chooses(
    stage: Stage, by_claims: list[str], space: Space
) -> None:
    first, second = by_claims
    for policy in ("binpack", "topology", "locality"):
        schedule_by(stage, policy)
        for name, request, expected in (
            ("a", "0.4", first),
            ("b", "0.4", first),
            ("c", "1", second),
        ):
            gpu = {"request": request, "memory": "1Gi"}
            space.share(f"{policy}-{name}", gpu, nodeSelector=ON_IT)
            assert space.ready(f"{policy}-{name}").uuid == expected
        assert uuids_of(stage) == {first: first, second: second}
        place = space.ready(f"{policy}-a")
        shares = stage.shares(place, {f"{policy}-a": 0.5, f"{policy}-b": 0.5})
        used = sum(shares.values())
        assert all(abs(share / used - 0.5) < 0.05 for share in shares.values()), shares
        for name in "abc":
            space.delete("shp", f"{policy}-{name}")
        until_given_back(stage)


def test_a_gpu_that_a_native_pod_has_by_a_claim_is_not_chosen(
    stage: Stage, by_claims: list[str], space: Space
) -> None:
    first, second = by_claims
    selector = f"device.attributes['{NVIDIA_DRA_DRIVER}'].uuid == '{first}'"
    exactly = {
        "deviceClassName": NVIDIA_DRA_DRIVER,
        "selectors": [{"cel": {"expression": selector}}],
    }
    space.create(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "native"},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        }
    )
    resources = {"claims": [{"name": "gpu"}]}
    space.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "native"},
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "nodeSelector": ON_IT,
                "resourceClaims": [{"name": "gpu", "resourceClaimName": "native"}],
                "containers": [container(("sleep", "3600"), resources=resources)],
            },
        }
    )
    eventually(
        lambda: [device.get("inUse", False) for device in devices(stage)] == [True, False],
        "the GPU of the native pod to be known",
        explain=lambda: str(devices(stage)),
    )
    space.share("beside", {"request": "0.5", "memory": "1Gi"}, nodeSelector=ON_IT)
    assert space.ready("beside").uuid == second

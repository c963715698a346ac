"""Native pods with claims on a node whose GPUs NVIDIA's DRA driver offers.

``test_kinds_of_nodes.py`` has SharePods on such a node.
"""

from collections.abc import Iterator

import pytest

from e2e.space import REST, Space, container
from e2e.stage import Raw, Stage, eventually
from kubeshare.api.types.constants import NVIDIA_DRA_DRIVER
from kubeshare.lab.node import gpus

pytestmark = pytest.mark.lab

HERE = "node-2"
ON_IT = {"kubernetes.io/hostname": HERE}
SLICES = "/apis/resource.k8s.io/v1/resourceslices"


@pytest.fixture
def by_claims(stage: Stage) -> Iterator[list[str]]:
    """The node has the DRA driver instead of the plugin; the UUIDs of its GPUs by index."""
    node = stage.node(HERE)
    stage.lab.add_gpu_class()
    stage.lab.stop_component(f"{HERE}/{gpus.DEVICE_PLUGIN}")
    gpus.start_dra_driver(node.machine, node.layout)
    eventually(lambda: are_free(stage), "the GPUs to be offered by claims")
    yield [device["uuid"] for device in devices(stage)]
    node.machine.stop(gpus.DRA_DRIVER)
    stage.lab.api.send("DELETE", f"{SLICES}/{HERE}-{NVIDIA_DRA_DRIVER}")
    stage.lab.up()
    eventually(lambda: not offered(stage), "the GPUs to be offered by the plugin")


def devices(stage: Stage) -> list[Raw]:
    return sorted(stage.gpunode(HERE)["spec"]["devices"], key=lambda device: int(device["index"]))


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


@pytest.fixture
def reservation(stage: Stage, by_claims: list[str], space: Space) -> Iterator[None]:
    """Idle vGPUs are kept, until the namespace is cleared."""
    del by_claims, space
    stage.configure(pool={"policy": "reservation"})
    yield
    stage.configure()


def native_pod(space: Space, name: str, uuid: str) -> None:
    """A pod with a claim that selects a GPU."""
    selector = f"device.attributes['{NVIDIA_DRA_DRIVER}'].uuid == '{uuid}'"
    exactly = {
        "deviceClassName": NVIDIA_DRA_DRIVER,
        "selectors": [{"cel": {"expression": selector}}],
    }
    space.create(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        }
    )
    resources = {"claims": [{"name": "gpu"}]}
    space.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "nodeSelector": ON_IT,
                "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
                "containers": [container(REST, resources=resources)],
            },
        }
    )


@pytest.mark.usefixtures("reservation")
def test_native_pods_with_claims_keep_their_gpus_and_get_those_of_idle_vgpus(
    stage: Stage, by_claims: list[str], space: Space
) -> None:
    first, second = by_claims
    native_pod(space, "native", first)
    eventually(
        lambda: [device.get("inUse", False) for device in devices(stage)] == [True, False],
        "the GPU of the native pod to be known",
        explain=lambda: str(devices(stage)),
    )
    space.share("beside", {"request": "0.5", "memory": "1Gi"}, nodeSelector=ON_IT)
    place = space.ready("beside")
    assert place.uuid == second
    space.delete("shp", "beside")
    eventually(lambda: not stage.holders(place.gpuid), "the share to be released")
    assert stage.vgpu(place.gpuid) is not None
    native_pod(space, "late", second)
    space.until_phase("late", "Running")
    eventually(lambda: stage.vgpu(place.gpuid) is None, "the idle vGPU to be gone")

"""A vGPU's GPU, read from the kubelet and written once."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fakes.node import A_GPU, NODE, OTHER_GPU, Cluster, FakeKubelet, FixedGpus, Running
from kubeshare.api.types.constants import NAMESPACE, placeholder_name
from kubeshare.api.types.v1 import GPUNODES, VGPUS
from kubeshare.kube.client.errors import ConflictError
from kubeshare.kube.controller.controller import RequeueAfter, TerminalError
from kubeshare.kube.resources import EVENTS, PODS, RESOURCE_SLICES
from kubeshare.node.gpus.pod_resources import (
    PodResourcesError,
    allocated_gpus,
    gpus_in_use,
    whole_gpu,
)
from kubeshare.node.paths import NodePaths
from kubeshare.simulator.control import FakeApiServer

POD = (NAMESPACE, placeholder_name("red"))
WHOLE = "nvidia.com/gpu"

Resolve = Callable[[], RequeueAfter | None]


@pytest.fixture
def kubelet() -> FakeKubelet:
    """A kubelet that has allocated no GPU."""
    return FakeKubelet()


@pytest.fixture
def resolve(agent: Running, kubelet: FakeKubelet, paths: NodePaths) -> Resolve:
    """Resolve vGPU ``red`` once."""

    async def main() -> RequeueAfter | None:
        socket = paths.pod_resources_socket
        async with kubelet.serve_pod_resources(socket), agent() as running:
            vgpu = running.view.vgpus.store.get("red")
            assert vgpu is not None
            try:
                return await running.placeholders.resolve(vgpu)
            finally:
                await running.events.flush()

    return lambda: asyncio.run(main())


def spec(server: FakeApiServer) -> Any:
    stored = server.stored(VGPUS, "red")
    assert stored is not None
    return stored["spec"]


def test_the_uuid_model_and_memory_of_the_placeholders_gpu_are_written(
    cluster: Cluster, kubelet: FakeKubelet, resolve: Resolve
) -> None:
    cluster.add_vgpu("red", uuid="")
    cluster.add_placeholder("red")
    kubelet.devices[POD] = {WHOLE: [A_GPU.uuid], "example.com/nic": ["eth0"]}
    kubelet.devices["default", "native"] = {WHOLE: ["GPU-of-somebody-else"]}
    assert resolve() is None
    written = spec(cluster.server)
    assert written["uuid"] == A_GPU.uuid
    assert written["model"] == "V100"
    assert written["memoryBytes"] == A_GPU.memory_bytes


def test_a_placeholder_that_is_admitted_and_still_starting_has_its_gpu_already(
    cluster: Cluster, kubelet: FakeKubelet, resolve: Resolve
) -> None:
    cluster.add_vgpu("red", uuid="")
    cluster.add_placeholder("red", "Pending")
    kubelet.devices[POD] = {WHOLE: [A_GPU.uuid]}
    resolve()
    assert spec(cluster.server)["uuid"] == A_GPU.uuid


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_placeholder_that_has_ended_is_not_asked_about(
    cluster: Cluster, kubelet: FakeKubelet, resolve: Resolve, phase: str
) -> None:
    cluster.add_vgpu("red", uuid="")
    cluster.add_placeholder("red", phase)
    assert resolve() is None
    assert kubelet.lists == 0


def test_a_placeholder_that_is_not_listed_yet_is_asked_about_again_soon(
    cluster: Cluster, resolve: Resolve
) -> None:
    cluster.add_vgpu("red", uuid="")
    cluster.add_placeholder("red")
    again = resolve()
    assert again is not None
    assert 0 < again.seconds <= 0.01


def test_one_that_is_not_listed_for_long_is_asked_about_ever_more_seldom(
    cluster: Cluster, kubelet: FakeKubelet, agent: Running, paths: NodePaths
) -> None:
    cluster.add_vgpu("red", uuid="")
    cluster.add_placeholder("red")

    async def main() -> list[float]:
        socket = paths.pod_resources_socket
        async with kubelet.serve_pod_resources(socket), agent() as running:
            vgpu = running.view.vgpus.store.get("red")
            assert vgpu is not None
            asked = [await running.placeholders.resolve(vgpu) for _ in range(12)]
            return [again.seconds for again in asked if again is not None]

    pauses = asyncio.run(main())
    assert len(pauses) == 12
    assert pauses == sorted(pauses)
    assert pauses[-1] == pauses[-2] == 0.3


def test_what_was_written_is_not_written_again_before_the_watch_tells_of_it(
    cluster: Cluster, kubelet: FakeKubelet, agent: Running, paths: NodePaths
) -> None:
    cluster.add_vgpu("red", uuid="")
    cluster.add_placeholder("red")
    kubelet.devices[POD] = {WHOLE: [A_GPU.uuid]}

    async def main() -> None:
        socket = paths.pod_resources_socket
        async with kubelet.serve_pod_resources(socket), agent() as running:
            before = running.view.vgpus.store.get("red")
            assert before is not None
            await running.placeholders.resolve(before)
            await running.placeholders.resolve(before)

    asyncio.run(main())
    assert kubelet.lists == 1


def test_a_known_vgpu_is_left_alone(
    cluster: Cluster, kubelet: FakeKubelet, resolve: Resolve
) -> None:
    cluster.add_vgpu("red")
    cluster.add_placeholder("red")
    kubelet.devices[POD] = {WHOLE: ["GPU-another"]}
    assert resolve() is None
    assert spec(cluster.server)["uuid"] == A_GPU.uuid


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        ([f"{A_GPU.uuid}::0"], "time-sliced"),
        (["MIG-00000000-0000-0000-0000-000000000000"], "MIG instance"),
        ([A_GPU.uuid, "GPU-b"], "2 were allocated"),
    ],
)
def test_what_is_not_one_whole_gpu_is_refused_with_the_reason(
    cluster: Cluster, kubelet: FakeKubelet, resolve: Resolve, devices: list[str], words: str
) -> None:
    cluster.add_vgpu("red", uuid="")
    cluster.add_placeholder("red")
    kubelet.devices[POD] = {WHOLE: devices}
    with pytest.raises(TerminalError, match=words):
        resolve()
    assert spec(cluster.server)["uuid"] == ""
    (event,) = cluster.server.all(EVENTS)
    assert (event["regarding"]["kind"], event["regarding"]["name"]) == ("VGPU", "red")
    assert words in event["note"]
    stored = cluster.server.stored(VGPUS, "red")
    assert stored is not None
    [condition] = stored["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "Shareable",
        "False",
        "NotShareable",
    )
    assert words in condition["message"]


def test_a_gpu_of_another_model_is_refused_so_that_another_one_is_sought(
    cluster: Cluster, kubelet: FakeKubelet, resolve: Resolve
) -> None:
    cluster.add_vgpu("red", uuid="")
    cluster.server.change(VGPUS, "red", "", lambda obj: obj["spec"].update(model="A100"))
    cluster.add_placeholder("red")
    kubelet.devices[POD] = {WHOLE: [A_GPU.uuid]}
    with pytest.raises(TerminalError, match="model V100, not A100"):
        resolve()
    stored = cluster.server.stored(VGPUS, "red")
    assert stored is not None
    [condition] = stored["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "OtherModel")


def test_a_gpu_with_too_little_memory_is_refused_so_that_another_one_is_sought(
    cluster: Cluster, kubelet: FakeKubelet, resolve: Resolve
) -> None:
    holder = cluster.holder("a") | {"memoryBytes": A_GPU.memory_bytes + 1}
    cluster.add_vgpu("red", holder, uuid="")
    larger = {"model": "", "memoryBytes": 2 * A_GPU.memory_bytes}
    cluster.server.change(VGPUS, "red", "", lambda obj: obj["spec"].update(larger))
    cluster.add_placeholder("red")
    kubelet.devices[POD] = {WHOLE: [A_GPU.uuid]}
    with pytest.raises(TerminalError, match="given a GPU of 16Gi, and its holders have"):
        resolve()
    stored = cluster.server.stored(VGPUS, "red")
    assert stored is not None
    [condition] = stored["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "OtherModel")


@pytest.mark.parametrize("given", [A_GPU.uuid, OTHER_GPU.uuid])
def test_the_placeholder_of_a_static_vgpu_is_recorded_if_it_has_its_gpu(
    cluster: Cluster, kubelet: FakeKubelet, resolve: Resolve, given: str
) -> None:
    cluster.add_vgpu("red")
    cluster.server.change(VGPUS, "red", "", lambda obj: obj["spec"].update(pool="static"))
    kubelet.devices[POD] = {WHOLE: [given]}
    if given == A_GPU.uuid:
        assert resolve() is None
        placeholder = cluster.server.stored(PODS, POD[1], NAMESPACE)
        assert placeholder is not None
        assert spec(cluster.server)["placeholderUid"] == placeholder["metadata"]["uid"]
    else:
        with pytest.raises(TerminalError, match="not its own"):
            resolve()
        assert not spec(cluster.server).get("placeholderUid")


def test_a_gpu_that_nvml_does_not_know_is_looked_for_again(
    cluster: Cluster, kubelet: FakeKubelet, resolve: Resolve, gpus: FixedGpus
) -> None:
    gpus.devices = ()
    cluster.add_vgpu("red", uuid="")
    cluster.add_placeholder("red")
    kubelet.devices[POD] = {WHOLE: [A_GPU.uuid]}
    assert isinstance(resolve(), RequeueAfter)


def _too_small(new: dict[str, Any], _old: object) -> str | None:
    return "the holders' memory would be more" if new["spec"]["uuid"] else None


def test_a_gpu_with_less_memory_than_was_promised_is_refused(
    cluster: Cluster, kubelet: FakeKubelet, resolve: Resolve
) -> None:
    cluster.add_vgpu("red", uuid="")
    cluster.add_placeholder("red")
    kubelet.devices[POD] = {WHOLE: [A_GPU.uuid]}
    cluster.server.add_rule(VGPUS, _too_small)
    with pytest.raises(TerminalError, match="the holders' memory would be more"):
        resolve()


def test_a_gpu_of_another_vgpu_is_not_written_twice(
    cluster: Cluster, kubelet: FakeKubelet, resolve: Resolve
) -> None:
    cluster.add_vgpu("red", uuid="")
    cluster.add_placeholder("red")
    cluster.add_vgpu("blue", uuid=A_GPU.uuid)
    kubelet.devices[POD] = {WHOLE: [A_GPU.uuid]}
    with pytest.raises(TerminalError, match=f"given GPU {A_GPU.uuid} of vGPU blue"):
        resolve()
    assert spec(cluster.server)["uuid"] == ""


def test_a_gpu_of_a_vgpu_that_is_being_deleted_is_asked_for_again_soon(
    cluster: Cluster, kubelet: FakeKubelet, resolve: Resolve
) -> None:
    cluster.add_vgpu("red", uuid="")
    cluster.add_placeholder("red")
    cluster.add_vgpu("blue", uuid=A_GPU.uuid)
    cluster.server.change(VGPUS, "blue", "", lambda vgpu: vgpu["status"].update(phase="Deleting"))
    kubelet.devices[POD] = {WHOLE: [A_GPU.uuid]}
    again = resolve()
    assert again is not None
    assert 0 < again.seconds <= 0.01
    assert spec(cluster.server)["uuid"] == ""
    cluster.server.remove(VGPUS, "blue")
    assert resolve() is None
    assert spec(cluster.server)["uuid"] == A_GPU.uuid


def test_a_gpu_of_another_model_than_was_chosen_is_refused(
    cluster: Cluster, kubelet: FakeKubelet, resolve: Resolve
) -> None:
    cluster.add_vgpu("red", uuid="")
    cluster.server.change(VGPUS, "red", "", lambda found: found["spec"].update(model="other"))
    cluster.add_placeholder("red")
    kubelet.devices[POD] = {WHOLE: [A_GPU.uuid]}
    with pytest.raises(TerminalError, match=f"of model {A_GPU.model}, not other"):
        resolve()


def test_a_vgpu_that_changed_meanwhile_is_not_written(
    cluster: Cluster, kubelet: FakeKubelet, agent: Running, paths: NodePaths
) -> None:
    cluster.add_vgpu("red", uuid="")
    cluster.add_placeholder("red")
    kubelet.devices[POD] = {WHOLE: [A_GPU.uuid]}

    async def main() -> None:
        socket = paths.pod_resources_socket
        async with kubelet.serve_pod_resources(socket), agent() as running:
            vgpu = running.view.vgpus.store.get("red")
            assert vgpu is not None
            cluster.add_vgpu("red", cluster.holder("a"), uuid="")
            with pytest.raises(ConflictError):
                await running.placeholders.resolve(vgpu)

    asyncio.run(main())
    assert spec(cluster.server)["uuid"] == ""


def test_a_kubelet_that_does_not_answer_is_an_error_that_names_its_socket(
    paths: NodePaths,
) -> None:
    ask: Coroutine[Any, Any, list[str]] = allocated_gpus(
        paths.pod_resources_socket, lambda _: "", "a", "b"
    )
    with pytest.raises(PodResourcesError, match=r"kubelet\.sock"):
        asyncio.run(ask)


def test_the_gpus_of_native_pods_are_in_use(kubelet: FakeKubelet, paths: NodePaths) -> None:
    socket = paths.pod_resources_socket
    kubelet.claimed[POD] = [("gpu.example", NODE, "gpu-0")]
    kubelet.claimed["default", "native"] = [("gpu.example", NODE, "gpu-1")]
    kubelet.devices["default", "other"] = {WHOLE: ["GPU-7"], "example.com/nic": ["GPU-8"]}
    kubelet.devices[NAMESPACE, "kubeshare-filler-x"] = {WHOLE: ["GPU-9"]}
    kubelet.devices["default", "slice"] = {WHOLE: ["GPU-5::0"], f"{WHOLE}.shared": ["GPU-6::1"]}
    names = {"gpu-0": "GPU-0", "gpu-1": "GPU-1"}

    async def ask() -> dict[str, str]:
        async with kubelet.serve_pod_resources(socket):
            return await gpus_in_use(socket, lambda device: names[device.name])

    others = dict.fromkeys(["GPU-1", "GPU-5", "GPU-6", "GPU-7"], "")
    assert asyncio.run(ask()) == others | {"GPU-9": "kubeshare-filler-x"}


def test_lists_of_the_units_of_memory_of_many_pods_are_read(
    kubelet: FakeKubelet, paths: NodePaths
) -> None:
    socket = paths.pod_resources_socket
    units = [f"{A_GPU.uuid}-_-{unit}" for unit in range(100_000)]
    kubelet.devices["default", "a"] = {"aliyun.com/gpu-mem": units}
    kubelet.devices["default", "native"] = {WHOLE: ["GPU-7"]}

    async def ask() -> dict[str, str]:
        async with kubelet.serve_pod_resources(socket):
            return await gpus_in_use(socket, lambda _: "")

    assert asyncio.run(ask()) == {"GPU-7": ""}


def test_one_whole_gpu_is_its_uuid() -> None:
    assert whole_gpu([A_GPU.uuid]) == A_GPU.uuid


def serve_by_claims(server: FakeApiServer, uuid: str = A_GPU.uuid) -> None:
    """A DRA driver lists the node's first GPU, as ``gpu-0``."""
    attributes = {"uuid": {"string": uuid}, "index": {"int": 0}}
    spec = {"driver": "gpu.example", "nodeName": NODE, "pool": {"name": NODE}}
    devices = [{"name": "gpu-0", "attributes": attributes}]
    server.seed(
        RESOURCE_SLICES, {"metadata": {"name": "gpus"}, "spec": spec | {"devices": devices}}
    )


def test_a_gpu_that_a_dra_driver_gave_is_known_by_its_resource_slice(
    cluster: Cluster, kubelet: FakeKubelet, resolve: Resolve
) -> None:
    cluster.add_vgpu("red", uuid="")
    cluster.add_placeholder("red")
    serve_by_claims(cluster.server)
    kubelet.claimed[POD] = [("gpu.example", NODE, "gpu-0")]
    resolve()
    assert spec(cluster.server)["uuid"] == A_GPU.uuid


def test_a_claimed_device_that_no_slice_explains_is_looked_for_again(
    cluster: Cluster, kubelet: FakeKubelet, resolve: Resolve
) -> None:
    cluster.add_vgpu("red", uuid="")
    cluster.add_placeholder("red")
    serve_by_claims(cluster.server)
    kubelet.claimed[POD] = [("gpu.example", NODE, "gpu-1")]
    assert isinstance(resolve(), RequeueAfter)


def test_a_mig_instance_that_a_dra_driver_gave_is_refused(
    cluster: Cluster, kubelet: FakeKubelet, resolve: Resolve
) -> None:
    cluster.add_vgpu("red", uuid="")
    cluster.add_placeholder("red")
    serve_by_claims(cluster.server, "MIG-00000000-0000-0000-0000-000000000000")
    kubelet.claimed[POD] = [("gpu.example", NODE, "gpu-0")]
    with pytest.raises(TerminalError, match="MIG instance"):
        resolve()


def test_the_gpunode_tells_how_many_gpus_a_dra_driver_serves(
    cluster: Cluster, agent: Running
) -> None:
    serve_by_claims(cluster.server)

    async def main() -> None:
        async with agent() as running:
            await running.inventory.refresh()

    asyncio.run(main())
    found = cluster.server.stored(GPUNODES, NODE)
    assert found is not None
    assert (found["spec"]["count"], found["spec"]["draCount"]) == (2, 1)
    drivers = [device["claimDriver"] for device in found["spec"]["devices"]]
    assert drivers == ["gpu.example", ""]

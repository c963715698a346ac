"""The stand-in for NVIDIA's device plugin, before a kubelet that is one in name only."""

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from deadlines import DEADLINE_S
from kubeshare.lab.node.device_plugin import preferred, serve
from kubeshare.node.proto import deviceplugin_pb2 as messages
from kubeshare.node.proto import deviceplugin_pb2_grpc as services

HEALTH = {"GPU-a": True, "GPU-b": True}


class Kubelet(services.RegistrationServicer):
    """Takes registrations, and calls back the one who registered."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.registered: queue.Queue[messages.RegisterRequest] = queue.Queue()
        self.cancels = 0  # how many of the next calls end as by a kubelet that goes away
        self.start()

    def start(self) -> None:
        (self.folder / "kubelet.sock").unlink(missing_ok=True)
        self.server = grpc.server(ThreadPoolExecutor(max_workers=2))
        services.add_RegistrationServicer_to_server(self, self.server)  # type: ignore[no-untyped-call]
        self.server.add_insecure_port(f"unix://{self.folder / 'kubelet.sock'}")
        self.server.start()

    def stop(self) -> None:
        self.server.stop(grace=None).wait()

    def Register(  # noqa: N802 - the interface's name
        self, request: messages.RegisterRequest, context: grpc.ServicerContext
    ) -> messages.Empty:
        if self.cancels:
            self.cancels -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "Cancelling all calls")
        self.registered.put(request)
        return messages.Empty()


@pytest.fixture
def health() -> dict[str, bool]:
    return dict(HEALTH)


@pytest.fixture
def kubelet(tmp_path: Path, health: dict[str, bool]) -> Iterator[Kubelet]:
    kubelet = Kubelet(tmp_path)
    ended = threading.Event()

    def run() -> None:
        while not ended.is_set():
            serve(tmp_path, lambda: health)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield kubelet
    ended.set()
    (tmp_path / "nvidia-gpu.sock").unlink(missing_ok=True)
    thread.join(DEADLINE_S)
    kubelet.stop()


@pytest.fixture
def plugin(kubelet: Kubelet, tmp_path: Path) -> Iterator[services.DevicePluginStub]:
    kubelet.registered.get(timeout=DEADLINE_S)
    with grpc.insecure_channel(f"unix://{tmp_path / 'nvidia-gpu.sock'}") as channel:
        yield services.DevicePluginStub(channel)  # type: ignore[no-untyped-call]


def test_it_registers_the_resource_that_nvidias_does(kubelet: Kubelet) -> None:
    request = kubelet.registered.get(timeout=DEADLINE_S)

    assert (request.version, request.resource_name) == ("v1beta1", "nvidia.com/gpu")
    assert request.options.get_preferred_allocation_available


def test_it_registers_again_when_the_kubelet_is_another_one(kubelet: Kubelet) -> None:
    kubelet.registered.get(timeout=DEADLINE_S)
    kubelet.stop()
    kubelet.start()

    assert kubelet.registered.get(timeout=DEADLINE_S).resource_name == "nvidia.com/gpu"


def test_it_registers_again_when_the_kubelet_went_away_meanwhile(
    kubelet: Kubelet, capfd: pytest.CaptureFixture[str]
) -> None:
    kubelet.registered.get(timeout=DEADLINE_S)
    kubelet.cancels = 1
    kubelet.stop()
    kubelet.start()

    assert kubelet.registered.get(timeout=DEADLINE_S).resource_name == "nvidia.com/gpu"
    assert "trying again" in capfd.readouterr().err


def test_it_lists_gpus_by_uuid_and_tells_of_changes(
    plugin: services.DevicePluginStub, health: dict[str, bool]
) -> None:
    stream = plugin.ListAndWatch(messages.Empty(), timeout=DEADLINE_S)
    first = {one.ID: one.health for one in next(stream).devices}
    health["GPU-b"] = False
    second = {one.ID: one.health for one in next(stream).devices}
    stream.cancel()

    assert first == {"GPU-a": "Healthy", "GPU-b": "Healthy"}
    assert second == {"GPU-a": "Healthy", "GPU-b": "Unhealthy"}


def test_an_allocation_is_the_cdi_device_of_that_uuid(plugin: services.DevicePluginStub) -> None:
    container = messages.ContainerAllocateRequest(devices_ids=["GPU-b"])
    answer = plugin.Allocate(
        messages.AllocateRequest(container_requests=[container]), timeout=DEADLINE_S
    )

    (allocated,) = answer.container_responses
    assert [one.name for one in allocated.cdi_devices] == ["nvidia.com/gpu=GPU-b"]


def test_a_gpu_that_is_not_there_is_refused(plugin: services.DevicePluginStub) -> None:
    container = messages.ContainerAllocateRequest(devices_ids=["GPU-z"])

    with pytest.raises(grpc.RpcError) as refused:
        plugin.Allocate(
            messages.AllocateRequest(container_requests=[container]), timeout=DEADLINE_S
        )

    assert refused.value.code() == grpc.StatusCode.NOT_FOUND


def test_what_must_be_taken_is_and_the_rest_is_taken_in_order() -> None:
    assert preferred(["a", "b", "c"], ["c"], 2) == ["c", "a"]

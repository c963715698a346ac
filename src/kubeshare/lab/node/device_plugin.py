"""A stand-in for NVIDIA's device plugin, for the nodes of a lab.

It offers ``nvidia.com/gpu`` as NVIDIA's does with CDI: ids are the GPUs' UUIDs and an allocation
is the CDI device ``nvidia.com/gpu=UUID``. KubeShare depends on neither of the two.

Run as ``python -m kubeshare.lab.node.device_plugin``, with NVML in the library path.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pynvml

from kubeshare.lab.node.gpus import DEVICE_PLUGIN, RESOURCE
from kubeshare.node.proto import deviceplugin_pb2 as messages
from kubeshare.node.proto import deviceplugin_pb2_grpc as services

KUBELET_FOLDER = Path("/var/lib/kubelet/device-plugins")

_SOCKET = "nvidia-gpu.sock"
_VERSION = "v1beta1"
_POLL_SECONDS = 0.5
_REGISTER_SECONDS = 10.0
# A Python client would send the socket's path as the authority, which gRPC for Go refuses.
_CHANNEL_OPTIONS = (("grpc.default_authority", "localhost"),)


def nvml_health() -> dict[str, bool]:
    """List the UUIDs of all GPUs of NVML, in its order, and whether each answers."""
    health: dict[str, bool] = {}
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        uuid = pynvml.nvmlDeviceGetUUID(handle)
        try:
            pynvml.nvmlDeviceGetMemoryInfo(handle)
            health[uuid] = True
        except pynvml.NVMLError:
            health[uuid] = False
    return health


def preferred(available: Sequence[str], required: Sequence[str], size: int) -> list[str]:
    """The ids to take: those required, then the first of those available."""
    rest = [one for one in available if one not in required]
    return [*required, *rest][:size]


class Plugin(services.DevicePluginServicer):
    """The service that the kubelet calls.

    Args:
        health: the ids of the devices and whether each is healthy, now.
    """

    def __init__(self, health: Mapping[str, bool]) -> None:
        self._health = dict(health)
        self._changed = threading.Condition()
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether the streams have ended, so that changes reach no kubelet."""
        return self._closed

    def update(self, health: Mapping[str, bool]) -> None:
        """Tell the kubelet when something has changed."""
        with self._changed:
            if self._health != health:
                self._health = dict(health)
                self._changed.notify_all()

    def close(self) -> None:
        """End the streams, so that the server can stop."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def GetDevicePluginOptions(  # noqa: N802 - the interface's name
        self, request: messages.Empty, context: grpc.ServicerContext
    ) -> messages.DevicePluginOptions:
        """Announce GetPreferredAllocation to the kubelet."""
        del request, context
        return messages.DevicePluginOptions(get_preferred_allocation_available=True)

    def ListAndWatch(  # noqa: N802 - the interface's name
        self, request: messages.Empty, context: grpc.ServicerContext
    ) -> Iterator[messages.ListAndWatchResponse]:
        """Send the whole list, now and after every change, for as long as the kubelet listens."""
        del request
        context.add_callback(self.close)
        sent: dict[str, bool] | None = None
        while True:
            with self._changed:
                while not self._closed and self._health == sent:
                    self._changed.wait()
                if self._closed:
                    return
                sent = dict(self._health)
            yield messages.ListAndWatchResponse(
                devices=[
                    messages.Device(ID=uuid, health="Healthy" if healthy else "Unhealthy")
                    for uuid, healthy in sent.items()
                ]
            )

    def GetPreferredAllocation(  # noqa: N802 - the interface's name
        self, request: messages.PreferredAllocationRequest, context: grpc.ServicerContext
    ) -> messages.PreferredAllocationResponse:
        """Prefer the GPUs in their order, so that tests are deterministic."""
        del context
        order = list(self._health)
        answers = [
            messages.ContainerPreferredAllocationResponse(
                deviceIDs=preferred(
                    sorted(one.available_deviceIDs, key=order.index),
                    one.must_include_deviceIDs,
                    one.allocation_size,
                )
            )
            for one in request.container_requests
        ]
        return messages.PreferredAllocationResponse(container_responses=answers)

    def Allocate(  # noqa: N802 - the interface's name
        self, request: messages.AllocateRequest, context: grpc.ServicerContext
    ) -> messages.AllocateResponse:
        """Name the CDI devices of the GPUs; refuse one that is not ours."""
        answers = []
        for one in request.container_requests:
            unknown = [uuid for uuid in one.devices_ids if uuid not in self._health]
            if unknown:
                context.abort(grpc.StatusCode.NOT_FOUND, f"no GPU {', '.join(unknown)} here")
            devices = [messages.CDIDevice(name=f"{RESOURCE}={uuid}") for uuid in one.devices_ids]
            answers.append(messages.ContainerAllocateResponse(cdi_devices=devices))
        return messages.AllocateResponse(container_responses=answers)


def _register(folder: Path) -> None:
    address = f"unix://{folder / 'kubelet.sock'}"
    with grpc.insecure_channel(address, options=_CHANNEL_OPTIONS) as channel:
        stub = services.RegistrationStub(channel)  # type: ignore[no-untyped-call]  # generated
        stub.Register(
            messages.RegisterRequest(
                version=_VERSION,
                endpoint=_SOCKET,
                resource_name=RESOURCE,
                options=messages.DevicePluginOptions(get_preferred_allocation_available=True),
            ),
            timeout=_REGISTER_SECONDS,
            wait_for_ready=True,
        )


def _identity(path: Path) -> tuple[int, int] | None:
    """Identify the socket at a path; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns


def serve(folder: Path, health: Callable[[], Mapping[str, bool]]) -> None:
    """Serve until the kubelet was restarted or stopped listening; the caller serves anew.

    A kubelet that goes away during registration is reported on stderr.

    Args:
        folder: of the kubelet's socket and of ours.
        health: asked twice a second.
    """
    kubelet, ours = folder / "kubelet.sock", folder / _SOCKET
    while (registered_with := _identity(kubelet)) is None:
        time.sleep(_POLL_SECONDS)
    ours.unlink(missing_ok=True)
    plugin = Plugin(health())
    server = grpc.server(ThreadPoolExecutor(max_workers=8))
    services.add_DevicePluginServicer_to_server(plugin, server)  # type: ignore[no-untyped-call]
    server.add_insecure_port(f"unix://{ours}")
    server.start()
    try:
        _register(folder)
        while _identity(kubelet) == registered_with and ours.exists() and not plugin.closed:
            plugin.update(health())
            time.sleep(_POLL_SECONDS)
    except grpc.RpcError as error:
        os.write(2, f"register {RESOURCE}: {error}; trying again\n".encode())
        time.sleep(_POLL_SECONDS)
    finally:
        plugin.close()
        server.stop(grace=1).wait()


def main() -> None:
    """Offer this node's GPUs for ever."""
    Path("/proc/self/comm").write_text(DEVICE_PLUGIN)
    pynvml.nvmlInit()
    while True:
        serve(KUBELET_FOLDER, nvml_health)


if __name__ == "__main__":
    main()

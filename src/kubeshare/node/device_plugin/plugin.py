"""Registers a counted resource with the kubelet, and lists its devices.

It is a device plugin that only counts: ``Allocate`` answers nothing that a container would get.
Which GPU a pod uses is decided by its holder, and attached by its claim
(:mod:`kubeshare.node.dra`).

The kubelet empties the folder of sockets when it starts. So the plugin serves and registers again
whenever the kubelet's socket is another one, its own socket is gone, or the kubelet has closed the
stream of the device list.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
import structlog

from kubeshare.node.device_plugin.units import GpuUnits, device_list
from kubeshare.node.proto import deviceplugin_pb2 as messages

log = structlog.get_logger(__name__)

SERVICE: Final = "v1beta1.DevicePlugin"
REGISTER: Final = "/v1beta1.Registration/Register"
VERSION: Final = "v1beta1"
KUBELET_SOCKET: Final = "kubelet.sock"

_POLL_SECONDS = 0.5
_RETRY_SECONDS = 1.0
_REGISTER_SECONDS = 10.0
_STOP_SECONDS = 1.0
# A Python client would send the socket's path as the authority, which gRPC for Go refuses.
_OPTIONS = (("grpc.default_authority", "localhost"),)


class DevicePlugin:
    """Offers one counted resource to the kubelet, as long as something is offered.

    Args:
        folder: of the kubelet's socket and of this plugin's.
        resource: the name of the resource, for example ``aliyun.com/gpu-mem``.
        endpoint: the name of this plugin's socket.

    Attributes:
        registrations: how often the kubelet has accepted the registration.
    """

    def __init__(self, folder: Path, resource: str, endpoint: str) -> None:
        self._folder = folder
        self._resource = resource
        self._endpoint = endpoint
        self._offered: tuple[GpuUnits, ...] | None = None
        self._changed = asyncio.Event()
        self._closed = False
        self.registrations = 0

    @property
    def offered(self) -> tuple[GpuUnits, ...] | None:
        """What is offered; None if nothing is."""
        return self._offered

    def offer(self, gpus: tuple[GpuUnits, ...] | None) -> None:
        """Offer the units of these GPUs from now on; None withdraws the resource."""
        if gpus != self._offered:
            self._offered = gpus
            self._notify()

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            changed = self._changed
            if self._offered is None:
                await changed.wait()
            elif _identity(self._folder / KUBELET_SOCKET) is None:
                await _wait(changed, _POLL_SECONDS)
            else:
                await self._serve()

    async def _serve(self) -> None:
        """Serve one kubelet until it is another one, or nothing is offered any more."""
        kubelet, ours = self._folder / KUBELET_SOCKET, self._folder / self._endpoint
        registered_with = _identity(kubelet)
        self._closed = False
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((self._handlers(),))
        try:
            ours.unlink(missing_ok=True)
            server.add_insecure_port(f"unix:{ours}")
        except (OSError, RuntimeError) as error:
            # Shares are attached without this plugin, so it does not end the program.
            log.warning("no socket", resource=self._resource, socket=str(ours), reason=str(error))
            await asyncio.sleep(_RETRY_SECONDS)
            return
        await server.start()
        try:
            await self._register(kubelet)
            while (
                self._offered is not None
                and not self._closed
                and _identity(kubelet) == registered_with
                and ours.exists()
            ):
                await _wait(self._changed, _POLL_SECONDS)
        except grpc.aio.AioRpcError as error:
            log.warning("not registered", resource=self._resource, reason=error.details())
            await asyncio.sleep(_RETRY_SECONDS)
        finally:
            self._closed = True
            self._notify()
            await server.stop(_STOP_SECONDS)
            ours.unlink(missing_ok=True)

    async def _register(self, kubelet: Path) -> None:
        request = messages.RegisterRequest(
            version=VERSION, endpoint=self._endpoint, resource_name=self._resource
        )
        async with grpc.aio.insecure_channel(f"unix:{kubelet}", options=_OPTIONS) as channel:
            register = channel.unary_unary(
                REGISTER,
                request_serializer=messages.RegisterRequest.SerializeToString,
                response_deserializer=messages.Empty.FromString,
            )
            await register(request, timeout=_REGISTER_SECONDS)
        self.registrations += 1
        log.info("registered with the kubelet", resource=self._resource)

    def _handlers(self) -> grpc.GenericRpcHandler:
        options: grpc.RpcMethodHandler[Any, Any] = grpc.unary_unary_rpc_method_handler(
            self._options,
            request_deserializer=messages.Empty.FromString,
            response_serializer=messages.DevicePluginOptions.SerializeToString,
        )
        listing: grpc.RpcMethodHandler[Any, Any] = grpc.unary_stream_rpc_method_handler(
            self._list_and_watch,
            request_deserializer=messages.Empty.FromString,
            response_serializer=bytes,
        )
        allocation: grpc.RpcMethodHandler[Any, Any] = grpc.unary_unary_rpc_method_handler(
            self._allocate,
            request_deserializer=messages.AllocateRequest.FromString,
            response_serializer=messages.AllocateResponse.SerializeToString,
        )
        methods = {
            "GetDevicePluginOptions": options,
            "ListAndWatch": listing,
            "Allocate": allocation,
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def _options(self, _request: object, _context: object) -> messages.DevicePluginOptions:
        return messages.DevicePluginOptions()

    async def _list_and_watch(self, _request: object, _context: object) -> AsyncIterator[bytes]:
        """The whole list, now and after every change, and an empty one at a withdrawal."""
        sent: tuple[GpuUnits, ...] | None = None
        try:
            while True:
                changed, offered = self._changed, self._offered
                if offered is None:
                    yield device_list(())
                    return
                if self._closed:
                    return
                if offered == sent:
                    await changed.wait()
                    continue
                yield await asyncio.to_thread(device_list, offered)
                sent = offered
        finally:
            self._closed = True
            self._notify()

    async def _allocate(
        self, request: messages.AllocateRequest, _context: object
    ) -> messages.AllocateResponse:
        answers = [messages.ContainerAllocateResponse() for _ in request.container_requests]
        return messages.AllocateResponse(container_responses=answers)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _identity(path: Path) -> tuple[int, int] | None:
    """Identifies the socket at a path; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns


async def _wait(changed: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await changed.wait()

"""A kubelet for device plugins, on real sockets."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from deadlines import DEADLINE_S
from fakes.node.node import NODE
from kubeshare.api.types.v1 import GPUNODES
from kubeshare.node.proto import deviceplugin_pb2 as messages
from kubeshare.simulator.control import FakeApiServer, until


class PluginKubelet:
    """The registration service of a kubelet, and its watch of the devices.

    Attributes:
        requests: the registrations.
        devices: the last list of each device and its health.
        lists: how many lists there were.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requests: list[messages.RegisterRequest] = []
        self.devices: dict[str, str] = {}
        self.lists = 0
        self.refuses = False
        self._watches: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Remove all sockets and serve, as a kubelet does that starts."""
        for socket in self.folder.glob("*.sock"):
            socket.unlink(missing_ok=True)  # the plugin may be removing its own
        method: Callable[..., Awaitable[Any]] = self._register
        handler: grpc.RpcMethodHandler[Any, Any] = grpc.unary_unary_rpc_method_handler(
            method,
            request_deserializer=messages.RegisterRequest.FromString,
            response_serializer=messages.Empty.SerializeToString,
        )
        service = grpc.method_handlers_generic_handler(
            "v1beta1.Registration", {"Register": handler}
        )
        self.server = grpc.aio.server()
        self.server.add_generic_rpc_handlers((service,))
        self.server.add_insecure_port(f"unix:{self.folder / 'kubelet.sock'}")
        await self.server.start()

    async def stop(self) -> None:
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)
        self._watches.clear()
        await self.server.stop(None)

    async def allocate(self, *ids: str) -> messages.AllocateResponse:
        request = messages.AllocateRequest(
            container_requests=[messages.ContainerAllocateRequest(devices_ids=ids)]
        )
        async with grpc.aio.insecure_channel(self._plugin) as channel:
            call = channel.unary_unary(
                "/v1beta1.DevicePlugin/Allocate",
                request_serializer=messages.AllocateRequest.SerializeToString,
                response_deserializer=messages.AllocateResponse.FromString,
            )
            answer: messages.AllocateResponse = await call(request, timeout=DEADLINE_S)
            return answer

    async def _register(self, request: messages.RegisterRequest, context: Any) -> messages.Empty:
        if self.refuses:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
        self.requests.append(request)
        self._plugin = f"unix:{self.folder / request.endpoint}"
        self._watches.append(asyncio.create_task(self._watch()))
        return messages.Empty()

    async def _watch(self) -> None:
        async with grpc.aio.insecure_channel(self._plugin) as channel:
            call = channel.unary_stream(
                "/v1beta1.DevicePlugin/ListAndWatch",
                request_serializer=messages.Empty.SerializeToString,
                response_deserializer=messages.ListAndWatchResponse.FromString,
            )
            with suppress(grpc.aio.AioRpcError):
                async for answer in call(messages.Empty()):
                    self.devices = {device.ID: device.health for device in answer.devices}
                    self.lists += 1

    async def expect_devices(self, count: int) -> None:
        """Wait until so many devices are listed."""
        await until(lambda: len(self.devices) == count)


async def expect_a_gpunode(server: FakeApiServer) -> None:
    """Wait until the inventory has created the GPUNode."""
    await until(lambda: server.stored(GPUNODES, NODE))

"""A fake kubelet: the other side of its sockets."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from deadlines import DEADLINE_S
from kubeshare.node.proto import dra_pb2, pluginregistration_pb2, podresources_pb2

_OPTIONS = (("grpc.default_authority", "localhost"),)
_DRA = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
_REGISTRATION = "/pluginregistration.Registration"


class FakeKubelet:
    """Calls a driver as the kubelet does, and serves PodResources.

    Attributes:
        devices: (namespace, pod) -> resource name -> device ids.
        claimed: (namespace, pod) -> driver, pool and name of each device of its claims.
        offered: resource name -> ids of the devices that plugins offer.
        exclusive_cpus: the CPUs that its CPU manager assigns.
        cdi_devices: (namespace, pod) -> full names of the CDI devices of these.
        lists: how often PodResources was asked.
        answers: whether PodResources answers.
    """

    def __init__(self) -> None:
        self.devices: dict[tuple[str, str], dict[str, list[str]]] = {}
        self.claimed: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
        self.offered: dict[str, list[str]] = {}
        self.exclusive_cpus: list[int] = []
        self.cdi_devices: dict[tuple[str, str], list[str]] = {}
        self.lists = 0
        self.answers = True
        self.info: pluginregistration_pb2.PluginInfo | None = None

    async def register(self, registration: Path) -> pluginregistration_pb2.PluginInfo:
        """Get a plugin's info, and notify it that it is registered."""
        async with grpc.aio.insecure_channel(f"unix:{registration}", options=_OPTIONS) as channel:
            self.info = await _call(
                channel,
                f"{_REGISTRATION}/GetInfo",
                pluginregistration_pb2.InfoRequest(),
                pluginregistration_pb2.PluginInfo,
            )
            await _call(
                channel,
                f"{_REGISTRATION}/NotifyRegistrationStatus",
                pluginregistration_pb2.RegistrationStatus(plugin_registered=True),
                pluginregistration_pb2.RegistrationStatusResponse,
            )
        assert self.info is not None
        return self.info

    async def prepare(self, *claims: dra_pb2.Claim) -> dict[str, Any]:
        """Ask for claims to be prepared; answers by claim uid."""
        answer = await self._ask(
            "NodePrepareResources",
            dra_pb2.NodePrepareResourcesRequest(claims=claims),
            dra_pb2.NodePrepareResourcesResponse,
        )
        return dict(answer.claims)

    async def unprepare(self, *claims: dra_pb2.Claim) -> dict[str, Any]:
        """Ask for preparations to be undone; answers by claim uid."""
        answer = await self._ask(
            "NodeUnprepareResources",
            dra_pb2.NodeUnprepareResourcesRequest(claims=claims),
            dra_pb2.NodeUnprepareResourcesResponse,
        )
        return dict(answer.claims)

    async def _ask(self, method: str, request: Any, response: Any) -> Any:
        assert self.info is not None, "a kubelet calls only plugins that it has registered"
        async with grpc.aio.insecure_channel(
            f"unix:{self.info.endpoint}", options=_OPTIONS
        ) as channel:
            return await _call(channel, f"{_DRA}/{method}", request, response)

    @asynccontextmanager
    async def serve_pod_resources(self, socket: Path) -> AsyncIterator[None]:
        """Serve the PodResources API during the block."""
        socket.parent.mkdir(parents=True, exist_ok=True)
        server = grpc.aio.server()
        handlers = {
            "List": _handler(self._list, podresources_pb2.ListPodResourcesRequest),
            "GetAllocatableResources": _handler(
                self._allocatable, podresources_pb2.AllocatableResourcesRequest
            ),
        }
        service = grpc.method_handlers_generic_handler("v1.PodResourcesLister", handlers)
        server.add_generic_rpc_handlers((service,))
        server.add_insecure_port(f"unix:{socket}")
        await server.start()
        try:
            yield
        finally:
            await server.stop(None)

    async def _list(self, _request: Any, context: Any) -> podresources_pb2.ListPodResourcesResponse:
        self.lists += 1
        await self._check_answers(context)
        pods = sorted({*self.devices, *self.claimed})
        return podresources_pb2.ListPodResourcesResponse(
            pod_resources=[
                podresources_pb2.PodResources(
                    namespace=namespace,
                    name=name,
                    containers=[self._container(namespace, name)],
                )
                for namespace, name in pods
            ]
        )

    async def _allocatable(
        self, _request: Any, context: Any
    ) -> podresources_pb2.AllocatableResourcesResponse:
        await self._check_answers(context)
        return podresources_pb2.AllocatableResourcesResponse(
            devices=_devices(self.offered), cpu_ids=self.exclusive_cpus
        )

    async def _check_answers(self, context: Any) -> None:
        if not self.answers:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "it is stopping")

    def _container(self, namespace: str, name: str) -> podresources_pb2.ContainerResources:
        cdi_devices = [
            podresources_pb2.CDIDevice(name=device)
            for device in self.cdi_devices.get((namespace, name), ())
        ]
        claimed = [
            podresources_pb2.ClaimResource(
                cdi_devices=cdi_devices, driver_name=driver, pool_name=pool, device_name=device
            )
            for driver, pool, device in self.claimed.get((namespace, name), ())
        ]
        return podresources_pb2.ContainerResources(
            name="main",
            devices=_devices(self.devices.get((namespace, name), {})),
            dynamic_resources=[
                podresources_pb2.DynamicResource(
                    claim_name=f"{name}-claim", claim_namespace=namespace, claim_resources=claimed
                )
            ]
            if claimed
            else [],
        )


def _devices(ids: Mapping[str, Sequence[str]]) -> list[podresources_pb2.ContainerDevices]:
    """The devices of plugins, by resource name."""
    return [
        podresources_pb2.ContainerDevices(resource_name=resource, device_ids=found)
        for resource, found in ids.items()
    ]


def _handler(method: Callable[..., Awaitable[Any]], request: Any) -> Any:
    return grpc.unary_unary_rpc_method_handler(
        method,
        request_deserializer=request.FromString,
        response_serializer=lambda answer: bytes(answer.SerializeToString()),
    )


async def _call(channel: grpc.aio.Channel, method: str, request: Any, response: Any) -> Any:
    ask = channel.unary_unary(
        method,
        request_serializer=type(request).SerializeToString,
        response_deserializer=response.FromString,
    )
    return await ask(request, timeout=DEADLINE_S)

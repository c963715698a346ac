"""A DRA driver: registers with the kubelet and serves prepare and unprepare.

It serves two sockets. The kubelet finds the first one in its folder of registrations and
reads the driver's name and the second socket from it. On the second it calls
``NodePrepareResources`` before the first container of a pod starts and
``NodeUnprepareResources`` after the last one has ended. It may repeat both calls for any
claim at any time. Errors are per claim: the text becomes the pod's event
``FailedPrepareDynamicResources``.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import grpc
import grpc.aio
import structlog

from kubeshare.api.types.constants import DRA_DRIVER
from kubeshare.node.proto import dra_pb2, pluginregistration_pb2

Response = TypeVar("Response")

log = structlog.get_logger(__name__)

DRA_SERVICE = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
REGISTRATION_SERVICE = "pluginregistration.Registration"

# The kubelet gives a call 45 seconds; it repeats a call that takes longer than this at a
# shutdown.
_STOP_SECONDS = 2.0


@dataclass(frozen=True)
class ClaimReference:
    """The namespace, name and uid of a ResourceClaim."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True)
class PreparedDevice:
    """One request of a claim, and the CDI devices of the containers that made it."""

    request: str
    pool: str
    device: str
    cdi_devices: tuple[str, ...]
    share_id: str | None = None


class ClaimRefusedError(Exception):
    """A claim cannot be prepared or unprepared now; the message is for the pod's owner."""


class ClaimHandler(Protocol):
    """Prepares and unprepares claims; both must be idempotent."""

    async def prepare(self, claim: ClaimReference) -> list[PreparedDevice]:
        """Prepare a claim's devices.

        Raises:
            ClaimRefusedError: no container of the pod may start.
        """
        ...

    async def unprepare(self, claim: ClaimReference) -> None:
        """Release a claim's devices: no container of the pod runs any more.

        Raises:
            ClaimRefusedError: the kubelet has to call again.
        """
        ...


class Driver:
    """Serves both sockets as an async context manager.

    Args:
        handler: prepares and unprepares claims.
        plugin_socket: serves prepare and unprepare.
        registration_socket: in the folder that the kubelet watches.
        name: the name of the driver.

    Attributes:
        registered: set once the kubelet has registered the driver.
    """

    def __init__(
        self,
        handler: ClaimHandler,
        plugin_socket: Path,
        registration_socket: Path,
        name: str = DRA_DRIVER,
    ) -> None:
        self._handler = handler
        self._name = name
        self._plugin_socket = plugin_socket
        self._registration_socket = registration_socket
        self._servers: list[grpc.aio.Server] = []
        self.registered = asyncio.Event()

    async def __aenter__(self) -> Self:
        # The service first: the kubelet calls it as soon as it sees the registration.
        await self._serve(
            self._plugin_socket,
            DRA_SERVICE,
            {
                "NodePrepareResources": (self._prepare, dra_pb2.NodePrepareResourcesRequest),
                "NodeUnprepareResources": (self._unprepare, dra_pb2.NodeUnprepareResourcesRequest),
            },
        )
        await self._serve(
            self._registration_socket,
            REGISTRATION_SERVICE,
            {
                "GetInfo": (self._info, pluginregistration_pb2.InfoRequest),
                "NotifyRegistrationStatus": (
                    self._registration_status,
                    pluginregistration_pb2.RegistrationStatus,
                ),
            },
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        # The registration first, so that the kubelet sends nothing more.
        self._registration_socket.unlink(missing_ok=True)
        for server in reversed(self._servers):
            await server.stop(_STOP_SECONDS)
        self._plugin_socket.unlink(missing_ok=True)
        self._servers.clear()

    async def _serve(
        self,
        socket: Path,
        service: str,
        methods: dict[str, tuple[Callable[..., Awaitable[Any]], Any]],
    ) -> None:
        _clear(socket)
        server = grpc.aio.server()
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            name: grpc.unary_unary_rpc_method_handler(
                method,
                request_deserializer=request.FromString,
                response_serializer=lambda response: bytes(response.SerializeToString()),
            )
            for name, (method, request) in methods.items()
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        server.add_insecure_port(f"unix:{socket}")
        await server.start()
        self._servers.append(server)

    async def _info(self, _request: object, _context: object) -> pluginregistration_pb2.PluginInfo:
        return pluginregistration_pb2.PluginInfo(
            type="DRAPlugin",
            name=self._name,
            endpoint=str(self._plugin_socket),
            supported_versions=["v1.DRAPlugin"],
        )

    async def _registration_status(
        self, status: pluginregistration_pb2.RegistrationStatus, _context: object
    ) -> pluginregistration_pb2.RegistrationStatusResponse:
        if status.plugin_registered:
            log.info("registered with the kubelet", driver=self._name)
            self.registered.set()
        else:
            log.error("the kubelet refuses the driver", driver=self._name, error=status.error)
        return pluginregistration_pb2.RegistrationStatusResponse()

    async def _prepare(
        self, request: dra_pb2.NodePrepareResourcesRequest, _context: object
    ) -> dra_pb2.NodePrepareResourcesResponse:
        responses = await _each(request.claims, self._prepare_one)
        return dra_pb2.NodePrepareResourcesResponse(claims=responses)

    async def _prepare_one(self, claim: ClaimReference) -> dra_pb2.NodePrepareResourceResponse:
        try:
            devices = await self._handler.prepare(claim)
        except ClaimRefusedError as error:
            log.warning("claim not prepared", **_keys(claim), reason=str(error))
            return dra_pb2.NodePrepareResourceResponse(error=str(error))
        log.info("claim prepared", **_keys(claim))
        return dra_pb2.NodePrepareResourceResponse(
            devices=[
                dra_pb2.Device(
                    request_names=[device.request],
                    pool_name=device.pool,
                    device_name=device.device,
                    cdi_device_ids=device.cdi_devices,
                    share_id=device.share_id,
                )
                for device in devices
            ]
        )

    async def _unprepare(
        self, request: dra_pb2.NodeUnprepareResourcesRequest, _context: object
    ) -> dra_pb2.NodeUnprepareResourcesResponse:
        responses = await _each(request.claims, self._unprepare_one)
        return dra_pb2.NodeUnprepareResourcesResponse(claims=responses)

    async def _unprepare_one(self, claim: ClaimReference) -> dra_pb2.NodeUnprepareResourceResponse:
        try:
            await self._handler.unprepare(claim)
        except ClaimRefusedError as error:
            log.warning("claim not released", **_keys(claim), reason=str(error))
            return dra_pb2.NodeUnprepareResourceResponse(error=str(error))
        log.info("claim released", **_keys(claim))
        return dra_pb2.NodeUnprepareResourceResponse()


def _clear(socket: Path) -> None:
    """Create a socket's folder, and remove a socket that a crash left there."""
    socket.parent.mkdir(parents=True, exist_ok=True)
    socket.unlink(missing_ok=True)


async def _each(
    claims: Iterable[dra_pb2.Claim], work: Callable[[ClaimReference], Awaitable[Response]]
) -> dict[str, Response]:
    references = [ClaimReference(claim.namespace, claim.name, claim.uid) for claim in claims]
    responses = await asyncio.gather(*(work(reference) for reference in references))
    return dict(zip((reference.uid for reference in references), responses, strict=True))


def _keys(claim: ClaimReference) -> dict[str, str]:
    return {"claim": f"{claim.namespace}/{claim.name}", "claim_uid": claim.uid}

"""Runs the page in the cluster until it is told to end."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Final

from msgspec import Struct
from prometheus_client import CollectorRegistry, generate_latest

from kubeshare.build_info import BuildInfo
from kubeshare.core.policies import Policy
from kubeshare.kube.certificates import Certificates
from kubeshare.kube.client.client import Client
from kubeshare.kube.controller.health import HealthServer
from kubeshare.web.in_cluster.door import Door
from kubeshare.web.in_cluster.session import MOST_STREAMS
from kubeshare.web.in_cluster.sessions import Sessions
from kubeshare.web.server import Server, bound

MOST_VIEWERS: Final = 1000
"""The most sessions that can be configured."""


class Settings(Struct, frozen=True, kw_only=True):
    """How the page is served.

    Attributes:
        hosts: the names by which browsers reach it.
        port: of the page.
        health_port: of probes and metrics; None for none.
        viewers: sessions at once.
        certificates: for TLS; None for plain HTTP.
    """

    hosts: tuple[str, ...]
    port: int = 8443
    health_port: int | None = 8080
    viewers: int = 16
    certificates: Certificates | None = None


async def serve(
    connect: Callable[[str], Client],
    policy: Policy | None,
    settings: Settings,
    ready: Callable[[int, Server], None] = lambda *_: None,
    address: str = "",
) -> None:
    """Serve the page until SIGTERM.

    Args:
        connect: a client that sends a token, and has no rights but those.
        policy: decides what is explained; None for the scheduler's.
        settings: of the server.
        ready: called with the port, and what stops it.
        address: to listen on; all by default.

    Raises:
        PortTakenError: a port is in use.
    """
    sessions = Sessions(connect, policy, settings.viewers)
    door = Door(sessions, settings.hosts)
    certificates = settings.certificates
    with bound(address, settings.port) as listener:
        server = Server(
            door,
            sessions.close,
            connections=4 * MOST_STREAMS * settings.viewers,
            tls=certificates.context if certificates else None,
        )
        async with asyncio.TaskGroup() as tasks:
            background = []
            if certificates is not None:
                background.append(tasks.create_task(certificates.run()))
            if settings.health_port is not None:
                health = _health(settings.health_port, server)
                background.append(tasks.create_task(health.run()))
            ready(listener.getsockname()[1], server)
            await server.serve([listener])
            await sessions.wait()
            for task in background:
                task.cancel()


def token_client(server: str, context: ssl.SSLContext) -> Callable[[str], Client]:
    """Makes clients of an API server that send a token, and have no credentials of their own."""
    return lambda token: Client.with_token(server, context, token)


def _health(port: int, server: Server) -> HealthServer:
    registry = CollectorRegistry()
    registry.register(BuildInfo())

    def not_ready() -> tuple[str, ...]:
        return () if server.started else ("the page is not served yet",)

    return HealthServer(port, ready=not_ready, metrics=lambda: generate_latest(registry))

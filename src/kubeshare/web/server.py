"""Runs the page for one user, on this machine alone."""

import asyncio
import secrets
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from kubeshare.core.policies import Policy
from kubeshare.kube.client.client import Client
from kubeshare.web.application import Pages, application
from kubeshare.web.feed import MAX_CLIENTS, Feed
from kubeshare.web.protocol import BoundedProtocol
from kubeshare.web.sources import find_sources
from kubeshare.web.tables import Tables

ADDRESS: Final = "127.0.0.1"
_CONNECTIONS: Final = 4 * MAX_CLIENTS
_SILENT_MILLISECONDS: Final = 60_000
"""After so long without an acknowledgement, the kernel drops a connection."""


class PortTakenError(Exception):
    """The port is in use."""

    exit_code = 3


async def serve(  # noqa: PLR0913 - the options of the command
    client: Client,
    policy: Policy | None,
    namespaces: Sequence[str],
    port: int,
    *,
    cluster: str,
    ready: Callable[[str, "Server"], None],
) -> None:
    """Serve the page until interrupted.

    Args:
        client: has the rights of who looks.
        policy: decides what is explained; None for the scheduler's.
        namespaces: to be shown alone; empty for all that the user may see.
        port: to listen on; 0 for a free one.
        cluster: the name of the cluster, for people.
        ready: called with the URL, which contains a secret, once it can be opened; and with
            what stops it.

    Raises:
        PortTakenError: the port is in use.
        NotInstalledError: the cluster has no KubeShare.
        ApiError: it cannot be read.
    """
    with listen(port) as listener:
        sources = await find_sources(client, namespaces)
        feed = Feed()
        tables = Tables(sources, feed)
        token = secrets.token_urlsafe(32)
        pages = Pages(client, sources, policy, tables=tables, feed=feed, cluster=cluster)
        server = Server(application(pages, token), feed.close)
        async with asyncio.TaskGroup() as tasks:
            background = [tasks.create_task(sources.run())]
            await sources.wait_for_sync()
            await tables.flush()
            background.append(tasks.create_task(tables.run()))
            ready(f"http://{ADDRESS}:{listener.getsockname()[1]}/#token={token}", server)
            await server.serve([listener])
            for task in background:
                task.cancel()


@contextmanager
def listen(port: int) -> Iterator[socket.socket]:
    """A socket that listens on this machine alone.

    Raises:
        PortTakenError: the port is in use.
    """
    with bound(ADDRESS, port) as listener:
        yield listener


@contextmanager
def bound(address: str, port: int) -> Iterator[socket.socket]:
    """A socket that listens on an address; "" for all, of IPv4 and IPv6.

    Raises:
        PortTakenError: the port is in use.
    """
    both = not address and socket.has_dualstack_ipv6()
    with socket.socket(socket.AF_INET6 if both else socket.AF_INET) as listener:
        if both:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit it: one whose other end reads nothing is closed.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENT_MILLISECONDS)
        try:
            listener.bind((address, port))
            listener.listen()  # a browser that comes before the application waits for it
        except OSError as error:
            raise PortTakenError(
                f"port {port} of {address or 'this pod'} cannot be used ({error.strerror}): "
                "give another one with --port, or leave the choice to --port 0"
            ) from error
        yield listener


class Server(uvicorn.Server):
    """Serves an application, and ends its streams when interrupted.

    Args:
        app: the application.
        end: ends its streams.
        connections: at once.
        tls: for new connections; None for plain HTTP.
    """

    def __init__(
        self,
        app: ASGIApp,
        end: Callable[[], None],
        *,
        connections: int = _CONNECTIONS,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="critical",  # the application says in one line what failed
            access_log=False,
            lifespan="off",
            ws="none",
            http=BoundedProtocol,
            server_header=False,
            limit_concurrency=connections,
            timeout_graceful_shutdown=2,
            ssl_context_factory=(lambda *_: tls) if tls else None,
        )
        super().__init__(config)
        self._end = end

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at an interrupt or SIGTERM; uvicorn would raise them once more."""
        loop = asyncio.get_running_loop()
        in_main = threading.current_thread() is threading.main_thread()
        signals = (signal.SIGINT, signal.SIGTERM) if in_main else ()
        for number in signals:
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)

    def stop(self) -> None:
        """Stop serving."""
        self._end()
        self.should_exit = True

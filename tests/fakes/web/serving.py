"""Runs the server of `kubeshare web` in a thread, on a fake API server in real time."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from deadlines import DEADLINE_S
from kubeshare.core.policies import policy
from kubeshare.simulator.control import Authorizer, FakeApiServer
from kubeshare.web.server import Server, serve

T = TypeVar("T")


class Served:
    """A page that is served.

    Attributes:
        url: with the token.
        api: the API server behind it.
    """

    def __init__(self, api: FakeApiServer, loop: asyncio.AbstractEventLoop, url: str) -> None:
        self.api = api
        self.url = url
        self._loop = loop

    @property
    def origin(self) -> str:
        """The URL without path and token."""
        return self.url.partition("/#")[0]

    @property
    def headers(self) -> dict[str, str]:
        """Those of who knows the token."""
        return {"authorization": f"Bearer {self.url.partition('=')[2]}"}

    def do(self, change: Callable[..., T], *arguments: Any, **more: Any) -> T:
        """Call a function in the thread of the API server, as another actor would."""

        async def call() -> T:
            return change(*arguments, **more)

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(DEADLINE_S)


@contextmanager
def served(
    api: FakeApiServer,
    *namespaces: str,
    rights: Authorizer | None = None,
    home: str = "default",
) -> Iterator[Served]:
    """Serve the page of a user with these rights, whose kubeconfig has a namespace ``home``."""
    started: Future[tuple[str, Server, asyncio.AbstractEventLoop]] = Future()
    thread = threading.Thread(target=_run, args=(api, namespaces, rights, home, started))
    thread.start()
    try:
        url, server, loop = started.result(DEADLINE_S)
        try:
            yield Served(api, loop, url)
        finally:
            loop.call_soon_threadsafe(server.stop)
    finally:
        thread.join(DEADLINE_S)


def _run(
    api: FakeApiServer,
    namespaces: Sequence[str],
    rights: Authorizer | None,
    home: str,
    started: "Future[tuple[str, Server, asyncio.AbstractEventLoop]]",
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        if rights is not None:
            api.authorizers["web"] = rights

        def ready(url: str, server: Server) -> None:
            started.set_result((url, server, loop))

        async with api.client("web") as client:
            client.namespace = home
            await serve(client, policy("locality"), namespaces, 0, cluster="demo", ready=ready)

    try:
        asyncio.run(main())
    except BaseException as error:
        if started.done():
            raise
        started.set_exception(error)

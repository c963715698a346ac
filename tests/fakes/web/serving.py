"""Runs the server of `kubeshare web` in a thread, on a fake API server in real time."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

import httpx2

from deadlines import DEADLINE_S
from kubeshare.core.policies import policy
from kubeshare.simulator.control import Authorizer, FakeApiServer
from kubeshare.web.server import Server, serve

T = TypeVar("T")
Ready = Callable[[str, Server], None]


class Served:
    """A page that is served.

    Attributes:
        url: with the token.
        api: the API server behind it.
        http: asks as anybody on this machine.
    """

    def __init__(
        self, api: FakeApiServer, loop: asyncio.AbstractEventLoop, url: str, http: httpx2.Client
    ) -> None:
        self.api = api
        self.url = url
        self.http = http
        self._loop = loop

    @property
    def headers(self) -> dict[str, str]:
        """Those of who knows the token."""
        return {"authorization": f"Bearer {self.url.partition('=')[2]}"}

    def get(self, path: str, **query: str) -> httpx2.Response:
        """The response to who knows the token."""
        return self.http.get(path, headers=self.headers, params=query or None)

    def read(self, path: str, **query: str) -> Any:
        """What the JSON of that response says; it is no refusal."""
        response = self.get(path, **query)
        assert response.status_code == 200, response.text
        return response.json()

    def rows(self, table: str) -> dict[str, Any]:
        """The rows of a table by their ids."""
        return {row["id"]: row for row in self.read("/api/tables")["tables"][table]}

    def stream(self) -> Any:
        """Opens the stream of changes."""
        return self.http.stream("GET", "/api/stream", headers=self.headers)

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
    decides: str | None = "locality",
) -> Iterator[Served]:
    """Serve the page of a user with these rights, whose kubeconfig has a namespace ``home``.

    ``decides`` is the policy; None for the scheduler's.
    """
    given = policy(decides) if decides else None

    async def main(ready: Ready) -> None:
        if rights is not None:
            api.authorizers["web"] = rights
        async with api.client("web") as client:
            client.namespace = home
            await serve(client, given, namespaces, 0, cluster="demo", ready=ready)

    with in_thread(main) as (url, loop), browsing(url.partition("/#")[0]) as http:
        yield Served(api, loop, url, http)


@contextmanager
def browsing(origin: str) -> Iterator[httpx2.Client]:
    """Asks a server as anybody on this machine."""
    # A connection that is used again may be one that the server is just closing.
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
    with httpx2.Client(
        base_url=origin, verify=False, trust_env=False, limits=limits, timeout=DEADLINE_S
    ) as http:
        yield http


@contextmanager
def in_thread(
    main: Callable[[Ready], Coroutine[Any, Any, None]],
) -> Iterator[tuple[str, asyncio.AbstractEventLoop]]:
    """Runs a server in a thread, and stops it; yields its URL, and its loop."""
    started: Future[tuple[str, Server, asyncio.AbstractEventLoop]] = Future()
    thread = threading.Thread(target=_run, args=(main, started))
    thread.start()
    try:
        url, server, loop = started.result(DEADLINE_S)
        try:
            yield url, loop
        finally:
            loop.call_soon_threadsafe(server.stop)
    finally:
        thread.join(DEADLINE_S)


def _run(
    main: Callable[[Ready], Coroutine[Any, Any, None]],
    started: "Future[tuple[str, Server, asyncio.AbstractEventLoop]]",
) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        await main(lambda url, server: started.set_result((url, server, loop)))

    try:
        asyncio.run(run())
    except BaseException as error:
        if started.done():
            raise
        started.set_exception(error)

"""An API server that knows users by their tokens, and the page in the cluster before it."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from deadlines import DEADLINE_S
from fakes.web.serving import Ready, browsing, in_thread
from kubeshare.core.policies import policy
from kubeshare.simulator.control import Authorizer, FakeApiServer
from kubeshare.simulator.control.requests import Answer, RefusalError
from kubeshare.web.in_cluster.program import Settings, serve

REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
HOST = "gpus.example"


class TokenApiServer(FakeApiServer):
    """Lets those requests pass whose client, a token, is one of a user.

    Args:
        behind: has the objects.
        users: token → name of the user; a token that is taken out has expired.

    Attributes:
        asked: number of requests by token.
    """

    def __init__(self, behind: FakeApiServer, users: dict[str, str]) -> None:
        super().__init__()
        self.behind = behind
        self.users = users
        self.asked: Counter[str] = Counter()

    def allow(self, token: str, rights: Authorizer) -> None:
        """Give a token these rights; without any, it has all."""
        self.behind.authorizers[token] = rights

    async def receive(self, method: str, target: str, **request: Any) -> Answer:
        """Answer one request."""
        token = request["client"]
        self.asked[token] += 1
        await asyncio.sleep(0)
        if self.down:
            raise httpx2.ConnectError("connection refused")
        if token not in self.users:
            refusal = RefusalError(401, "Unauthorized", "Unauthorized")
            return Answer.of(refusal.code, refusal.status)
        if target.partition("?")[0] == REVIEWS:
            user = {"username": self.users[token]}
            return Answer.of(201, {"metadata": {}, "status": {"userInfo": user}})
        return await self.behind.receive(method, target, **request)


class InCluster:
    """The page in the cluster.

    Attributes:
        api: the API server behind it.
        http: asks as anybody who reaches it.
    """

    def __init__(
        self, api: TokenApiServer, loop: asyncio.AbstractEventLoop, http: httpx2.Client
    ) -> None:
        self.api = api
        self.http = http
        self._loop = loop

    @staticmethod
    def headers(token: str, *namespaces: str) -> dict[str, str]:
        """Those of who has a token."""
        found = {"authorization": f"Bearer {token}", "host": HOST}
        return found | ({"kubeshare-namespaces": ",".join(namespaces)} if namespaces else {})

    def get(self, token: str, path: str, *namespaces: str, **more: str) -> httpx2.Response:
        """The response to who has a token; ``more`` are headers."""
        return self.http.get(path, headers=self.headers(token, *namespaces) | more)

    def do(self, change: Callable[..., Any], *arguments: Any) -> None:
        """Call a function in the thread of the API server."""
        done = threading.Event()

        def call() -> None:
            change(*arguments)
            done.set()

        self._loop.call_soon_threadsafe(call)
        assert done.wait(DEADLINE_S)


@contextmanager
def served_in_cluster(api: TokenApiServer, **settings: Any) -> Iterator[InCluster]:
    """Serve the page as in a cluster, by the name :data:`HOST`."""
    given: dict[str, Any] = {"hosts": (HOST,), "port": 0, "health_port": None}
    chosen = Settings(**given | settings)
    scheme = "https" if chosen.certificates else "http"

    async def main(ready: Ready) -> None:
        await serve(
            api.client,
            policy("locality"),
            chosen,
            lambda port, server: ready(f"{scheme}://127.0.0.1:{port}", server),
            "127.0.0.1",
        )

    with in_thread(main) as (url, loop), browsing(url) as http:
        yield InCluster(api, loop, http)

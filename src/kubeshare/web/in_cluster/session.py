"""Watches what one viewer may see, until their token expires."""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog
from starlette.types import ASGIApp

from kubeshare.core.policies import Policy
from kubeshare.explain.errors import NotInstalledError
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import ApiError, ForbiddenError, UnauthorizedError
from kubeshare.web.application import Pages, api_routes, routed
from kubeshare.web.feed import Feed
from kubeshare.web.in_cluster.viewer import Viewer, user_of
from kubeshare.web.sources import Access, find_access, sources_of
from kubeshare.web.tables import Tables

CHECK_SECONDS: Final = 30.0
"""Seconds after which the token and the rights are checked again."""
IDLE_SECONDS: Final = 120.0
"""Seconds without a request or an open page after which a session ends."""
UNCHECKED_SECONDS: Final = 300.0
"""Seconds without an answer of the API server after which a session ends."""
MOST_STREAMS: Final = 8
"""Pages that one session may have open."""
_PATIENCE_SECONDS: Final = 30.0

log = structlog.get_logger(__name__)


class SessionEndedError(Exception):
    """A session ends before it could answer."""


class Session:
    """What is shown to one viewer: nothing of it is shared with another one.

    Args:
        viewer: whose token the client has.
        user: their name.
        client: has their token; closed at the end.
        policy: decides; None for the scheduler's.
        turn: limits the decisions of all sessions that are computed at once.
        ended: called at the end.

    Attributes:
        key: of the viewer.
        user: their name.
        requests: that are being answered.
    """

    def __init__(  # noqa: PLR0913 - whose session it is, and what it is made of
        self,
        viewer: Viewer,
        user: str,
        client: Client,
        policy: Policy | None,
        *,
        turn: asyncio.Semaphore,
        ended: Callable[["Session"], None],
    ) -> None:
        self.key = viewer.key
        self.user = user
        self.requests = 0
        self._namespaces = viewer.namespaces
        self._client = client
        self._policy = policy
        self._turn = turn
        self._ended = ended
        self._feed = Feed(MOST_STREAMS)
        self._loop = asyncio.get_running_loop()
        self._used = self._loop.time()
        self._application: asyncio.Future[ASGIApp] = self._loop.create_future()
        self._task = asyncio.create_task(self._run())

    @property
    def last_use(self) -> float:
        """When it was used last, by the clock of the event loop; now, while it is."""
        return self._loop.time() if self.requests else self._used

    def enter(self) -> None:
        """A request begins."""
        self.requests += 1

    def leave(self) -> None:
        """A request has been answered."""
        self.requests -= 1
        self._used = self._loop.time()

    async def application(self) -> ASGIApp:
        """What answers requests, once everything has been listed.

        Raises:
            SessionEndedError: it has ended.
            NotInstalledError: the cluster has no KubeShare.
            ApiError: it cannot be read.
            TimeoutError: that takes too long.
        """
        return await asyncio.shield(self._application)

    def close(self) -> None:
        """End all streams, and forget everything."""
        self._feed.close()
        # A task that is cancelled before its first step never cleans up.
        self._loop.call_soon(self._task.cancel)

    async def wait(self) -> None:
        """Wait until it has ended."""
        await asyncio.wait({self._task})

    async def _run(self) -> None:
        reason = "closed"
        try:
            reason = await self._serve()
        except* (ApiError, NotInstalledError, TimeoutError) as errors:
            error = _first(errors)
            reason = str(error) or "the API server takes too long"
            self._fail(error)
        except* Exception as errors:
            log.exception("a session failed", user=self.user)
            self._fail(_first(errors))
        finally:
            self._feed.close()
            self._fail(SessionEndedError("the session has ended: load the page again"))
            self._ended(self)
            await self._client.close()
            log.info("a session has ended", user=self.user, reason=reason)

    async def _serve(self) -> str:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            access = await find_access(self._client, self._namespaces)
        sources = sources_of(self._client, access)
        tables = Tables(sources, self._feed)
        pages = Pages(
            *(self._client, sources, self._policy),
            tables=tables,
            feed=self._feed,
            viewer=self.user,
            turn=self._turn,
        )
        async with asyncio.TaskGroup() as tasks:
            background = [tasks.create_task(sources.run())]
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await sources.wait_for_sync()
            await tables.flush()
            background.append(tasks.create_task(tables.run()))
            self._application.set_result(routed(*api_routes(pages)))
            reason = await self._until_over(access)
            for task in background:
                task.cancel()
        return reason

    async def _until_over(self, access: Access) -> str:
        """Wait until it has to end; why."""
        checked = self._loop.time()
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            if self._loop.time() - self.last_use > IDLE_SECONDS:
                return "nobody looks"
            try:
                async with asyncio.timeout(_PATIENCE_SECONDS):
                    await user_of(self._client)
                    found = await find_access(self._client, self._namespaces)
            except (UnauthorizedError, ForbiddenError):
                return "the token is not valid any more"
            except (ApiError, TimeoutError) as error:
                if self._loop.time() - checked > UNCHECKED_SECONDS:
                    return f"the token cannot be checked: {error}"
                continue
            if found != access:
                return "the rights have changed"
            checked = self._loop.time()

    def _fail(self, error: Exception) -> None:
        if not self._application.done():
            self._application.set_exception(error)
            self._application.exception()  # also where nobody waits for it


def _first(errors: BaseExceptionGroup[Exception]) -> Exception:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, Exception)
    return error

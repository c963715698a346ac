"""Sends changes to a browser as server-sent events."""

import asyncio
from collections.abc import Callable
from typing import Final

from starlette.types import Receive, Scope, Send

from kubeshare.web.feed import Feed, Subscription

HEARTBEAT_SECONDS: Final = 15.0
"""Seconds of silence after which a heartbeat is sent."""
STALLED_SECONDS: Final = 60.0
"""Seconds after which a client that reads nothing is cut off."""


class Stream:
    """One response: all changes from now on.

    Args:
        feed: has the changes.
        beat: returns the data of a heartbeat as JSON.
        heartbeat: seconds of silence before one.
        stalled: seconds that a client may read nothing.

    Raises:
        TooManyClientsError: there are too many already.
    """

    def __init__(
        self,
        feed: Feed,
        beat: Callable[[], bytes],
        *,
        heartbeat: float = HEARTBEAT_SECONDS,
        stalled: float = STALLED_SECONDS,
    ) -> None:
        self._feed = feed
        self._beat = beat
        self._heartbeat = heartbeat
        self._stalled = stalled
        self._client = feed.subscribe()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Answer a request."""
        leaving = asyncio.create_task(_close_when_gone(receive, self._client))
        try:
            headers = [
                (b"content-type", b"text/event-stream"),
                (b"cache-control", b"no-store"),
                (b"x-accel-buffering", b"no"),  # nginx would keep changes back
            ]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            event: bytes | None = b"event: hello\ndata: {}\n\n"
            while event is not None:
                # A heartbeat where there is no news: it also says which kinds are outdated.
                body = event or b"event: beat\ndata: " + self._beat() + b"\n\n"
                async with asyncio.timeout(self._stalled):
                    await send({"type": "http.response.body", "body": body, "more_body": True})
                event = await self._client.next(self._heartbeat)
            await send({"type": "http.response.body", "body": b""})
        except (TimeoutError, OSError):
            return  # it reads nothing, or has left: the server closes the connection
        finally:
            self._feed.unsubscribe(self._client)
            leaving.cancel()


async def _close_when_gone(receive: Receive, client: Subscription) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    client.close()

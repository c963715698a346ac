"""Keeps a bounded number of viewers' sessions."""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from kubeshare.core.policies import Policy
from kubeshare.kube.client.client import Client
from kubeshare.web.in_cluster.session import Session
from kubeshare.web.in_cluster.viewer import Viewer, home_of, user_of

MOST_OF_USER: Final = 4
"""Sessions of one user: their tokens, and choices of namespaces."""
MOST_CHECKS: Final = 8
"""Unknown tokens that are checked at once; further ones are refused."""
DECISIONS_AT_ONCE: Final = 2

log = structlog.get_logger(__name__)


class TooManyViewersError(Exception):
    """No further session may begin now."""


class Sessions:
    """The sessions of all viewers, by token and namespaces.

    Args:
        connect: a client that sends a token.
        policy: decides; None for the scheduler's.
        most: sessions at once.
    """

    def __init__(self, connect: Callable[[str], Client], policy: Policy | None, most: int) -> None:
        self._connect = connect
        self._policy = policy
        self._most = most
        self._sessions: dict[bytes, Session] = {}
        self._ending: set[Session] = set()
        self._checks = 0
        self._turn = asyncio.Semaphore(DECISIONS_AT_ONCE)
        self._closed = False

    def __len__(self) -> int:
        return len(self._sessions)

    async def enter(self, viewer: Viewer) -> Session:
        """The viewer's session, which the caller leaves when its request has been answered.

        Raises:
            UnauthorizedError: the token is unknown or has expired.
            TooManyViewersError: too many look already.
            ApiError: the token cannot be checked.
        """
        session = self._sessions.get(viewer.key) or await self._begin(viewer)
        session.enter()
        return session

    async def _begin(self, viewer: Viewer) -> Session:
        if self._checks >= MOST_CHECKS:
            raise TooManyViewersError("many tokens are being checked: try again in a moment")
        self._checks += 1
        client = self._connect(viewer.token)
        try:
            user = await user_of(client)
            known = self._sessions.get(viewer.key)  # of a request that came at the same time
            if known is None:
                self._make_room(user)
        except BaseException:
            await client.close()
            raise
        finally:
            self._checks -= 1
        if known is not None:
            await client.close()
            return known
        client.namespace = home_of(user)
        session = Session(viewer, user, client, self._policy, turn=self._turn, ended=self._ended)
        self._sessions[session.key] = session
        log.info("a session begins", user=user, sessions=len(self._sessions))
        return session

    def _make_room(self, user: str) -> None:
        """End the session that is unused for longest where there are too many."""
        if self._closed:
            raise TooManyViewersError("the program ends: try again in a moment")
        own = [each for each in self._sessions.values() if each.user == user]
        words = "close some of their pages, then load this one again"
        if len(own) >= MOST_OF_USER and not self._end_unused(own):
            raise TooManyViewersError(f"{user} has {MOST_OF_USER} sessions already: {words}")
        if len(self._sessions) >= self._most and not self._end_unused([*self._sessions.values()]):
            raise TooManyViewersError(
                f"{self._most} viewers have pages open, which is the most: try again later, "
                "or ask an administrator to raise the chart's web.viewers"
            )

    def _end_unused(self, sessions: list[Session]) -> bool:
        unused = [each for each in sessions if not each.requests]
        if not unused:
            return False
        oldest = min(unused, key=lambda each: each.last_use)
        self._remove(oldest)
        oldest.close()
        self._ending.add(oldest)
        return True

    def _ended(self, session: Session) -> None:
        self._remove(session)
        self._ending.discard(session)

    def _remove(self, session: Session) -> None:
        if self._sessions.get(session.key) is session:
            del self._sessions[session.key]

    def close(self) -> None:
        """End all sessions, and begin no further one."""
        self._closed = True
        for session in [*self._sessions.values()]:
            session.close()

    async def wait(self) -> None:
        """Wait until all sessions have ended."""
        for session in [*self._sessions.values(), *self._ending]:
            await session.wait()

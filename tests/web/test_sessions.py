"""Sessions of the page in the cluster, in virtual time: their bounds, and their ends."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from fakes.web import small_cluster
from fakes.web.rights import rights
from fakes.web.tokens import TokenApiServer
from kubeshare.core.policies import policy
from kubeshare.explain.errors import NotInstalledError
from kubeshare.kube.client.errors import ApiError, UnauthorizedError
from kubeshare.simulator.control import FakeApiServer, Fault, run_virtual
from kubeshare.web.in_cluster.session import (
    CHECK_SECONDS,
    IDLE_SECONDS,
    UNCHECKED_SECONDS,
    Session,
    SessionEndedError,
)
from kubeshare.web.in_cluster.sessions import (
    MOST_CHECKS,
    MOST_OF_USER,
    Sessions,
    TooManyViewersError,
)
from kubeshare.web.in_cluster.viewer import Viewer

MOST = 16
MARGIN = 5.0


def play(
    test: Callable[[Sessions, TokenApiServer], Awaitable[None]],
    users: dict[str, str],
    behind: FakeApiServer | None = None,
) -> None:
    """Run a test on sessions at an API server that knows these tokens."""

    async def main() -> None:
        api = TokenApiServer(behind or small_cluster(), users)
        sessions = Sessions(api.client, policy("locality"), MOST)
        await test(sessions, api)
        sessions.close()
        await sessions.wait()
        assert len(sessions) == 0
        await asyncio.sleep(0)
        assert not api.behind.storage.watchers, "a watch outlives its session"

    run_virtual(main(), end=None)


async def look(sessions: Sessions, token: str, *namespaces: str) -> Session:
    """A request of who has a token, without its end."""
    session = await sessions.enter(Viewer(token, namespaces))
    await session.application()
    return session


async def glance(sessions: Sessions, token: str) -> None:
    """A request, and its end."""
    (await look(sessions, token)).leave()


def test_requests_of_one_token_share_its_session_and_others_do_not() -> None:
    async def test(sessions: Sessions, _: TokenApiServer) -> None:
        first = await look(sessions, "a")
        assert await look(sessions, "a") is first
        assert await look(sessions, "b") is not first
        assert await look(sessions, "a", "research") is not first

    play(test, {"a": "ann", "b": "ann"})


def test_requests_that_come_at_the_same_time_begin_one_session() -> None:
    async def test(sessions: Sessions, _: TokenApiServer) -> None:
        found = await asyncio.gather(*(look(sessions, "a") for _ in range(MOST_CHECKS)))
        assert len(set(found)) == len(sessions) == 1

    play(test, {"a": "ann"})


def test_an_open_page_ends_when_its_token_expires() -> None:
    async def test(sessions: Sessions, api: TokenApiServer) -> None:
        session = await look(sessions, "a")
        del api.users["a"]
        await asyncio.sleep(CHECK_SECONDS + MARGIN)
        await asyncio.wait_for(session.wait(), MARGIN)
        assert len(sessions) == 0
        asked = api.asked["a"]
        await asyncio.sleep(CHECK_SECONDS * 10)
        assert api.asked["a"] == asked, "nothing is asked with it any more"
        with pytest.raises(UnauthorizedError):
            await sessions.enter(Viewer("a"))

    play(test, {"a": "ann"})


def test_a_page_ends_when_rights_are_taken_or_given_and_begins_anew_with_them() -> None:
    async def test(sessions: Sessions, api: TokenApiServer) -> None:
        session = await look(sessions, "a")
        api.allow("a", rights("research"))
        await asyncio.sleep(CHECK_SECONDS + MARGIN)
        await asyncio.wait_for(session.wait(), MARGIN)
        session = await look(sessions, "a", "research")
        api.allow("a", rights("research", cluster=True))
        await asyncio.sleep(CHECK_SECONDS + MARGIN)
        await asyncio.wait_for(session.wait(), MARGIN)

    play(test, {"a": "ann"})


def test_a_page_of_an_hour_stays_while_its_token_is_valid() -> None:
    async def test(sessions: Sessions, _: TokenApiServer) -> None:
        session = await look(sessions, "a")
        await asyncio.sleep(3600)
        assert await look(sessions, "a") is session

    play(test, {"a": "ann"})


def test_a_session_that_nobody_uses_ends() -> None:
    async def test(sessions: Sessions, _: TokenApiServer) -> None:
        await glance(sessions, "a")
        await asyncio.sleep(IDLE_SECONDS - MARGIN)
        assert len(sessions) == 1
        await asyncio.sleep(CHECK_SECONDS + 2 * MARGIN)
        assert len(sessions) == 0

    play(test, {"a": "ann"})


def test_without_an_api_server_a_page_stays_for_some_minutes_only() -> None:
    async def test(sessions: Sessions, api: TokenApiServer) -> None:
        session = await look(sessions, "a")
        api.down = True
        await asyncio.sleep(UNCHECKED_SECONDS - MARGIN)
        assert len(sessions) == 1
        await asyncio.sleep(2 * CHECK_SECONDS)
        await asyncio.wait_for(session.wait(), MARGIN)

    play(test, {"a": "ann"})


@pytest.mark.slow
def test_of_many_tokens_few_have_a_session() -> None:
    async def test(sessions: Sessions, api: TokenApiServer) -> None:
        most = 0
        for token in api.users:
            await glance(sessions, token)
            most = max(most, len(sessions))
        assert most == MOST
        await asyncio.sleep(1)  # those that were ended have closed their watches
        assert len(api.behind.storage.watchers) <= 8 * MOST

    users = {f"t{number}": f"user-{number}" for number in range(5 * MOST)}
    play(test, users, FakeApiServer())


def test_who_has_a_page_open_is_not_pushed_out() -> None:
    async def test(sessions: Sessions, api: TokenApiServer) -> None:
        tokens = [*api.users]
        for token in tokens[:MOST]:
            await look(sessions, token)
        for token in tokens[MOST:]:
            with pytest.raises(TooManyViewersError, match="16 viewers have pages open"):
                await sessions.enter(Viewer(token))
        assert len(sessions) == MOST

    play(test, {f"t{number}": f"user-{number}" for number in range(100)})


def test_one_user_with_many_tokens_leaves_room_for_others() -> None:
    async def test(sessions: Sessions, api: TokenApiServer) -> None:
        tokens = [token for token in api.users if token != "b"]
        for token in tokens[:MOST_OF_USER]:
            await look(sessions, token)
        for token in tokens[MOST_OF_USER:]:
            with pytest.raises(TooManyViewersError, match="ann has 4 sessions already"):
                await sessions.enter(Viewer(token))
        await look(sessions, "b")
        assert len(sessions) == MOST_OF_USER + 1

    play(test, {f"t{number}": "ann" for number in range(1000)} | {"b": "bob"})


def test_unknown_tokens_are_checked_a_few_at_a_time_and_leave_nothing() -> None:
    async def test(sessions: Sessions, api: TokenApiServer) -> None:
        tries = [sessions.enter(Viewer(f"wrong-{number}")) for number in range(1000)]
        found = await asyncio.gather(*tries, return_exceptions=True)
        kinds = [type(error) for error in found]
        assert set(kinds) == {UnauthorizedError, TooManyViewersError}
        assert kinds.count(UnauthorizedError) == api.asked.total() == MOST_CHECKS
        assert len(sessions) == 0

    play(test, {"a": "ann"})


def test_a_session_that_ends_before_it_has_begun_asks_for_no_other_token() -> None:
    async def test(sessions: Sessions, _: TokenApiServer) -> None:
        session = await sessions.enter(Viewer("a"))
        session.close()
        with pytest.raises(SessionEndedError, match="load the page again"):
            await session.application()
        session.leave()

    play(test, {"a": "ann"})


def test_a_session_that_cannot_begin_says_why_and_leaves_nothing() -> None:
    async def test(sessions: Sessions, api: TokenApiServer) -> None:
        for fault, kind in ((Fault.answer(500), ApiError), (Fault.answer(404), NotInstalledError)):
            api.behind.inject(fault, verb="list", resource="sharepods")
            session = await sessions.enter(Viewer("a"))
            with pytest.raises(kind):
                await session.application()
            session.leave()
            await session.wait()
            assert len(sessions) == 0
        await glance(sessions, "a")

    play(test, {"a": "ann"})

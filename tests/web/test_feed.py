"""Changes for browsers: in order, and bounded, however slow a browser is."""

import asyncio
import json
from collections.abc import MutableMapping
from typing import Any

import pytest

from deadlines import eventually
from fakes.web import Served
from fakes.web.cluster import add_node
from kubeshare.api.types.v1 import GPUNODES, VGPUS
from kubeshare.simulator.control import run_virtual
from kubeshare.web import tables
from kubeshare.web.feed import MAX_CLIENTS, QUEUE, REFRESH, Feed, TooManyClientsError
from kubeshare.web.stream import HEARTBEAT_SECONDS, STALLED_SECONDS, Stream

Sent = MutableMapping[str, Any]


class Browser:
    """The other end of a stream: reads as fast as it wants to.

    Attributes:
        read: the bodies that it has read.
        stuck: whether it reads nothing any more.
    """

    def __init__(self) -> None:
        self.read: list[bytes] = []
        self.stuck = False
        self.left = asyncio.Event()

    async def receive(self) -> Sent:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Sent) -> None:
        if self.stuck:
            await asyncio.Event().wait()
        self.read.append(message.get("body", b""))

    def open(self, feed: Feed) -> "asyncio.Task[None]":
        stream = Stream(feed, lambda: b'{"stale":[]}')
        return asyncio.create_task(stream({}, self.receive, self.send))


def test_changes_come_in_order_between_a_greeting_and_heartbeats() -> None:
    async def main() -> None:
        feed, browser = Feed(), Browser()
        task = browser.open(feed)
        await asyncio.sleep(1)
        feed.publish(b"a")
        feed.publish(b"b")
        await asyncio.sleep(HEARTBEAT_SECONDS * 2 + 1)
        beat = b'event: beat\ndata: {"stale":[]}\n\n'
        assert browser.read[1:] == [b"event: hello\ndata: {}\n\n", b"a", b"b", beat, beat]
        browser.left.set()
        await task
        assert len(feed) == 0

    run_virtual(main())


def test_a_stream_that_is_open_for_a_day_does_not_grow() -> None:
    async def main() -> None:
        feed, browser = Feed(), Browser()
        task = browser.open(feed)
        for _ in range(24 * 60):
            feed.publish(b"x")
            await asyncio.sleep(60)
            browser.read.clear()
        assert not task.done()
        assert [len(client) for client in feed._clients] == [0]
        feed.close()
        await task

    run_virtual(main(), end=None)


def test_one_that_lags_is_asked_to_read_everything() -> None:
    async def main() -> None:
        feed = Feed()
        client = feed.subscribe()
        for number in range(100 * QUEUE):
            feed.publish(b"%d" % number)
            assert len(client) <= QUEUE
        feed.publish(REFRESH)
        first = await client.next(1)
        assert first == REFRESH
        rest = [await client.next(1) for _ in range(len(client))]
        assert REFRESH not in rest
        assert await client.next(1) == b""

    run_virtual(main())


def test_one_that_reads_nothing_is_cut_off_and_holds_up_nobody() -> None:
    async def main() -> None:
        feed, slow, fast = Feed(), Browser(), Browser()
        tasks = [slow.open(feed), fast.open(feed)]
        await asyncio.sleep(1)
        slow.stuck = True
        feed.publish(b"x")
        await asyncio.sleep(1)
        assert fast.read[-1] == b"x"
        await asyncio.sleep(STALLED_SECONDS)
        assert (tasks[0].done(), tasks[1].done(), len(feed)) == (True, False, 1)
        feed.close()
        await tasks[1]

    run_virtual(main())


def test_the_number_of_clients_is_bounded() -> None:
    async def main() -> None:
        feed = Feed()
        clients = [feed.subscribe() for _ in range(MAX_CLIENTS)]
        with pytest.raises(TooManyClientsError, match="close one of them"):
            feed.subscribe()
        feed.unsubscribe(clients[0])
        feed.subscribe()
        feed.close()
        with pytest.raises(TooManyClientsError):
            feed.subscribe()

    run_virtual(main())


def test_too_many_pages_are_told_so_and_one_that_leaves_makes_room(changing: Served) -> None:
    opened = [changing.stream() for _ in range(MAX_CLIENTS)]
    for each in opened:
        assert each.__enter__().status_code == 200
    try:
        with changing.stream() as refused:
            assert refused.status_code == 503
            assert "close one of them" in json.loads(refused.read())["error"]
        opened.pop().__exit__(None, None, None)

        def accepted() -> bool:
            with changing.stream() as again:
                return bool(again.status_code == 200)

        eventually(accepted, "there is room for another page")
    finally:
        for each in opened:
            each.__exit__(None, None, None)


def events(response: Any) -> Any:
    """The events of a stream: name and data. Those that only show that it lives are left out."""
    lines = response.iter_lines()
    for line in lines:
        if line.startswith("event: ") and line != "event: beat":
            yield line.removeprefix("event: "), json.loads(next(lines).removeprefix("data: "))


def test_a_change_is_sent_as_the_rows_that_changed(changing: Served) -> None:
    with changing.stream() as response:
        found = events(response)
        assert next(found) == ("hello", {})
        changing.do(changing.api.change, GPUNODES, "gpu-b", "", _fail_first)
        name, data = next(found)
        assert name == "change"
        [row] = data["tables"]["nodes"]["rows"]
        assert (row["id"], row["gpus"][0]["state"]) == ("gpu-b", "unhealthy")
        assert set(data["tables"]) == {"nodes"}
        changing.do(changing.api.remove, GPUNODES, "gpu-c")
        for index in range(4):
            changing.do(changing.api.remove, VGPUS, f"gpu-c-vgpu-c{index}")
        gone: list[str] = []
        while not gone:
            _, data = next(found)
            gone = data["tables"]["nodes"]["gone"]
        assert gone == ["gpu-c"]


def test_very_many_changes_at_once_become_a_refresh(
    changing: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "LARGEST_DELTA", 10)
    with changing.stream() as response:

        def many() -> None:
            for number in range(300):
                add_node(changing.api, f"node-{number}", 1)

        changing.do(many)
        assert any(name == "refresh" for name, _ in events(response))


def _fail_first(gpunode: dict[str, Any]) -> None:
    gpunode["spec"]["devices"][0]["healthy"] = False

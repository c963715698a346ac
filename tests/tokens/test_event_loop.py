"""The daemon's event loop: readers below asyncio, and all of asyncio above them."""

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeAlias

import pytest

from deadlines import DEADLINE_S
from kubeshare.tokens.event_loop import EventLoop

Pair: TypeAlias = tuple[socket.socket, socket.socket]


def run(main: Callable[[asyncio.AbstractEventLoop], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine in the loop, to its end before the deadline."""

    async def bounded() -> None:
        await asyncio.wait_for(main(asyncio.get_running_loop()), DEADLINE_S)

    with asyncio.Runner(loop_factory=EventLoop) as runner:
        runner.run(bounded())


@pytest.fixture
def pair() -> Iterator[Pair]:
    """What is sent on the first can be read from the second, which does not block."""
    near, far = socket.socketpair()
    far.setblocking(False)
    with near, far:
        yield near, far


def test_a_reader_is_called_until_nothing_is_left(pair: Pair) -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        near, far = pair
        got, done = [], asyncio.Event()

        def read(name: str) -> None:
            got.append((name, far.recv(1)))
            if len(got) == 3:
                done.set()

        loop.add_reader(far, read, "reader")
        near.send(b"abc")
        await done.wait()
        assert got == [("reader", b"a"), ("reader", b"b"), ("reader", b"c")]

    run(main)


def test_the_last_reader_of_a_descriptor_counts(pair: Pair) -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        near, far = pair
        done = asyncio.Event()
        loop.add_reader(far.fileno(), pytest.fail, "the first one is called")
        loop.add_reader(far.fileno(), lambda: done.set() if far.recv(1) else None)
        near.send(b"a")
        await done.wait()

    run(main)


def test_a_reader_that_is_removed_is_not_called_again(pair: Pair) -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        near, far = pair
        calls, called = [], asyncio.Event()

        def read() -> None:
            called.set()
            calls.append("read")
            assert loop.remove_reader(far)
            assert not loop.remove_reader(far)

        loop.add_reader(far, read)
        near.send(b"ab")
        await called.wait()
        for _ in range(10):
            await asyncio.sleep(0)
        assert calls == ["read"]

    run(main)


def test_of_two_that_are_ready_together_the_first_can_remove_the_other() -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        ready = [os.eventfd(1, os.EFD_NONBLOCK) for _ in range(2)]
        called = []

        def read(fd: int) -> None:
            called.append(fd)
            for other in ready:
                loop.remove_reader(other)

        for fd in ready:
            loop.add_reader(fd, read, fd)
        await asyncio.sleep(0.001)
        for fd in ready:
            os.close(fd)
        assert len(called) == 1

    run(main)


def test_a_reader_that_fails_is_told_of_and_stops_nobody(pair: Pair) -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        near, far = pair
        failed, told = os.eventfd(1, os.EFD_NONBLOCK), loop.create_future()
        done = asyncio.Event()
        loop.set_exception_handler(lambda _, context: told.set_result(context["exception"]))

        def fail() -> None:
            loop.remove_reader(failed)
            raise ValueError("out of order")

        loop.add_reader(failed, fail)
        loop.add_reader(far, lambda: done.set() if far.recv(1) else None)
        assert str(await told) == "out of order"
        near.send(b"a")
        await done.wait()
        os.close(failed)

    run(main)


@pytest.mark.parametrize("delay", [None, 0.001])
def test_what_a_reader_asks_the_loop_for_is_done_though_nothing_else_happens(
    pair: Pair, delay: float | None
) -> None:
    """The loop sleeps for an hour when the reader asks."""

    async def main(loop: asyncio.AbstractEventLoop) -> None:
        near, far = pair
        done = asyncio.Event()

        def read() -> None:
            far.recv(1)
            if delay is None:
                loop.call_soon(done.set)
            else:
                loop.call_later(delay, done.set)

        loop.add_reader(far, read)
        loop.call_later(3600, pytest.fail, "an hour has passed")
        near.send(b"a")
        await done.wait()

    run(main)


def test_a_descriptor_that_stays_readable_keeps_nothing_else_from_its_turn() -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        busy, calls = os.eventfd(1, os.EFD_NONBLOCK), 0

        def count() -> None:
            nonlocal calls
            calls += 1

        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.readline())
            writer.close()

        loop.add_reader(busy, count)
        async with await asyncio.start_server(echo, "127.0.0.1") as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
            writer.write(b"hello\n")
            assert await reader.readline() == b"hello\n"
            writer.close()
        await asyncio.sleep(0.01)
        assert await asyncio.to_thread(lambda: 7) == 7
        loop.remove_reader(busy)
        os.close(busy)
        assert calls

    run(main)


def test_a_timer_comes_in_time_while_readers_have_no_end_of_work(pair: Pair) -> None:
    """Each time that they are called, only the rest of its wait is left."""

    async def main(loop: asyncio.AbstractEventLoop) -> None:
        near, far = pair

        def answer() -> None:
            near.send(far.recv(1))

        loop.add_reader(far, answer)
        near.send(b"a")
        await asyncio.sleep(0.02)
        loop.remove_reader(far)

    run(main)

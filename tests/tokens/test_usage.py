"""What processes say they use is read beside the event loop."""

import asyncio
import threading

import pytest

from deadlines import DEADLINE_S
from kubeshare.simulator.control import until
from kubeshare.tokens import usage
from kubeshare.tokens.files import counters
from kubeshare.tokens.files.counters import NO_USAGE, Process, Usage
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.usage import UsageCache
from kubeshare.tokens.wire.protocol import CELLS_MAX

ONE = Process(1, tuple(range(CELLS_MAX)), (1,) * CELLS_MAX, 4)


class Files:
    """What the counters of all claims say; a read waits until it may go on.

    Attributes:
        reads: how many began.
        may_go_on: set in the beginning.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reads = 0
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        monkeypatch.setattr(counters, "processes", self._processes)
        # On a busy machine the thread that reads may begin late.
        monkeypatch.setattr(usage, "WAIT_SECONDS", DEADLINE_S)

    def _processes(self, _: object) -> list[Process]:
        self.reads += 1
        assert self.may_go_on.wait(DEADLINE_S)
        return [ONE, ONE]


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Files:
    return Files(monkeypatch)


def test_the_values_of_all_processes_are_added(paths: Paths, files: Files) -> None:
    cache = UsageCache(paths)
    assert cache.of("a")[3] == NO_USAGE
    asyncio.run(cache.refresh(["a"]))
    assert cache.of("a")[3] == Usage(6, 2, 8)
    assert cache.of("b")[3] == NO_USAGE


def test_a_file_is_read_once_for_all_who_ask_within_a_moment(
    paths: Paths, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "FRESH_SECONDS", DEADLINE_S)

    async def ask() -> None:
        cache = UsageCache(paths)
        await asyncio.gather(*(cache.refresh(["a"]) for _ in range(10)))
        await cache.refresh(["a"])

    asyncio.run(ask())
    assert files.reads == 1


def test_who_asks_gets_the_last_values_while_a_read_takes_long(
    paths: Paths, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "WAIT_SECONDS", 0.01)
    monkeypatch.setattr(usage, "FRESH_SECONDS", 0.0)

    async def ask() -> None:
        cache = UsageCache(paths)
        files.may_go_on.clear()
        for _ in range(2):
            await cache.refresh(["a"])
            assert cache.of("a")[3] == NO_USAGE
        await until(lambda: files.reads, seconds=DEADLINE_S)
        await cache.refresh(["a"])
        assert files.reads == 1
        files.may_go_on.set()
        await until(lambda: cache.of("a")[3] == Usage(6, 2, 8), seconds=DEADLINE_S)

    asyncio.run(ask())

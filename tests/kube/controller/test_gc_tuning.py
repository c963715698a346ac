"""When objects of a program are collected, and when not."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from functools import partial

import pytest

from kubeshare.kube.controller.gc_tuning import (
    COLLECT_SECONDS,
    PAUSE_SECONDS,
    collections_paused,
    collections_postponed,
    freeze_live_objects,
)
from kubeshare.simulator.control import run_virtual, until


@pytest.fixture(autouse=True, scope="module")
def tests_stay_frozen() -> Iterator[None]:
    """Exclude the thousands of tests again from collections, as ``conftest.py`` has them."""
    yield
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def test_what_lives_when_a_program_is_built_is_not_collected_again() -> None:
    first = gc.get_freeze_count()
    kept = [[number] for number in range(5000)]
    freeze_live_objects()
    assert gc.get_freeze_count() > first + len(kept) - 1000


class Cycle:
    """What only the garbage collector can free."""

    def __init__(self) -> None:
        self.itself = self


def test_to_exclude_more_collects_nothing() -> None:
    """A program does it whenever its ledger was built anew; a collection takes 0.4 s then."""
    collections: list[str] = []

    def note(phase: str, _: dict[str, int]) -> None:
        collections.append(phase)

    gc.callbacks.append(note)
    try:
        freeze_live_objects()
        freeze_live_objects()
    finally:
        gc.callbacks.remove(note)
    assert collections == []


def test_nothing_is_collected_while_stores_are_filled_and_what_lives_then_never() -> None:
    async def main() -> None:
        filled = asyncio.Event()

        async def wait_until_filled() -> None:
            await filled.wait()

        async with collections_paused(wait_until_filled):
            assert not gc.isenabled()
            before = gc.get_freeze_count()
            kept = [[number] for number in range(5000)]
            filled.set()
            await until(gc.isenabled)
            assert gc.get_freeze_count() > before + len(kept) - 1000

    run_virtual(main())
    assert gc.isenabled()


def test_collections_go_on_where_the_stores_are_never_filled() -> None:
    async def main() -> None:
        async with collections_paused(partial(asyncio.sleep, 2 * PAUSE_SECONDS)):
            await asyncio.sleep(PAUSE_SECONDS - 1)
            assert not gc.isenabled()
            await asyncio.sleep(2)
            assert gc.isenabled()

    run_virtual(main())


def test_where_filling_takes_long_no_object_is_collected_again_and_again() -> None:
    """Such as on a machine that is busy with other things: each collection took 0.4 s there."""

    async def main() -> None:
        async with collections_paused(partial(asyncio.sleep, 3 * PAUSE_SECONDS)):
            await asyncio.sleep(PAUSE_SECONDS - 1)
            before = gc.get_freeze_count()
            early = [[number] for number in range(5000)]
            await asyncio.sleep(2)
            assert gc.get_freeze_count() > before + len(early) - 1000
            late = [[number] for number in range(5000)]
            cycle = Cycle()
            garbage = weakref.ref(cycle)
            del cycle
            await asyncio.sleep(COLLECT_SECONDS)
            assert gc.get_freeze_count() > before + len(early) + len(late) - 1000
            assert garbage() is None

    run_virtual(main())


def test_collections_wait_for_all_that_postpone_them() -> None:
    async def main() -> None:
        filled = asyncio.Event()

        async def wait_until_filled() -> None:
            await filled.wait()

        async with collections_paused(wait_until_filled):
            with collections_postponed():
                filled.set()
                await asyncio.sleep(1)
                assert not gc.isenabled()
            assert gc.isenabled()

    run_virtual(main())
    assert gc.isenabled()


def test_collections_go_on_where_what_postpones_them_takes_long() -> None:
    async def main() -> None:
        with collections_postponed(), collections_postponed():
            before = gc.get_freeze_count()
            kept = [[number] for number in range(5000)]
            await asyncio.sleep(PAUSE_SECONDS - 1)
            assert not gc.isenabled()
            await asyncio.sleep(2)
            assert gc.isenabled()
            assert gc.get_freeze_count() > before + len(kept) - 1000

    run_virtual(main())

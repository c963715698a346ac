"""Every key is queued within a round, evenly, and never faster than the bound."""

import asyncio
from collections.abc import Sequence

import pytest

from kubeshare.kube.controller.controller import Controller
from kubeshare.kube.controller.resync import KEYS_PER_SECOND, RESYNC_SECONDS, add_resync
from kubeshare.kube.controller.runtime import Program
from kubeshare.simulator.control import FakeApiServer, run_virtual


def looks(keys: Sequence[int], seconds: float) -> list[tuple[int, float]]:
    """The keys that a controller is given, and when."""
    found: list[tuple[int, float]] = []

    async def reconcile(key: int) -> None:
        found.append((key, asyncio.get_running_loop().time()))

    async def main() -> None:
        program = Program("test", FakeApiServer().client())
        controller: Controller[int] = Controller("test", reconcile)
        program.add_controller(controller)
        add_resync(program, controller, lambda: keys)
        running = asyncio.create_task(program.run())
        await asyncio.sleep(seconds)
        program.stop()
        await running

    run_virtual(main())
    return found


def test_a_round_is_spread_evenly() -> None:
    found = looks([1, 2, 3, 4], 2 * RESYNC_SECONDS + 1)
    assert [key for key, _ in found] == [1, 2, 3, 4] * 2
    assert [at for _, at in found] == pytest.approx(
        [RESYNC_SECONDS / 4 * number for number in range(1, 9)], abs=0.1
    )


@pytest.mark.parametrize("count", [1, 2])
def test_few_keys_take_a_whole_round(count: int) -> None:
    found = looks(range(count), RESYNC_SECONDS + 1)
    assert len(found) == count
    assert found[-1][1] == pytest.approx(RESYNC_SECONDS, abs=0.1)


def test_many_keys_take_longer_than_a_round() -> None:
    keys = range(int(RESYNC_SECONDS * KEYS_PER_SECOND) + 1000)
    found = looks(keys, 10)
    assert len(found) == pytest.approx(10 * KEYS_PER_SECOND, abs=2)


def test_without_keys_nothing_is_queued() -> None:
    assert looks([], 3 * RESYNC_SECONDS) == []


def test_changes_come_before_keys_that_are_queued_again() -> None:
    found: list[int] = []

    async def reconcile(key: int) -> None:
        found.append(key)
        await asyncio.sleep(10)

    async def main() -> None:
        program = Program("test", FakeApiServer().client())
        controller: Controller[int] = Controller("test", reconcile)
        program.add_controller(controller)
        add_resync(program, controller, lambda: range(int(RESYNC_SECONDS)))
        running = asyncio.create_task(program.run())
        await asyncio.sleep(5)
        controller.queue.add(-1)
        await asyncio.sleep(10)
        program.stop()
        await running

    run_virtual(main())
    assert found[:2] == [0, -1]

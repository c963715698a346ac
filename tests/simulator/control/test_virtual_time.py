"""Waiting for conditions in virtual time."""

import asyncio

import pytest

from kubeshare.simulator.control import run_virtual, until

HOUR = 3600.0


def test_a_condition_is_seen_within_a_twentieth_of_a_second() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()
        loop.call_later(HOUR + 0.01, changed.set)
        await until(changed.is_set, seconds=2 * HOUR)
        return loop.time()

    assert run_virtual(main()) == pytest.approx(HOUR + 0.05)


def test_a_condition_is_not_looked_at_while_nothing_happens() -> None:
    looked: list[float] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(HOUR, list)

        def late() -> bool:
            looked.append(loop.time())
            return loop.time() > HOUR

        await until(late, seconds=2 * HOUR)

    run_virtual(main())
    assert len(looked) < 5


@pytest.mark.parametrize("busy", [False, True])
def test_what_never_holds_fails_at_its_deadline(*, busy: bool) -> None:
    ended: list[float] = []

    async def tick() -> None:
        for _ in range(9):
            await asyncio.sleep(7.0)

    async def main() -> None:
        task = asyncio.create_task(tick() if busy else asyncio.sleep(0))
        with pytest.raises(AssertionError, match="not so within 20 s"):
            await until(lambda: False, seconds=20)
        ended.append(asyncio.get_running_loop().time())
        task.cancel()

    run_virtual(main())
    assert ended == [pytest.approx(20, abs=0.05)]


def test_the_answer_of_a_thread_ends_a_wait() -> None:
    async def main() -> bool:
        answer = asyncio.get_running_loop().run_in_executor(None, lambda: True)
        await until(answer.done)
        return answer.result()

    assert run_virtual(main())

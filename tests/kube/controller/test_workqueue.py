"""The work queue: its promises under random use, and its times."""

import asyncio

import looptime
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kube.expectations import expect_true
from kubeshare.kube.controller.workqueue import INITIAL_EVERY, QueueClosedError, WorkQueue
from kubeshare.simulator.control import run_virtual

KEYS = st.sampled_from("abcd")
SECONDS = st.integers(4, 160).map(lambda eighths: eighths / 8)
"""Sums of eighths are exact, so a key is due just when the loop's clock says so."""


class QueueMachine(RuleBasedStateMachine):
    """Two workers and many producers in virtual time, against a model of sets."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = looptime.new_event_loop(start=0)
        self.queue: WorkQueue[str] = WorkQueue("test")
        self.needs: set[str] = set()  # added since it was last taken
        self.taken: set[str] = set()
        self.due: dict[str, float] = {}

    def teardown(self) -> None:
        self.loop.close()

    def _run(self, step: "asyncio._CoroutineLike[None]") -> None:
        self.loop.run_until_complete(step)

    @rule(key=KEYS, initial=st.booleans())
    def add(self, key: str, *, initial: bool) -> None:
        async def step() -> None:
            self.queue.add(key, initial=initial)

        self._run(step())
        self.needs.add(key)

    @rule(key=KEYS, seconds=SECONDS)
    def add_after(self, key: str, seconds: float) -> None:
        async def step() -> None:
            self.queue.add_after(key, seconds)

        self._run(step())
        when = self.loop.time() + seconds
        self.due[key] = min(when, self.due.get(key, when))

    @rule(key=KEYS)
    def cancel_delay(self, key: str) -> None:
        self.queue.cancel_delay(key)
        self.due.pop(key, None)

    @rule(seconds=SECONDS)
    def wait(self, seconds: float) -> None:
        self._run(asyncio.sleep(seconds))
        now = self.loop.time()
        for key in [key for key, when in self.due.items() if when <= now]:
            del self.due[key]
            self.needs.add(key)

    @rule()
    def take(self) -> None:
        async def step() -> None:
            waiting = self.needs - self.taken
            if not waiting:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0):
                        await self.queue.get()
                return
            key = await self.queue.get()
            assert key in waiting
            self.needs.discard(key)
            self.taken.add(key)

        self._run(step())

    @rule(key=KEYS)
    def done(self, key: str) -> None:
        async def step() -> None:
            if key in self.taken:
                self.queue.done(key)
                self.taken.discard(key)

        self._run(step())

    @invariant()
    def no_key_is_lost_or_doubled(self) -> None:
        assert len(self.queue) == len(self.needs - self.taken)
        assert self.queue.processing == len(self.taken)


QueueMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestQueue = QueueMachine.TestCase


def test_news_precedes_keys_of_the_first_list() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        for key in ("old1", "old2", "both"):
            queue.add(key, initial=True)
        queue.add("new")
        queue.add("both")
        queue.add("new", initial=True)
        assert [await queue.get() for _ in range(4)] == ["new", "both", "old1", "old2"]
        assert queue.adds == 4

    run_virtual(main())


def test_the_lowest_priority_number_is_taken_first_then_the_oldest_key() -> None:
    async def main() -> None:
        ranks = {"a": 1, "b": 0, "c": 1, "old": 0, "d": 0}
        queue: WorkQueue[str] = WorkQueue(priority=lambda key: ranks[key])
        for key in ranks:
            queue.add(key, initial=key == "old")
        assert [await queue.get() for _ in range(5)] == ["b", "d", "old", "a", "c"]
        assert len(queue) == 0

    run_virtual(main())


def test_upcoming_keys_are_shown_in_order_and_stay_queued() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue(priority=lambda key: key != "first")
        queue.add("listed", initial=True)
        for key in ("a", "first", "b"):
            queue.add(key)
        assert queue.upcoming(3) == ["first", "a", "b"]
        assert queue.upcoming(9) == ["first", "a", "b", "listed"]
        assert await queue.get() == "first"
        assert queue.upcoming(1) == ["a"]
        assert len(queue) == 3

    run_virtual(main())


def test_a_key_moves_up_when_it_is_added_again_with_a_lower_number() -> None:
    async def main() -> None:
        ranks = {"a": 0, "b": 1}
        queue: WorkQueue[str] = WorkQueue(priority=lambda key: ranks[key])
        queue.add("a")
        queue.add("b")
        ranks["b"] = -1
        queue.add("b")
        ranks["a"] = 5
        queue.add("a")  # it has been promised its place
        assert [await queue.get() for _ in range(2)] == ["b", "a"]
        assert queue.adds == 2

    run_virtual(main())


def test_what_the_first_list_brought_has_its_turn_where_there_is_always_news() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add("old", initial=True)
        taken = []
        for number in range(INITIAL_EVERY + 1):
            queue.add(f"new{number}")
            taken.append(await queue.get())
        assert taken[:INITIAL_EVERY] == [
            *(f"new{number}" for number in range(INITIAL_EVERY - 1)),
            "old",
        ]
        assert taken[INITIAL_EVERY:] == [f"new{INITIAL_EVERY - 1}"]

    run_virtual(main())


def test_the_waits_of_a_failing_key_double_up_to_the_last_and_are_its_own() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        queue: WorkQueue[str] = WorkQueue()
        waits = []
        for _ in range(20):
            before = loop.time()
            queue.add_rate_limited("a")
            queue.done(await queue.get())
            waits.append(loop.time() - before)
        assert waits[:4] == pytest.approx([0.005, 0.01, 0.02, 0.04], abs=1e-4)
        assert waits[-1] == pytest.approx(1000)
        before = loop.time()
        queue.add_rate_limited("b")
        await queue.get()
        assert loop.time() - before == pytest.approx(0.005, abs=1e-4)
        queue.forget("a")
        assert queue.failures("a") == 0
        assert queue.retries == 21

    run_virtual(main())


def test_a_key_that_failed_ten_thousand_times_still_has_a_finite_wait() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue(max_delay=1.0)
        for _ in range(10_000):
            queue.add_rate_limited("a")
        async with asyncio.timeout(2):
            assert await queue.get() == "a"

    run_virtual(main())


def test_closing_wakes_waiting_workers_and_drops_all_keys() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        getters = [asyncio.create_task(queue.get()) for _ in range(3)]
        await asyncio.sleep(1)
        queue.add_after("late", 5)
        queue.close()
        queue.add("later")
        queue.add_after("latest", 0)
        outcomes = await asyncio.gather(*getters, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [QueueClosedError] * 3
        await asyncio.sleep(10)
        assert len(queue) == 0

    run_virtual(main())


def test_a_worker_cancelled_while_it_waits_loses_no_key() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        first, second = (asyncio.create_task(queue.get()) for _ in range(2))
        await asyncio.sleep(1)
        queue.add("a")
        first.cancel()
        assert await second == "a"

    run_virtual(main())


def test_times_in_the_queue_and_in_process_are_measured() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        waited: list[float] = []
        worked: list[float] = []
        queue.on_taken, queue.on_done = waited.append, worked.append
        assert queue.longest_seconds == 0
        await asyncio.sleep(20)
        queue.add("a")
        await asyncio.sleep(3)
        await queue.get()
        await asyncio.sleep(4)
        assert queue.unfinished_seconds == queue.longest_seconds == pytest.approx(4)
        queue.done("a")
        assert waited == [pytest.approx(3)]
        assert worked == [pytest.approx(4)]

    run_virtual(main())


def test_many_workers_never_hold_the_same_key() -> None:
    async def main() -> None:
        queue: WorkQueue[int] = WorkQueue()
        busy: set[int] = set()
        looked = 0

        async def work() -> None:
            nonlocal looked
            while True:
                key = await queue.get()
                assert key not in busy
                busy.add(key)
                await asyncio.sleep(0.3)
                busy.discard(key)
                looked += 1
                queue.done(key)

        workers = [asyncio.create_task(work()) for _ in range(8)]
        for step in range(200):
            queue.add(step % 5)
            await asyncio.sleep(0.05)
        await expect_true(lambda: not len(queue) and not queue.processing, "drained")
        assert looked >= 5
        assert not any(worker.done() for worker in workers)
        for worker in workers:
            worker.cancel()

    run_virtual(main())


def test_a_key_without_a_delay_is_queued_at_once() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        for key, seconds in (("b", 1), ("a", 0), ("c", -1)):
            queue.add_after(key, seconds)
        assert [await queue.get(), await queue.get()] == ["a", "c"]
        assert asyncio.get_running_loop().time() == 0
        assert await queue.get() == "b"
        assert asyncio.get_running_loop().time() == 1

    run_virtual(main())

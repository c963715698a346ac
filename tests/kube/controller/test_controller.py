"""What a controller does with what its reconcile function returns or raises."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest

from kube.expectations import expect_count, expect_value
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import Change
from kubeshare.kube.client.errors import (
    ApiError,
    ConflictError,
    ForbiddenError,
    TooManyRequestsError,
    UnreachableError,
)
from kubeshare.kube.controller import controller as controller_module
from kubeshare.kube.controller.controller import (
    UNAVAILABLE_RETRY_SECONDS,
    Controller,
    InBackground,
    Outcome,
    RequeueAfter,
    TerminalError,
    earliest,
    own_key,
)
from kubeshare.kube.logs import add_reconcile_context
from kubeshare.kube.meta import Key
from kubeshare.kube.resources import PODS
from kubeshare.simulator.control import FakeApiServer, run_virtual

KEY = Key("a", "p")


class Recorded:
    """A controller whose outcomes are scripted; each is used once, then all is well."""

    def __init__(self, *outcomes: Exception | Outcome | float, workers: int = 1) -> None:
        self.outcomes = list(outcomes)
        self.times: list[float] = []
        self.controller: Controller[Key] = Controller(
            "test", self.reconcile, workers=workers, timeout=5
        )

    async def reconcile(self, key: Key) -> Outcome:
        self.times.append(asyncio.get_running_loop().time())
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if isinstance(outcome, Exception):
            raise outcome
        if isinstance(outcome, float):
            await asyncio.sleep(outcome)
            return None
        return outcome


def running(recorded: Recorded, body: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        task = asyncio.create_task(recorded.controller.run())
        recorded.controller.queue.add(KEY)
        await body()
        recorded.controller.stop()
        await task

    run_virtual(main())


@pytest.mark.parametrize(
    ("outcome", "result"),
    [
        (RuntimeError("a bug"), "error"),
        (TimeoutError("its own"), "error"),
        (ApiError("no", status=500), "error"),
        (UnreachableError("gone", sent=True), "error"),
        (ConflictError("stale", status=409), "conflict"),
        (6.0, "timeout"),
    ],
    ids=str,
)
def test_a_failure_is_tried_again_and_then_forgotten(
    outcome: Exception | float, result: str
) -> None:
    recorded = Recorded(outcome, outcome, outcome)

    async def body() -> None:
        await expect_count(recorded.times, 4)
        await expect_value(lambda: recorded.controller.results["success"], 1)
        assert recorded.controller.results == {result: 3, "success": 1}
        assert recorded.controller.queue.failures(KEY) == 0
        assert recorded.controller.queue.retries == 3

    running(recorded, body)


def test_a_terminal_error_waits_for_the_next_change() -> None:
    recorded = Recorded(TerminalError("impossible"))

    async def body() -> None:
        await asyncio.sleep(5000)
        assert len(recorded.times) == 1
        recorded.controller.queue.add(KEY)
        await expect_value(lambda: recorded.controller.results, {"terminal": 1, "success": 1})

    running(recorded, body)


def test_requeue_after_reconciles_at_that_time_and_is_no_failure() -> None:
    recorded = Recorded(RuntimeError("first"), RequeueAfter(30))

    async def body() -> None:
        await asyncio.sleep(100)
        assert recorded.times == pytest.approx([0, 0.005, 30.005], abs=0.001)
        assert recorded.controller.queue.failures(KEY) == 0
        assert recorded.controller.results == {"error": 1, "requeue_after": 1, "success": 1}

    running(recorded, body)


def test_the_last_reconcile_decides_when_the_next_one_is() -> None:
    recorded = Recorded(RequeueAfter(30), None, RequeueAfter(9), RequeueAfter(50))

    async def body() -> None:
        for _ in range(3):
            await asyncio.sleep(1)
            recorded.controller.queue.add(KEY)
        await asyncio.sleep(100)
        assert recorded.times == pytest.approx([0, 1, 2, 3, 53], abs=0.001)

    running(recorded, body)


def test_the_next_keys_need_not_wait_for_what_is_left_of_one_but_for_a_few() -> None:
    reconciled: list[tuple[str, float]] = []

    async def reconcile(key: str) -> InBackground:
        reconciled.append((key, asyncio.get_running_loop().time()))
        return InBackground(lambda: asyncio.sleep(10))

    async def main() -> None:
        controller: Controller[str] = Controller("test", reconcile, background=2)
        task = asyncio.create_task(controller.run())
        for key in "abcd":
            controller.queue.add(key)
        await asyncio.sleep(5)
        controller.queue.add("a")  # it is in process until its rest is done
        assert reconciled == [("a", 0), ("b", 0), ("c", 0)]
        assert controller.queue.processing == 3
        await expect_value(lambda: controller.results, {"success": 5})
        assert reconciled == [("a", 0), ("b", 0), ("c", 0), ("d", 10), ("a", 10)]
        controller.stop()
        await task

    run_virtual(main())


def test_a_key_is_retried_when_its_background_rest_fails() -> None:
    reconciled: list[float] = []

    async def stale() -> None:
        raise ConflictError("stale", status=409)

    async def reconcile(_: str) -> InBackground | None:
        reconciled.append(asyncio.get_running_loop().time())
        return InBackground(stale) if len(reconciled) < 3 else None

    async def main() -> None:
        controller: Controller[str] = Controller("test", reconcile)
        task = asyncio.create_task(controller.run())
        controller.queue.add("a")
        await expect_value(lambda: controller.results, {"conflict": 2, "success": 1})
        assert reconciled == pytest.approx([0, 0.005, 0.015], abs=0.001)
        controller.stop()
        await task

    run_virtual(main())


def test_retry_after_of_the_server_is_respected() -> None:
    recorded = Recorded(TooManyRequestsError("busy", status=429, retry_after=12))

    async def body() -> None:
        await asyncio.sleep(20)
        assert recorded.times == pytest.approx([0, 12], abs=0.001)

    running(recorded, body)


@pytest.mark.parametrize(
    "error",
    [
        UnreachableError("gone", sent=False),
        ApiError("failed", status=500),
        ApiError("no etcd", status=503),
        TooManyRequestsError("busy", status=429),
    ],
    ids=lambda error: error.status,
)
def test_an_api_server_that_was_away_is_not_waited_for_as_long_again(error: ApiError) -> None:
    recorded = Recorded(*[error] * 30)

    async def body() -> None:
        await asyncio.sleep(1000)
        waits = [after - before for before, after in pairwise(recorded.times)]
        assert len(waits) > 25
        assert max(waits) == pytest.approx(UNAVAILABLE_RETRY_SECONDS)

    running(recorded, body)


def test_refused_requests_are_retried_with_backoff() -> None:
    recorded = Recorded(*[ForbiddenError("over quota", status=403)] * 30)

    async def body() -> None:
        await asyncio.sleep(4000)
        waits = [after - before for before, after in pairwise(recorded.times)]
        assert max(waits) == pytest.approx(1000)

    running(recorded, body)


def test_stopping_finishes_keys_in_process_and_starts_none() -> None:
    recorded = Recorded(3.0)

    async def main() -> None:
        task = asyncio.create_task(recorded.controller.run())
        recorded.controller.queue.add(KEY)
        recorded.controller.queue.add(Key("a", "q"))
        await asyncio.sleep(1)
        recorded.controller.stop()
        await task
        assert asyncio.get_running_loop().time() == pytest.approx(3)
        assert recorded.controller.results == {"success": 1}

    run_virtual(main())


def test_work_begins_when_the_stores_are_filled_and_follows_changes(
    server: FakeApiServer,
) -> None:
    def pod(name: str, node: str) -> None:
        metadata = {"name": name, "namespace": "a"}
        server.seed(PODS, {"metadata": metadata, "spec": {"nodeName": node}})

    pod("p", "n1")
    server.down = True
    recorded = Recorded()

    async def main() -> None:
        reflector = Reflector(server.client(), PODS)
        recorded.controller.watch(reflector, own_key)
        tasks = [asyncio.create_task(part.run()) for part in (reflector, recorded.controller)]
        await asyncio.sleep(10)
        assert recorded.times == []
        server.down = False
        await expect_count(recorded.times, 1)
        pod("p", "n2")
        await expect_count(recorded.times, 2)
        for task in tasks:
            task.cancel()

    run_virtual(main())


def test_many_objects_that_are_there_are_queued_without_delay(
    server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_module, "OBJECTS_AT_ONCE", 2)
    for number in range(5):
        server.seed(PODS, {"metadata": {"name": f"p{number}", "namespace": "a"}})
    recorded = Recorded()

    async def main() -> None:
        reflector = Reflector(server.client(), PODS)
        watching = asyncio.create_task(reflector.run())
        await reflector.wait_for_sync()
        begun = asyncio.get_running_loop().time()
        recorded.controller.watch(reflector, own_key)
        working = asyncio.create_task(recorded.controller.run())
        await expect_count(recorded.times, 5)
        assert recorded.times == pytest.approx([begun] * 5, abs=0.1)
        for task in (watching, working):
            task.cancel()

    run_virtual(main())


def test_a_replica_that_waits_queues_nothing_and_begins_with_what_is_there(
    server: FakeApiServer,
) -> None:
    recorded = Recorded()

    def pod(name: str, node: str = "n1") -> None:
        metadata = {"name": name, "namespace": "a"}
        server.seed(PODS, {"metadata": metadata, "spec": {"nodeName": node}})

    async def main() -> None:
        reflector = Reflector(server.client(), PODS)
        controller = recorded.controller
        controller.watch(reflector, own_key)
        watching = asyncio.create_task(reflector.run())
        for name in ("p", "q", "r"):
            pod(name)
        await asyncio.sleep(10)
        pod("q", "n2")
        server.remove(PODS, "r", "a")
        controller.add(Key("a", "s"))
        await asyncio.sleep(10)
        assert (len(controller.queue), controller.queue.adds) == (0, 0)
        running = asyncio.create_task(controller.run())
        await expect_count(recorded.times, 2)
        pod("q", "n3")
        await expect_count(recorded.times, 3)
        controller.add(Key("a", "s"))
        await expect_count(recorded.times, 4)
        for task in (watching, running):
            task.cancel()

    run_virtual(main())


def test_the_states_before_and_after_a_change_both_name_keys(server: FakeApiServer) -> None:
    reconciled: list[str] = []

    async def reconcile(key: str) -> None:
        reconciled.append(key)

    def put(node: str) -> None:
        metadata = {"name": "p", "namespace": "a"}
        server.seed(PODS, {"metadata": metadata, "spec": {"nodeName": node}})

    async def main() -> None:
        reflector = Reflector(server.client(), PODS)
        controller: Controller[str] = Controller("nodes", reconcile)
        controller.watch(
            reflector,
            lambda pod: [pod["spec"]["nodeName"]],
            when=lambda change: change.object["spec"]["nodeName"] != "ignored",
        )
        tasks = [asyncio.create_task(part.run()) for part in (reflector, controller)]
        put("n1")
        await expect_value(lambda: reconciled, ["n1"])
        put("n2")
        await expect_value(lambda: reconciled, ["n1", "n1", "n2"])
        put("ignored")
        await asyncio.sleep(5)
        assert reconciled == ["n1", "n1", "n2"]
        for task in tasks:
            task.cancel()

    run_virtual(main())


def test_log_lines_name_the_object_that_is_reconciled() -> None:
    seen: list[str] = []

    def note() -> None:
        line = add_reconcile_context(None, "info", {})
        seen.append(f"{line['controller']} {line['object']}")

    async def rest() -> None:
        note()

    async def reconcile(_: Key) -> InBackground:
        note()
        return InBackground(rest)

    async def main() -> None:
        controller: Controller[Key] = Controller("test", reconcile)
        task = asyncio.create_task(controller.run())
        controller.queue.add(KEY)
        await expect_count(seen, 2)
        assert seen == ["test a/p", "test a/p"]
        assert add_reconcile_context(None, "info", {"event": "other"}) == {"event": "other"}
        controller.stop()
        await task

    run_virtual(main())


def test_reconciles_that_await_nothing_let_others_run_between_them() -> None:
    async def main() -> None:
        order: list[object] = []

        async def reconcile(key: Key) -> None:
            order.append(key)

        async def other() -> None:
            for _ in range(3):
                order.append("other")
                await asyncio.sleep(0)

        controller: Controller[Key] = Controller("test", reconcile)
        for number in range(100):
            controller.queue.add(Key("a", str(number)))
        running = asyncio.create_task(controller.run())
        await other()
        controller.stop()
        await running
        assert order.index("other", 2) < 10, "the Lease waited for all keys"

    run_virtual(main())


def test_the_earliest_of_several_requeues_counts() -> None:
    assert earliest(None, RequeueAfter(7), RequeueAfter(3), None) == RequeueAfter(3)
    assert earliest(None, None) is None
    assert earliest() is None


def test_the_rest_of_a_reconcile_decides_when_the_next_one_is() -> None:
    async def rest() -> RequeueAfter:
        return RequeueAfter(30)

    recorded = Recorded(InBackground(rest))

    async def body() -> None:
        await asyncio.sleep(100)
        assert recorded.times == pytest.approx([0, 30], abs=0.001)
        assert recorded.controller.results == {"requeue_after": 1, "success": 1}

    running(recorded, body)


def test_what_is_there_at_the_start_is_added_and_no_news(server: FakeApiServer) -> None:
    server.seed(PODS, {"metadata": {"name": "p", "namespace": "a"}})
    changes: list[tuple[str, bool]] = []

    def note(change: Change[Any]) -> list[Key]:
        changes.append((change.type, change.initial))
        return []

    async def main() -> None:
        reflector = Reflector(server.client(), PODS)
        watching = asyncio.create_task(reflector.run())
        await reflector.wait_for_sync()
        recorded = Recorded()
        recorded.controller.watch_changes(reflector, note)
        working = asyncio.create_task(recorded.controller.run())
        await expect_value(lambda: changes, [("ADDED", True)])
        server.seed(PODS, {"metadata": {"name": "q", "namespace": "a"}})
        await expect_value(lambda: changes, [("ADDED", True), ("ADDED", False)])
        for task in (watching, working):
            task.cancel()

    run_virtual(main())


def test_what_changes_overtakes_what_was_there_at_the_start(server: FakeApiServer) -> None:
    for number in range(5):
        server.seed(PODS, {"metadata": {"name": f"p{number}", "namespace": "a"}})
    seen: list[str] = []

    async def reconcile(key: Key) -> None:
        seen.append(key.name)
        await asyncio.sleep(1)

    async def main() -> None:
        reflector = Reflector(server.client(), PODS)
        watching = asyncio.create_task(reflector.run())
        await reflector.wait_for_sync()
        controller: Controller[Key] = Controller("test", reconcile)
        controller.watch(reflector, own_key)
        working = asyncio.create_task(controller.run())
        await expect_count(seen, 1)
        server.seed(PODS, {"metadata": {"name": "new", "namespace": "a"}})
        await expect_count(seen, 6)
        assert "new" in seen[1:3]
        for task in (watching, working):
            task.cancel()

    run_virtual(main())

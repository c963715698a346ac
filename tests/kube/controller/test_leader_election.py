"""Leader election of two candidates in virtual time, with all faults."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from kube.expectations import expect_true
from kubeshare.kube.controller.leader_election import LeaderElector, LeadershipLostError
from kubeshare.kube.resources import LEASES
from kubeshare.simulator.control import FakeApiServer, Fault, run_virtual


class Candidate:
    """An elector that works until it is ended, and the times at which it led."""

    def __init__(self, server: FakeApiServer, name: str, timeout: float = 15.0) -> None:
        self.elector = LeaderElector(
            server.client(timeout=timeout), "kube", "program", name, draw=lambda: 0.5
        )
        self.end = asyncio.Event()
        self.spans: list[tuple[float, float]] = []
        self.error: BaseException | None = None
        self.running = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            await self.elector.run(self._work)
        except LeadershipLostError as error:
            self.error = error

    async def _work(self) -> None:
        began = asyncio.get_running_loop().time()
        try:
            await self.end.wait()
        finally:
            self.spans.append((began, asyncio.get_running_loop().time()))

    @property
    def leading(self) -> bool:
        return self.elector.leading

    async def stop(self) -> None:
        self.running.cancel()
        await asyncio.wait([self.running])


def lease(server: FakeApiServer) -> dict[str, Any]:
    stored = server.stored(LEASES, "program", "kube")
    assert stored is not None
    spec: dict[str, Any] = stored["spec"]
    return spec


def now() -> float:
    return asyncio.get_running_loop().time()


async def expect_leading(candidate: Candidate, seconds: float = 60) -> None:
    await expect_true(lambda: candidate.leading, "leading", seconds)


async def expect_error(candidate: Candidate, seconds: float = 60) -> None:
    """The candidate has lost its leadership."""
    await expect_true(lambda: candidate.error is not None, "ended", seconds)


def never_two_at_once(*candidates: Candidate) -> None:
    spans = sorted(span for candidate in candidates for span in candidate.spans)
    for (_, end), (begin, _) in pairwise(spans):
        assert end <= begin


def test_one_of_two_leads_and_the_other_takes_over_after_the_release(server: FakeApiServer) -> None:
    async def main() -> None:
        first, second = Candidate(server, "first"), Candidate(server, "second")
        await expect_leading(first)
        await asyncio.sleep(600)
        assert first.leading
        assert not second.leading
        spec = lease(server)
        assert spec["holderIdentity"] == "first"
        assert spec["leaseDurationSeconds"] == 10
        assert spec["acquireTime"] < spec["renewTime"]
        assert spec["renewTime"].endswith("Z")
        first.end.set()
        let_go = now()
        await expect_leading(second)
        assert now() - let_go <= 4.4
        assert lease(server)["leaseTransitions"] == 1
        await second.stop()
        assert lease(server)["holderIdentity"] == ""
        never_two_at_once(first, second)

    run_virtual(main())


def test_the_lease_of_a_leader_that_was_killed_is_taken_after_its_duration(
    server: FakeApiServer,
) -> None:
    async def main() -> None:
        first = Candidate(server, "first")
        await expect_leading(first)
        server.inject(Fault.hang(), times=1)  # the release never arrives, as after kill -9
        server.change(LEASES, "program", "kube", lambda obj: obj["spec"].pop("renewTime"))
        await first.stop()
        killed = now()
        second = Candidate(server, "second")
        await expect_leading(second)
        assert 10 <= now() - killed <= 10.1
        await second.stop()

    run_virtual(main())


def test_a_leader_cut_off_from_the_server_stops_before_another_begins(
    server: FakeApiServer,
) -> None:
    async def main() -> None:
        cut = FakeApiServer()
        cut.storage = server.storage
        first = Candidate(cut, "first")
        await expect_leading(first)
        second = Candidate(server, "second")
        await asyncio.sleep(60)
        cut.down = True
        began = now()
        await expect_error(first)
        assert now() - began <= 8.1
        assert "not renewed for 8 s" in str(first.error)
        await expect_leading(second)
        assert now() - began <= 15
        await second.stop()
        never_two_at_once(first, second)

    run_virtual(main())


def test_a_hung_renewal_does_not_outlive_the_lease(server: FakeApiServer) -> None:
    async def main() -> None:
        cut = FakeApiServer()
        cut.storage = server.storage
        first = Candidate(cut, "first", timeout=1000)
        await expect_leading(first)
        second = Candidate(server, "second")
        await asyncio.sleep(20)
        cut.inject(Fault.hang(), times=1000)
        await expect_leading(second)
        assert first.error is not None
        await second.stop()
        never_two_at_once(first, second)

    run_virtual(main())


@pytest.mark.parametrize(
    "fault",
    [
        Fault.answer(409, "Conflict"),
        Fault.answer(409, "Conflict", after=True),
        Fault.answer(429, "TooManyRequests", retry_after=1),
        Fault.answer(500, "InternalError"),
        Fault.answer(500, "InternalError", after=True),
        Fault.reset(),
        Fault.reset(after=True),
        Fault.refuse(),
        Fault.hang(),
        Fault.duplicate(),
    ],
    ids=str,
)
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_no_single_fault_costs_the_leadership_or_makes_two(
    server: FakeApiServer, fault: Fault, number: int
) -> None:
    server.inject_at_write(number, fault)

    async def main() -> None:
        candidates = [Candidate(server, "first", timeout=3), Candidate(server, "second", timeout=3)]
        await expect_true(
            lambda: any(candidate.leading for candidate in candidates), "led by anyone"
        )
        leader = next(candidate for candidate in candidates if candidate.leading)
        for _ in range(60):
            await asyncio.sleep(1)
            assert sum(candidate.leading for candidate in candidates) <= 1
        assert leader.leading
        assert not leader.spans
        for candidate in candidates:
            await candidate.stop()
        never_two_at_once(*candidates)

    run_virtual(main())


def test_a_leader_stops_when_another_holds_its_lease(server: FakeApiServer) -> None:
    async def main() -> None:
        first = Candidate(server, "first")
        await expect_leading(first)
        server.change(
            LEASES, "program", "kube", lambda obj: obj["spec"].update(holderIdentity="thief")
        )
        await expect_error(first, seconds=5)
        assert "held by another" in str(first.error)
        assert lease(server)["holderIdentity"] == "thief"

    run_virtual(main())


def test_the_lease_of_another_is_not_released(server: FakeApiServer) -> None:
    async def main() -> None:
        first = Candidate(server, "first")
        await expect_leading(first)
        server.change(
            LEASES, "program", "kube", lambda obj: obj["spec"].update(holderIdentity="thief")
        )
        taken = lease(server)
        first.end.set()  # before a renewal finds out
        await asyncio.wait([first.running])
        assert first.error is None
        assert lease(server) == taken

    run_virtual(main())


@pytest.mark.parametrize(("stated", "waits"), [(3, 10), (30, 30)])
def test_a_lease_lasts_as_long_as_the_longer_of_both_durations(
    server: FakeApiServer, stated: int, waits: int
) -> None:
    spec = {"holderIdentity": "other", "leaseDurationSeconds": stated}
    server.seed(LEASES, {"metadata": {"name": "program", "namespace": "kube"}, "spec": spec})

    async def main() -> None:
        began = now()
        second = Candidate(server, "second")
        await expect_leading(second)
        assert waits <= now() - began <= waits + 0.1
        await second.stop()

    run_virtual(main())


def test_a_renewal_without_an_answer_leaves_time_for_a_second_one(server: FakeApiServer) -> None:
    async def main() -> None:
        first = Candidate(server, "first")
        await expect_leading(first)
        server.inject(Fault.hang(), verb="patch", times=1)
        await asyncio.sleep(60)
        assert first.leading
        assert first.error is None
        await first.stop()

    run_virtual(main())


def test_leading_and_waiting_cost_at_most_seventeen_requests_a_minute_each(
    server: FakeApiServer,
) -> None:
    async def main() -> None:
        first = Candidate(server, "first")
        await expect_leading(first)
        before = len(server.requests)
        await asyncio.sleep(600)
        leading = len(server.requests) - before
        second = Candidate(server, "second")
        await asyncio.sleep(600)
        waiting = len(server.requests) - before - 2 * leading
        assert leading <= 170
        assert waiting <= 170
        await first.stop()
        await second.stop()

    run_virtual(main())


def test_a_lease_deleted_by_hand_is_made_again(server: FakeApiServer) -> None:
    async def main() -> None:
        first = Candidate(server, "first")
        await expect_leading(first)
        server.remove(LEASES, "program", "kube")
        await asyncio.sleep(5)
        assert first.leading
        assert lease(server)["holderIdentity"] == "first"
        await first.stop()

    run_virtual(main())


def test_a_restart_with_the_same_identity_leads_at_once(server: FakeApiServer) -> None:
    async def main() -> None:
        first = Candidate(server, "first")
        await expect_leading(first)
        server.down = True
        await first.stop()
        server.down = False
        again = Candidate(server, "first")
        await expect_leading(again, seconds=1)
        await again.stop()

    run_virtual(main())


def test_the_failure_of_the_work_ends_the_leadership_and_releases(server: FakeApiServer) -> None:
    async def broken() -> None:
        await asyncio.sleep(1)
        raise RuntimeError("broken")

    async def main() -> None:
        elector = LeaderElector(server.client(), "kube", "program", "first")
        with pytest.raises(ExceptionGroup) as caught:
            await elector.run(broken)
        assert [str(error) for error in caught.value.exceptions] == ["broken"]
        assert lease(server)["holderIdentity"] == ""

    run_virtual(main())


def test_times_that_cannot_be_safe_are_refused(server: FakeApiServer) -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="retry < renew_deadline < duration"):
            LeaderElector(server.client(), "a", "b", "c", duration=10, renew_deadline=10)

    run_virtual(main())

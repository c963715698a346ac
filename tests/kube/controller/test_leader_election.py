"""Leader election of two candidates in virtual time, with all faults."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from kube.controller.candidate import (
    Candidate,
    expect_error,
    expect_leading,
    lease,
    never_two_at_once,
    now,
)
from kube.expectations import expect_true
from kubeshare.kube.controller.leader_election import LeaderElector, LeadershipLostError
from kubeshare.kube.resources import LEASES
from kubeshare.simulator.control import FakeApiServer, Fault, Request, run_virtual


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
        hung, second, third = [each.at for each in server.requests if each.verb == "patch"][:3]
        assert second - hung == pytest.approx(8 / 3 + 0.55, abs=0.01)
        assert third - second == pytest.approx(4, abs=0.01)
        await first.stop()

    run_virtual(main())


def test_a_renewal_whose_answer_was_lost_counts_from_its_beginning(server: FakeApiServer) -> None:
    async def main() -> None:
        first = Candidate(server, "first")
        await expect_leading(first)
        second = Candidate(server, "second")
        server.inject(Fault.hang(after=True), verb="patch", times=1)
        await expect_true(lambda: len(requests("patch")) == 1, "a renewal that is not answered")
        server.inject(Fault.slow(0.7), times=1000)  # too slow for a conflict, a read and a write
        await asyncio.sleep(60)
        assert first.leading
        assert not second.leading
        lost, following = [each.at for each in requests("patch")][:2]
        assert following - lost == pytest.approx(4, abs=0.01)
        await first.stop()
        await second.stop()
        never_two_at_once(first, second)

    def requests(verb: str) -> list[Request]:
        return [each for each in server.requests if each.verb == verb]

    run_virtual(main())


def test_a_renewal_that_was_never_carried_out_does_not_count(server: FakeApiServer) -> None:
    async def main() -> None:
        first = Candidate(server, "first")
        await expect_leading(first)
        began = now()
        server.inject(Fault.hang(), verb="patch", times=1000)
        await expect_error(first)
        assert now() - began <= 8.01

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


WALL = datetime(2026, 1, 1, tzinfo=UTC)


def elector(server: FakeApiServer, name: str, **more: Any) -> LeaderElector:
    return LeaderElector(
        server.client(), "kube", "program", name, wall_clock=lambda: WALL, draw=lambda: 0.5, **more
    )


async def lead(candidate: LeaderElector, seconds: float = 1.0) -> None:
    """Lead for so long, and release."""
    await candidate.run(lambda: asyncio.sleep(seconds))


def test_the_lease_says_who_leads_since_when_and_how_often_it_changed_hands(
    server: FakeApiServer,
) -> None:
    present = "2026-01-01T00:00:00.000000Z"

    async def main() -> None:
        first = elector(server, "first", annotations={"leader": "first"})
        async with asyncio.TaskGroup() as group:
            group.create_task(lead(first))
            await asyncio.sleep(0.5)
            assert lease(server) == {
                "holderIdentity": "first",
                "leaseDurationSeconds": 10,
                "acquireTime": present,
                "renewTime": present,
                "leaseTransitions": 0,
            }
            assert annotations(server) == {"leader": "first"}
        assert lease(server) == {
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "acquireTime": present,
            "renewTime": present,
            "leaseTransitions": 0,
        }
        server.change(LEASES, "program", "kube", lambda obj: noted(obj).update(mine="kept"))
        second = elector(server, "second", annotations={"leader": "second"})
        assert second.transitions == 0
        await lead(second)
        assert second.transitions == 1
        assert lease(server)["leaseTransitions"] == 1
        assert annotations(server) == {"leader": "second", "mine": "kept"}

    run_virtual(main())


def noted(obj: dict[str, Any]) -> dict[str, Any]:
    notes: dict[str, Any] = obj["metadata"]["annotations"]
    return notes


def annotations(server: FakeApiServer) -> dict[str, Any]:
    stored = server.stored(LEASES, "program", "kube")
    assert stored is not None
    return noted(stored)


def test_a_renewal_keeps_the_time_since_when_and_writes_no_annotations_again(
    server: FakeApiServer,
) -> None:
    async def main() -> None:
        first = elector(server, "first", annotations={"leader": "first"})
        await lead(first, 9)
        renewals = [each for each in server.requests if each.verb == "patch"]
        assert [each.at for each in renewals] == pytest.approx([4, 8, 9], abs=0.01)
        for each in renewals:
            assert [operation["path"] for operation in each.body] == [
                "/metadata/resourceVersion",
                "/spec",
            ]

    run_virtual(main())


def test_a_candidate_looks_twice_in_each_pause_and_at_the_end_of_a_lease(
    server: FakeApiServer,
) -> None:
    spec = {"holderIdentity": "other", "leaseDurationSeconds": 10}
    server.seed(LEASES, {"metadata": {"name": "program", "namespace": "kube"}, "spec": spec})

    async def main() -> None:
        await lead(elector(server, "second"))
        reads = [each.at for each in server.requests if each.verb == "get"][:4]
        pause = 2 * 2.2 * (0.85 + 0.15 / 2)
        assert reads == pytest.approx([0, pause, 2 * pause, 10.01], abs=0.005)

    run_virtual(main())


def test_a_leader_that_cannot_renew_says_why(server: FakeApiServer) -> None:
    async def main() -> None:
        candidate = elector(server, "first")
        server.inject(Fault.answer(500, "InternalError"), verb="patch", times=1000)
        with pytest.raises(LeadershipLostError) as lost:
            await lead(candidate, 60)
        assert str(lost.value) == (
            "lease kube/program not renewed for 8 s: "
            "patch leases kube/program: a fault of the script"
        )
        assert now() == pytest.approx(8, abs=0.01)
        tries = [each.at for each in server.requests if each.verb == "patch"]
        assert tries == pytest.approx([4 + 0.55 * number for number in range(8)], abs=0.01)
        assert not candidate.leading

    run_virtual(main())


def test_a_leader_without_answers_says_so(server: FakeApiServer) -> None:
    async def main() -> None:
        server.inject(Fault.hang(), verb="patch", times=1000)
        with pytest.raises(LeadershipLostError, match=r"not renewed for 8 s: no answer$"):
            await lead(elector(server, "first"), 60)

    run_virtual(main())


def test_a_leader_whose_lease_another_holds_says_so(server: FakeApiServer) -> None:
    async def main() -> None:
        async def taken() -> None:
            spec = {"holderIdentity": "other", "leaseDurationSeconds": 60}
            server.change(LEASES, "program", "kube", lambda obj: obj["spec"].update(spec))
            await asyncio.sleep(60)

        with pytest.raises(LeadershipLostError, match="lease kube/program is held by another"):
            await elector(server, "first").run(taken)
        assert lease(server)["holderIdentity"] == "other"

    run_virtual(main())


def test_a_release_without_an_answer_is_given_up(server: FakeApiServer) -> None:
    async def main() -> None:
        candidate = elector(server, "first")
        server.inject(Fault.hang(), verb="patch", times=1000)
        await lead(candidate)
        assert now() == pytest.approx(1 + 2.2, abs=0.01)
        assert lease(server)["holderIdentity"] == "first"

    run_virtual(main())


@pytest.mark.parametrize(
    "times",
    [
        {"retry": 8.0},
        {"retry": 8.0, "renew_deadline": 8.0},
        {"renew_deadline": 10.0},
        {"duration": 8.0},
    ],
)
def test_equal_times_are_not_safe_either(server: FakeApiServer, times: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"^a lease needs retry < renew_deadline < duration$"):
        elector(server, "first", **times)


def test_a_candidate_whose_write_came_too_late_does_not_lead(server: FakeApiServer) -> None:
    server.seed(LEASES, {"metadata": {"name": "program", "namespace": "kube"}, "spec": {}})
    server.inject(Fault.answer(409, "Conflict"), verb="patch")

    async def main() -> None:
        first = Candidate(server, "first")
        await expect_leading(first)
        assert lease(server)["holderIdentity"] == "first"

    run_virtual(main())

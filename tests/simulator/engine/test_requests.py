"""Requests of inference jobs: their latencies under shares of a GPU."""

import statistics
from random import Random

import msgspec
import pytest

from kubeshare.core.units import MICROS
from kubeshare.simulator.engine.requests import RequestQueue
from kubeshare.simulator.jobs import Job
from simulator.builders import Played, job


def server(name: str, rate: float, service_s: float, work: float = 2000, **asked: float) -> Job:
    plain = job(name, work=work, need=rate * service_s, **asked)  # type: ignore[arg-type]
    return msgspec.structs.replace(plain, service_s=service_s)


def queue(rate: float, service_s: float, work_s: float) -> tuple[RequestQueue, list[float]]:
    latencies: list[float] = []
    of = server("a", rate, service_s, work_s)
    return RequestQueue(of, 0, Random(1), latencies.append), latencies


def test_latencies_are_those_of_a_queue_with_fixed_service_times() -> None:
    found, latencies = queue(rate=25, service_s=0.01, work_s=4000)
    found.advance(0, 0.5)  # so a request takes 20 ms, and half of the share is in use
    found.end()
    assert len(latencies) == pytest.approx(100_000, rel=0.02)
    assert min(latencies) == pytest.approx(0.02)
    # M/D/1 at load .5: half of the requests wait, and the mean wait is half a service time.
    assert statistics.fmean(latencies) == pytest.approx(0.03, rel=0.02)
    assert sum(each > 0.02001 for each in latencies) / len(latencies) == pytest.approx(
        0.5, abs=0.02
    )


def test_a_request_is_served_at_the_speeds_of_all_its_time() -> None:
    found, latencies = queue(rate=1e-6, service_s=1, work_s=1e9)
    arrival = Random(1).expovariate(1e-6)
    found.advance(0, 1)
    found.advance(arrival + 0.5, 0)  # half is done; then nothing for a second
    found.advance(arrival + 1.5, 0.25)
    found.advance(arrival + 1e6, 1)
    assert latencies == [pytest.approx(0.5 + 1 + 0.5 / 0.25, abs=1e-6)]


def test_as_much_is_served_as_the_job_works() -> None:
    found, latencies = queue(rate=50, service_s=0.01, work_s=100)
    for second in range(1, 400):
        found.advance(second, 0.2)  # less than it needs: the queue grows
    found.end()
    assert len(latencies) == pytest.approx(5000, rel=0.05)
    assert max(latencies) == pytest.approx(150, rel=0.1)


@pytest.mark.parametrize(("limit", "p50_ms"), [(1, 10), (0.4, 25)])
def test_alone_a_request_takes_its_service_time_over_the_limit(limit: float, p50_ms: float) -> None:
    summary = Played([server("a", 4, 0.01, request=0.3, limit=limit)]).measured.summary(1, 0, 0)
    assert summary.requests == pytest.approx(8000, rel=0.05)
    assert 1000 * summary.latency_p50_s == pytest.approx(p50_ms, rel=0.02)
    assert summary.latency_p99_s > summary.latency_p50_s


def test_beside_another_it_takes_what_the_fair_share_leaves() -> None:
    # b uses .5 all the time, so a can have .5 while b runs: 20 ms.
    jobs = [
        server("a", 4, 0.01, request=0.3),
        job("b", work=2000, request=0.5, limit=0.5, need=0.5),
    ]
    summary = Played(jobs).measured.summary(1, 0, 0)
    assert 1000 * summary.latency_p50_s == pytest.approx(20, rel=0.02)


def test_a_slowdown_by_a_co_runner_is_in_the_latency() -> None:
    jobs = [
        msgspec.structs.replace(server("a", 4, 0.01, request=0.3), kind="A"),
        job("b", work=4000, request=0.5, limit=0.5, need=0.5, kind="B"),
    ]
    summary = Played(jobs, slowdowns={("A", "B"): 1.5}).measured.summary(1, 0, 0)
    assert 1000 * summary.latency_p50_s == pytest.approx(30, rel=0.02)


def test_requests_change_nothing_of_when_jobs_end() -> None:
    jobs = [job(name, need=0.4, request=0.3, limit=0.35) for name in "abc"]
    served = [msgspec.structs.replace(each, service_s=0.01) for each in jobs]
    assert Played(served).finished_at == Played(jobs).finished_at
    assert all(each.need_micros == 0.4 * MICROS for each in served)

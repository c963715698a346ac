"""Jobs over time: what is placed, how fast it goes, what waits, what is refused."""

import math
from random import Random

import msgspec
import pytest

from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand
from kubeshare.core.gang import Gang
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy
from kubeshare.core.units import GI, MICROS
from kubeshare.simulator.engine.host_room import HostCapacity
from kubeshare.simulator.engine.simulation import StartTimes
from kubeshare.simulator.errors import PolicyError, SimulationError
from kubeshare.simulator.jobs import FOREVER, HostRequest, Job
from kubeshare.simulator.systems import System, names
from simulator.builders import Played, job

HOST = HostCapacity(cpu_millis=4000, memory_bytes=8 * GI)


def test_a_job_alone_goes_as_fast_as_its_limit_lets_it() -> None:
    played = Played([job("a", work=60, request=0.3, limit=0.6, need=1)])
    assert played.finished_at == {"a": pytest.approx(100)}


def test_jobs_share_a_gpu_as_figure_6_of_the_paper_has_it() -> None:
    # A alone gets .6; from 50 s A and B get .5 each; from 110 s, A's end, B gets .6.
    a = job("a", work=60, request=0.3, limit=0.6, need=1)
    b = job("b", arrival=50, work=60, request=0.4, limit=0.6, need=1)
    played = Played([a, b])
    assert played.finished_at == {"a": pytest.approx(110), "b": pytest.approx(160)}
    used, _, active, _ = played.measured.series.integrals
    assert used == pytest.approx(60 + 60)
    assert active == pytest.approx(160)


def test_a_job_that_needs_little_leaves_the_rest_to_the_other() -> None:
    played = Played(
        [job("a", work=10, request=0.5, need=0.2), job("b", work=16, request=0.5, need=1)]
    )
    # b has .8 while a needs .2, and then all.
    assert played.finished_at == {"a": pytest.approx(10), "b": pytest.approx(18)}


def test_a_slowdown_between_kinds_comes_on_top_of_the_shares() -> None:
    jobs = [job("a", kind="A"), job("b", kind="B")]
    played = Played(jobs, slowdowns={("B", "A"): 2.0})
    # Half of b's work is left when a ends.
    assert played.finished_at == {"a": pytest.approx(10), "b": pytest.approx(15)}


def test_without_sharing_each_job_has_a_gpu_for_itself() -> None:
    jobs = [job("a", request=0.1), job("b", request=0.1)]
    assert Played(jobs, "whole").finished_at == {"a": 10, "b": 20}
    assert Played(jobs, "locality").finished_at == {"a": 10, "b": 10}


def test_a_job_of_several_gpus_goes_as_fast_as_its_slowest() -> None:
    # The pair has half of the first GPU while the other job runs there, and all afterwards.
    pair = job("pair", work=20, request=0.5, need=1, gpus=2)
    other = job("other", work=5, request=0.5, need=1)
    played = Played([pair, other], gpus=2)
    assert played.finished_at == {"other": pytest.approx(10), "pair": pytest.approx(25)}


def test_what_waits_is_placed_in_order_when_something_ends() -> None:
    jobs = [job(name, arrival=at, request=1) for at, name in enumerate("abc")]
    played = Played(jobs)
    assert played.placed_at == {"a": 0, "b": 10, "c": 20}
    assert list(played.measured.waits_s) == [0, 9, 18]


def test_a_gang_starts_together_or_waits() -> None:
    gang = Gang(name="g", min_available=2)
    jobs = [
        job("first", request=1),
        job("x", arrival=1, request=1, gang=gang),
        job("y", arrival=2, request=1, gang=gang),
    ]
    assert Played(jobs, gpus=2).placed_at == {"first": 0, "x": 10, "y": 10}


def test_a_job_of_higher_priority_evicts_one_that_allows_it_and_that_begins_anew() -> None:
    low = job("low", request=0.6, preemptible=True)
    kept = job("kept", request=0.4)
    high = job("high", arrival=4, request=0.6, priority=1)
    played = Played([low, kept, high])
    assert played.finished_at == {"kept": 10, "high": 14, "low": 24}
    assert played.measured.evicted == 1


def test_several_jobs_of_one_gpu_leave_it_at_once_for_one_of_higher_priority() -> None:
    low = [job(f"low-{at}", request=0.3, preemptible=True) for at in range(2)]
    kept = job("kept", request=0.4, need=1, work=10)
    waiting = job("waiting", arrival=2, request=0.3)
    high = job("high", arrival=4, request=0.6, priority=1)
    played = Played([*low, kept, waiting, high])
    assert played.measured.evicted == 2
    assert played.placed_at["high"] == 4
    assert len(played.ended) == 5


def test_a_slowed_job_keeps_its_share_in_use() -> None:
    jobs = [job("a", kind="A"), job("b", kind="B")]
    played = Played(jobs, slowdowns={("B", "A"): 2.0})
    assert played.measured.series.integrals[0] == pytest.approx(0.5 * 10 + 0.5 * 15)


def test_a_job_whose_limit_is_0_beside_others_waits_until_it_is_alone() -> None:
    alone = job("alone", work=10, request=0, limit=0, need=1)
    assert alone.demand is not None
    demand = msgspec.structs.replace(alone.demand, limit_alone_micros=MICROS)
    jobs = [msgspec.structs.replace(alone, demand=demand), job("other", arrival=4, work=5)]
    assert Played(jobs).finished_at == {"other": 9, "alone": pytest.approx(15)}


def test_labels_bind() -> None:
    apart = {"anti_affinity": "x"}
    jobs = [job("a", request=0.1, labels=apart), job("b", request=0.1, labels=apart)]
    assert Played(jobs).placed_at == {"a": 0, "b": 10}


def test_a_node_takes_no_more_than_its_cpu_and_memory() -> None:
    half = HostRequest(cpu_millis=2500, memory_bytes=GI)
    jobs = [job(name, request=0.1, host=half) for name in "ab"]
    jobs.append(job("cpus", gpus=0, host=half))
    played = Played(jobs, host=HOST)
    assert sorted(played.placed_at.values()) == [0, 10, 20]
    assert played.cluster.room is not None
    assert played.cluster.room.left("n1") == (4000, 8 * GI)


def test_several_gpus_take_the_cpu_of_their_node_once() -> None:
    most = HostRequest(cpu_millis=4000)
    played = Played([job("a", gpus=2, request=1, host=most)], gpus=2, host=HOST)
    assert played.finished_at == {"a": 10}


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (job("a", gpus=2), "2 GPUs asked, and no node has more than 1 that do"),
        (job("a", host=HostRequest(cpu_millis=5000)), "no node has cpu 5000m"),
        (job("a", host=HostRequest(models=frozenset(["T4"]))), "no node has cpu 0m"),
    ],
)
def test_what_can_never_fit_is_refused_with_the_reason(asked: Job, why: str) -> None:
    played = Played([asked, job("b")], host=HOST)
    (reason,) = played.measured.refused
    assert reason.startswith(why)
    assert played.finished_at == {"b": 10}


def test_reasons_for_refusals_are_bounded() -> None:
    jobs = [job(f"j{count}", gpus=count) for count in range(2, 40)]
    refused = Played(jobs).measured.refused
    assert refused.total() == 38
    assert refused["other reasons"] == 18


def test_a_pod_takes_longer_to_start_with_a_new_vgpu() -> None:
    start = StartTimes(native=1, existing=2, new=4)
    jobs = [job("a", request=0.1), job("b", request=0.1)]
    assert Played(jobs, start=start).finished_at == {"a": 14, "b": 12}
    assert Played(jobs, "whole", gpus=2, start=start).finished_at == {"a": 11, "b": 11}


def test_an_idle_vgpu_goes_when_the_pool_policy_says_so() -> None:
    start = StartTimes(existing=0, new=4)
    jobs = [job("a"), job("b", arrival=16, work=1), job("c", arrival=40, work=1)]
    kept = Played(jobs, start=start, keep_s=5)
    # a ends at 14; its vGPU is there at 16, and not at 40.
    assert kept.finished_at == {"a": 14, "b": 17, "c": 45}
    gone = Played(jobs, start=start)
    assert gone.finished_at == {"a": 14, "b": 21, "c": 45}
    assert not gone.cluster.ledger.devices
    assert gone.cluster.ledger.nodes["n1"].free


def test_a_job_without_end_holds_its_gpu() -> None:
    played = Played([job("a", work=FOREVER, request=1), job("b", arrival=3)])
    assert (played.simulation.running, played.simulation.waiting) == (1, 1)
    summary = played.measured.summary(1, 1, 1)
    assert (summary.finished, summary.jobs_per_minute) == (0, 0)
    assert summary.reserved_fraction == pytest.approx(1)


def test_jobs_have_to_arrive_in_order() -> None:
    with pytest.raises(SimulationError, match="b arrives before"):
        Played([job("a", arrival=2), job("b", arrival=1)])


def test_a_request_for_cpu_needs_nodes_with_cpu() -> None:
    with pytest.raises(SimulationError, match="the CPU and memory of the nodes are not given"):
        Played([job("a", host=HostRequest(cpu_millis=1))])


def raising(ledger: Ledger, demand: Demand) -> Decision:
    raise ZeroDivisionError("oh")


def stubborn(ledger: Ledger, demand: Demand) -> Decision:
    device = next(iter(ledger.devices))
    return Decision(outcome="bound", node="n1", devices=(device,), reasons={})


def elsewhere(ledger: Ledger, demand: Demand) -> Decision:
    return Decision(outcome="bound", node="n2", devices=("n2/0",), reasons={})


def silent(ledger: Ledger, demand: Demand) -> Decision:
    return None  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("decide", "words"),
    [
        (raising, "policy bad failed at a: ZeroDivisionError: oh"),
        (stubborn, "policy bad placed b where it does not fit: vGPU n1/0 over-committed"),
        (elsewhere, "policy bad placed a on n2, where it has no room"),
        (silent, "policy bad answered a with no Decision"),
    ],
)
def test_a_policy_that_misbehaves_is_named_and_refused(decide: Policy, words: str) -> None:
    some = HostRequest(cpu_millis=1000)
    jobs = [job("a", request=0.6, host=some), job("b", request=0.6, host=some)]
    bad = System(name="bad", policy=decide)
    with pytest.raises(PolicyError, match=words):
        Played(jobs, bad, owned=True, host=HOST)


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("seed", range(4))
def test_all_work_is_done_and_as_much_gpu_time_used_as_it_needs(name: str, seed: int) -> None:
    random, now, jobs = Random(seed), 0.0, []
    for number in range(120):
        now += random.expovariate(0.5)
        gpus = random.choice([1, 1, 1, 2])
        request = random.randint(1, 10) / 10 if gpus == 1 else 1  # the others are whole in Gaia
        need = random.choice([request, request / 2, 1])
        work = random.randint(1, 20)
        jobs.append(job(f"j{number}", now, work, request, need=need, gpus=gpus))
    played = Played(jobs, name, nodes=2, gpus=2, keep_s=random.choice([0, 3, math.inf]))
    assert len(played.ended) == len(jobs)
    used, reserved, active, waiting = played.measured.series.integrals
    needed = sum(
        each.work_s * each.need_micros / MICROS * each.demand.count
        for each in jobs
        if each.demand is not None
    )
    # Speeds are rounded to micros.
    assert used == pytest.approx(needed, rel=1e-4)
    assert waiting == pytest.approx(sum(played.measured.waits_s))
    assert used <= active + 1e-6
    assert reserved <= active + 1e-6
    assert all(device.idle for device in played.cluster.ledger.devices.values())
    assert all(
        each.finished_s - each.placed_s >= each.job.work_s - 1e-6 for each in played.ended.values()
    )


def test_the_same_seed_gives_the_same_run() -> None:
    jobs = [job(f"j{at}", arrival=at, request=0.3 + at % 3 / 10) for at in range(20)]
    first, second = Played(jobs, nodes=2), Played(jobs, nodes=2)
    assert first.finished_at == second.finished_at


def test_a_policy_says_itself_what_it_refuses() -> None:
    refused = Played([job("a", request=0.5, gpus=2)], "topology", gpus=2).measured.refused
    assert len(refused) == 1
    assert "the policy refuses" not in next(iter(refused))


def test_outdated_events_do_not_pile_up() -> None:
    # The speed of the long job changes with each start and end of a short one.
    jobs = [job("long", work=10_000, request=0.5, need=1)]
    jobs += [job(f"s{at}", arrival=at * 4, work=1, request=0.5, need=1) for at in range(1200)]
    played = Played(jobs)
    assert len(played.ended) == 1201
    assert len(played.simulation._events) < 1100


def test_a_pool_is_reviewed_once_however_often_jobs_leave() -> None:
    jobs = [job(f"j{at}", arrival=at, work=0.5, request=1) for at in range(1200)]
    played = Played(jobs, keep_s=10_000)
    assert len(played.ended) == 1200
    assert len(played.simulation._events) < 1100

"""What ``gradient`` chooses, and that labels bind under it."""

from collections.abc import Mapping

import pytest

from kubeshare.core.demand import NOTHING
from kubeshare.core.units import GI, MICROS
from kubeshare.simulator.baselines.fgd import Fragmentation, kinds_in
from kubeshare.simulator.baselines.node_rooms import Ask
from kubeshare.simulator.engine.host_room import HostCapacity
from kubeshare.simulator.gradient import policy
from kubeshare.simulator.gradient.policy import SCARCE, Gradient, bound_of, offered
from kubeshare.simulator.gradient.prices import Prices, find_prices
from kubeshare.simulator.jobs import FOREVER, HostRequest, Job
from simulator.builders import Played, job


def known(jobs: list[Job], gpus: int) -> Gradient:
    """The rank for a workload that is known."""
    return Gradient(kinds_in(jobs), offered(jobs, gpus))


@pytest.mark.parametrize(("share", "gpus"), [(0.5, 1), (1, 2)])
def test_gpus_are_usable_only_as_far_as_the_cpus_go(share: float, gpus: int) -> None:
    asked = HostRequest(cpu_millis=4000)
    jobs = [job("a", request=share, gpus=gpus, host=asked)]
    idle, size = [MICROS] * 4, round(share * gpus * MICROS)
    most = 4 * MICROS // size
    for cpu_millis, served in (
        (3999, 0),
        (4000, 1),
        (7999, 1),
        (4000 * most, most),
        (99_000, most),
    ):
        assert known(jobs, 4).of(idle, cpu_millis, "") == -served * size
    assert Fragmentation(kinds_in(jobs)).of(idle, 4000, "") == -4 * MICROS


def test_for_jobs_of_one_whole_gpu_all_are_usable_where_the_cpus_suffice_for_one() -> None:
    jobs = [job("a", request=1, host=HostRequest(cpu_millis=4000))]
    for cpu_millis, usable in ((3999, 0), (4000, 4), (99_000, 4)):
        assert known(jobs, 4).of([MICROS] * 4, cpu_millis, "") == -usable * MICROS


def test_cpus_count_in_whole_ones() -> None:
    jobs = [job("a", request=0.5, host=HostRequest(cpu_millis=1500))]
    for cpu_millis, served in ((1500, 0), (2000, 1), (2999, 1), (3000, 2)):
        assert known(jobs, 4).of([MICROS] * 4, cpu_millis, "") == -served * MICROS / 2


def test_jobs_of_one_class_with_different_cpus_count_by_how_often_they_occur() -> None:
    small, large = HostRequest(cpu_millis=1000), HostRequest(cpu_millis=6000)
    jobs = [job("a", host=small), job("b", host=small), job("c", host=large)]
    # Of two GPUs the small ones can use all. The CPUs suffice for one large one, of half a GPU.
    expected = 2 / 3 * 2 * MICROS + 1 / 3 * MICROS / 2
    assert known(jobs, 4).of([MICROS] * 2, 7000, "") == pytest.approx(-expected)


def test_prices_count_only_where_shares_are_scarce() -> None:
    halves = [job(f"half-{number}", request=0.5, work=FOREVER) for number in range(9)]
    assert known(halves, 2).prices is None
    wasteful = [job(f"w{number}", request=0.6, work=FOREVER) for number in range(9)]
    prices = known(wasteful, 2).prices
    assert prices is not None
    assert prices.bound == pytest.approx(0.6, abs=0.01)
    assert bound_of(wasteful, 2) == pytest.approx(0.6, abs=0.01)
    assert bound_of([*wasteful, job("ends", request=0.1)], 2) == 1


def test_a_share_goes_where_it_lowers_the_price_least() -> None:
    jobs = [job(f"j{number}", request=0.6, work=FOREVER) for number in range(9)]
    gradient, ask = known(jobs, 2), Ask(MICROS // 10, NOTHING, 1)
    # What is beside a share of .6 is worth nothing, and less than .6 is left of the whole one.
    beside, whole = (
        gradient.score(0.0, ask, [left]) for left in (4 * MICROS // 10, 6 * MICROS // 10)
    )
    assert beside < whole


def test_prices_are_sought_only_where_no_placement_is_known_that_fills_the_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sought: list[Mapping[int, float]] = []

    def find(offered: Mapping[int, float]) -> Prices:
        sought.append(offered)
        return find_prices(offered)

    monkeypatch.setattr(policy, "find_prices", find)
    Gradient({}, {MICROS // 2: 3.0})
    assert not sought
    # A third of the GPUs has no use for what is beside .7.
    scarce = {7 * MICROS // 10: 1.0, 3 * MICROS // 10: 0.66}
    assert Gradient({}, scarce).prices is not None
    assert sought == [scarce]
    # This fills nearly all, so no bound is less.
    nearly = {7 * MICROS // 10: 1.0, 3 * MICROS // 10: 0.95}
    assert find_prices(nearly).bound > SCARCE
    assert Gradient({}, nearly).prices is None
    assert sought == [scarce]


def test_labels_bind() -> None:
    labels = {"anti_affinity": "red"}
    jobs = [job(name, request=0.2, labels=labels) for name in "ab"]
    jobs += [job("c", request=0.2, labels={"exclusion": "x"}), job("d", request=0.2)]
    played = Played(jobs, "gradient", gpus=3)
    assert {name: played.placed_at[name] for name in "abcd"} == dict.fromkeys("abcd", 0)
    played = Played(jobs, "gradient", gpus=2)
    assert max(played.placed_at.values()) > 0


def test_an_affinity_label_keeps_jobs_on_one_gpu() -> None:
    together = {"affinity": "red"}
    jobs = [job(name, request=0.4, labels=together) for name in "abc"]
    played = Played(jobs, "gradient", gpus=3)
    assert sorted(played.placed_at.values()) == [0, 0, 10]


def test_jobs_that_end_are_offered_as_many_as_run_at_once() -> None:
    jobs = [job(f"j{number}", arrival=number, work=5, request=0.5) for number in range(11)]
    assert offered(jobs, 2) == {MICROS // 2: pytest.approx(11 * 5 / 10 / 2)}
    forever = [job("a", request=1, gpus=4, work=FOREVER)]
    assert offered(forever, 8) == {MICROS: 0.5}


def test_cpu_and_jobs_without_gpus_are_heeded() -> None:
    host = HostCapacity(cpu_millis=4000, memory_bytes=8 * GI)
    asked = HostRequest(cpu_millis=3000, memory_bytes=GI)
    jobs = [job("a", request=0.1, host=asked), job("b", gpus=0, host=asked)]
    assert sorted(Played(jobs, "gradient", host=host).placed_at.values()) == [0, 10]


def test_a_job_that_requests_no_compute_is_placed() -> None:
    jobs = [job("a", request=0, need=0.2), job("b", request=0.5), job("c", request=0, need=0.1)]
    assert set(Played(jobs, "gradient").placed_at.values()) == {0}

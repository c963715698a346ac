"""Latency-sensitive members are served promptly, within their requests and at no one's expense."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import samples
from core.token.services import Services
from core.token.simulation import GPU, MS, SECOND, Simulation
from kubeshare.core.token import QUOTA_NS, Amounts, Arbiter, Close, Open, Shut, Watch

PROMPT: Amounts = (300_000, 1_000_000, 0, True)
JOB: Amounts = (300_000, 1_000_000)

SHORTEST_NS = 5 * MS
DRAIN_MS = 10


def beside_a_job(prompt: Amounts = PROMPT, job: Amounts = JOB, since: int = SECOND) -> Arbiter:
    """`job` holds the GPU since so long; `prompt` has been idle for a second, and saved up."""
    arbiter = Arbiter()
    arbiter.add("prompt", {GPU: prompt}, 0)
    arbiter.add("job", {GPU: job}, 0)
    opened = arbiter.want("job", since)
    assert opened == [Open("job", GPU, since + QUOTA_NS), Watch("job", GPU)]
    return arbiter


def wait_ns(arbiter: Arbiter, now: int) -> int:
    """How long `prompt` waits from now on, where each drain takes no time."""
    actions, start = arbiter.want("prompt", now), now
    while Open not in {type(action) for action in actions if action.member == "prompt"}:
        closed = next((action for action in actions if isinstance(action, Close)), None)
        if closed is not None:
            actions = arbiter.drained(closed.member, GPU, now, now)
            continue
        deadline = arbiter.deadline()
        assert deadline is not None
        now = deadline
        actions = arbiter.tick(now)
    return now - start


def test_a_lease_ends_at_once_for_a_launch_of_a_latency_sensitive_member() -> None:
    arbiter = beside_a_job()
    now = SECOND + 30 * MS

    assert arbiter.want("prompt", now) == [Close("job", GPU)]
    now += MS
    assert arbiter.drained("job", GPU, now, now) == [
        Shut("job", GPU),
        Open("prompt", GPU, now + QUOTA_NS),
        Watch("prompt", GPU),
    ]


def test_the_holder_keeps_the_shortest_grant() -> None:
    arbiter = beside_a_job()

    assert arbiter.want("prompt", SECOND + 2 * MS) == []
    assert arbiter.deadline() == SECOND + SHORTEST_NS
    assert arbiter.tick(SECOND + SHORTEST_NS) == [Close("job", GPU)]


@pytest.mark.parametrize(
    ("prompt", "job"),
    [
        ((300_000, 1_000_000), JOB),
        ((0, 1_000_000, 0, True), JOB),
        ((5_000, 1_000_000, 0, True), JOB),
        (PROMPT, PROMPT),
    ],
    ids=["not asked for", "without a request", "too small a request", "of another prompt member"],
)
def test_a_lease_goes_on(prompt: Amounts, job: Amounts) -> None:
    arbiter = beside_a_job(prompt, job)

    assert wait_ns(arbiter, SECOND + 30 * MS) == 70 * MS


def test_the_lease_of_a_member_with_several_gpus_goes_on() -> None:
    arbiter = Arbiter()
    arbiter.add("prompt", {GPU: PROMPT}, 0)
    arbiter.add("gang", {GPU: JOB, "gpu-1": JOB}, 0)
    arbiter.add("neighbour", {"gpu-1": JOB}, 0)
    arbiter.want("gang", SECOND)

    assert arbiter.want("prompt", SECOND + 30 * MS) == []
    assert arbiter.deadline() == SECOND + QUOTA_NS


def test_a_lease_after_which_a_gang_is_served_goes_on() -> None:
    arbiter = Arbiter()
    arbiter.add("prompt", {GPU: PROMPT}, 0)
    arbiter.add("gang", {GPU: JOB, "gpu-1": JOB}, 0)
    arbiter.add("job", {GPU: (0, 1_000_000)}, 0)
    arbiter.add("neighbour", {"gpu-1": (0, 1_000_000)}, 0)
    arbiter.want("job", SECOND)
    arbiter.want("neighbour", SECOND)
    arbiter.want("gang", SECOND + MS)

    assert arbiter.want("prompt", SECOND + 30 * MS) == []


def test_a_gang_is_served_however_often_prompt_members_want_its_gpus() -> None:
    simulation = Services()
    for gpu in ("gpu-0", "gpu-1"):
        simulation.serve(
            f"service-{gpu}", 0.4, 1, every_ms=8, work_ms=1, latency_sensitive=True, gpu=gpu
        )
        simulation.join(f"job-{gpu}", 0.2, 1, gpus=(gpu,))
    simulation.join("gang", 0.4, 1, gpus=("gpu-0", "gpu-1"))

    shares = simulation.shares(20 * SECOND)

    assert shares["gang"] >= 0.37
    assert simulation.jobs["gang"].longest_wait_ns <= SECOND


def test_a_change_of_the_grant_begins_and_ends_it() -> None:
    arbiter = beside_a_job(JOB)
    arbiter.change("prompt", {GPU: PROMPT}, SECOND + 10 * MS)
    saved = arbiter.want("prompt", SECOND + 20 * MS)
    arbiter.gone("prompt", SECOND + 30 * MS)

    assert saved == []  # three milliseconds of its request, and the price is five
    assert arbiter.want("prompt", SECOND + 40 * MS) == [Close("job", GPU)]
    arbiter.gone("prompt", SECOND + 40 * MS)
    assert arbiter.drained("job", GPU, SECOND + 41 * MS, SECOND + 41 * MS) == [Shut("job", GPU)]
    arbiter.change("prompt", {GPU: JOB}, SECOND + 42 * MS)
    arbiter.want("job", SECOND + 43 * MS)
    assert arbiter.want("prompt", SECOND + 80 * MS) == []


def served(*, latency_sensitive: bool, jobs: tuple[float, ...], work_ms: float) -> Services:
    """Thirty seconds of a service with a request of .3 beside jobs that always have work."""
    simulation = Services(seed=1)
    for index, request in enumerate(jobs):
        simulation.join(f"job-{index}", request, 1, drain_ms=DRAIN_MS)
    simulation.serve(
        "service", 0.3, 1, every_ms=50, work_ms=work_ms, latency_sensitive=latency_sensitive
    )
    simulation.run(30 * SECOND)
    return simulation


@pytest.mark.parametrize("jobs", [(0.3, 0.3), (0.35, 0.35), (0.1,) * 7])
def test_a_service_waits_for_the_shortest_grant_and_a_drain(jobs: tuple[float, ...]) -> None:
    prompt = served(latency_sensitive=True, jobs=jobs, work_ms=5).waits_ns["service"]
    usual = served(latency_sensitive=False, jobs=jobs, work_ms=5).waits_ns["service"]

    assert max(prompt) <= SHORTEST_NS + DRAIN_MS * MS
    assert sum(usual) / len(usual) >= 8 * sum(prompt) / len(prompt)


def test_what_exceeds_the_request_waits_as_without() -> None:
    simulation = served(latency_sensitive=True, jobs=(0.35, 0.35), work_ms=150)

    waits = sorted(simulation.waits_ns["service"])
    assert waits[len(waits) // 2] >= 100 * MS
    assert simulation.longest_wait_ns() <= 700 * MS


def test_a_limit_holds() -> None:
    simulation = Services()
    simulation.join("job", 0.5, 1)
    simulation.serve("service", 0.1, 0.1, every_ms=5, work_ms=5, latency_sensitive=True)
    simulation.run(30 * SECOND)

    assert simulation.worked_ns["service"] <= 0.105 * 30 * SECOND


def test_where_all_ask_for_it_all_have_what_they_had() -> None:
    simulation = Simulation(seed=1)
    requests = {"a": 0.5, "b": 0.3, "c": 0.2}
    for name, request in requests.items():
        simulation.join(name, request, 1, latency_sensitive=True)
    simulation.run(5 * SECOND)

    shares = simulation.shares(20 * SECOND)

    assert all(abs(shares[name] - request) <= 0.02 for name, request in requests.items())


def test_prompt_launches_are_paid_for_from_the_request() -> None:
    """The shortest possible launches: without a price they would cost the jobs half of the GPU."""
    simulation = Services(seed=1)
    for name in ("a", "b"):
        simulation.join(name, 0.35, 1, drain_ms=DRAIN_MS)
    simulation.serve("service", 0.3, 1, every_ms=1, work_ms=0.1, latency_sensitive=True)
    simulation.run(5 * SECOND)

    shares = simulation.shares(20 * SECOND)

    assert min(shares["a"], shares["b"]) >= 0.35
    opened = [at for at, action in simulation.actions if action == Open("service", GPU, at)]
    assert all(later - earlier >= SHORTEST_NS for earlier, later in pairwise(opened))


@pytest.mark.parametrize("work", [(8, 1), (8, 0.1), (20, 5)])
def test_what_a_turn_wastes_is_not_taken_from_others(work: tuple[float, float]) -> None:
    shares = shares_of([(1, False, None), (1, True, work), (2, False, None)], seed=0)

    assert shares["0"] >= 0.25 - 0.02
    assert shares["2"] >= 0.5 - 0.02


members = st.tuples(
    st.integers(1, 8),  # parts of the GPU
    st.booleans(),  # whether it is latency-sensitive
    st.sampled_from([None, (1, 0.1), (8, 1), (20, 5), (100, 20), (300, 150)]),  # a service's work
)


@pytest.mark.slow
@pytest.mark.sampled
@settings(max_examples=samples.count(whole=60, sample=4), deadline=None)
@given(st.lists(members, min_size=2, max_size=6), st.integers(0, 2**32))
def test_every_job_has_its_request_whoever_is_latency_sensitive(
    mix: list[tuple[int, bool, tuple[float, float] | None]], seed: int
) -> None:
    """Or as much of it as beside the same services when none of them is."""
    shares = shares_of(mix, seed)
    usual = shares_of([(size, False, work) for size, _, work in mix], seed)

    parts = sum(size for size, _, _ in mix)
    requests = {str(index): size / parts for index, (size, _, _) in enumerate(mix)}
    jobs = [name for name, (_, _, work) in zip(requests, mix, strict=True) if work is None]
    assert all(shares[job] >= min(requests[job], usual[job]) - 0.03 for job in jobs)


def shares_of(
    mix: list[tuple[int, bool, tuple[float, float] | None]], seed: int
) -> dict[str, float]:
    """How long each of a mix of jobs and services has the GPU, whose requests are all of it."""
    simulation = Services(seed)
    parts = sum(size for size, _, _ in mix)
    for index, (size, prompt, work) in enumerate(mix):
        request = size / parts
        if work is None:
            simulation.join(f"{index}", request, 1, drain_ms=DRAIN_MS, latency_sensitive=prompt)
            continue
        every_ms, work_ms = work
        simulation.serve(
            f"{index}", request, 1, every_ms=every_ms, work_ms=work_ms, latency_sensitive=prompt
        )
    simulation.run(5 * SECOND)
    return simulation.shares(20 * SECOND)

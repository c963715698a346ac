"""What each baseline chooses, on clusters small enough to see why."""

from itertools import product

import pytest

from kubeshare.core.decision import commit
from kubeshare.core.ledger.device import FreeGpu
from kubeshare.core.units import GI, MICROS
from kubeshare.simulator.baselines.fgd import Fragmentation, kinds_in
from kubeshare.simulator.baselines.node_rooms import NodeRooms
from kubeshare.simulator.cluster import SimulatedNode, build_cluster
from kubeshare.simulator.engine.host_room import HostCapacity
from kubeshare.simulator.jobs import HostRequest, Job
from kubeshare.simulator.systems import Setting, system
from simulator.builders import GPU, Played, job

PUBLISHED = ("dot-product", "gpu-packing", "gpu-clustering", "gradient")


class Placed:
    """Jobs that were placed one after the other, none of which ends."""

    def __init__(self, policy: str, *jobs: Job, nodes: int = 1, gpus: int = 2) -> None:
        listed = [
            SimulatedNode(name=f"n{number}", gpus=gpus, kind=GPU) for number in range(1, nodes + 1)
        ]
        chosen = system(policy, Setting(7, listed, lambda _: jobs))
        self.ledger = build_cluster(listed, owned=True).ledger
        chosen.attach(self.ledger, None)
        self.at: list[tuple[str, ...] | None] = []
        for each in jobs:
            assert each.demand is not None
            demand = chosen.adapt(each.demand)
            decision = chosen.policy(self.ledger, demand)
            if decision.outcome == "bound":
                commit(self.ledger, demand, decision)
            self.at.append(decision.devices or None)


def shares(*requests: float) -> list[Job]:
    return [job(f"j{number}", request=request) for number, request in enumerate(requests)]


@pytest.mark.parametrize(
    ("policy", "last"), [("first-fit", "n1/0"), ("best-fit", "n1/1"), ("worst-fit", "n2/0")]
)
def test_a_fit_goes_by_what_is_left(policy: str, last: str) -> None:
    placed = Placed(policy, nodes=2)
    first_two = [("n1/0", 0.5), ("n1/1", 0.7)]
    for number, (device, request) in enumerate(first_two):
        demand = job(f"there-{number}", request=request).demand
        assert demand is not None
        placed.ledger.place(demand, device)
    chosen = system(policy, Setting(0, [], lambda _: ()))
    chosen.attach(placed.ledger, None)
    asked = job("asked", request=0.3).demand
    assert asked is not None
    assert chosen.policy(placed.ledger, asked).devices == (last,)


@pytest.mark.parametrize(
    "policy", ["first-fit", "best-fit", "worst-fit", "random", "fgd", "round-robin", *PUBLISHED]
)
def test_several_gpus_are_on_one_node_or_wait(policy: str) -> None:
    pair = [job(name, request=1, gpus=2) for name in "abc"]
    first, second, third = Placed(policy, *pair, nodes=2).at
    assert first is not None
    assert second is not None
    assert {each.partition("/")[0] for each in first} | {
        each.partition("/")[0] for each in second
    } == {"n1", "n2"}
    assert len(set(first + second)) == 4
    assert third is None


def test_random_depends_on_the_seed_alone() -> None:
    jobs = shares(*[0.1] * 8)
    assert Placed("random", *jobs, nodes=4).at == Placed("random", *jobs, nodes=4).at
    assert len(set(Placed("random", *jobs, nodes=4).at)) > 2


def test_round_robin_promises_a_gpu_more_than_it_has_as_in_figure_3() -> None:
    # The node has room for 1.8 of 2 GPUs, and its plugin hands them out in turn.
    at = Placed("round-robin", *shares(0.7, 0.1, 0.7, 0.3)).at
    assert at == [("n1/0",), ("n1/1",), ("n1/0",), ("n1/1",)]
    assert Placed("round-robin", *shares(0.7, 0.1, 0.7, 0.6)).at[-1] is None


def test_jobs_on_a_gpu_that_was_promised_too_often_are_slow() -> None:
    jobs = shares(0.7, 0.1, 0.7, 0.3)
    played = Played(jobs, "round-robin", gpus=2)
    # Two jobs that need .7 of one GPU get half of it each.
    assert played.finished_at["j0"] == pytest.approx(14)
    assert played.finished_at["j1"] == pytest.approx(10)
    assert Played(jobs, "locality", gpus=2).finished_at["j0"] == pytest.approx(10)


def test_baselines_heed_cpu_and_count_jobs_without_gpus() -> None:
    host = HostCapacity(cpu_millis=4000, memory_bytes=8 * GI)
    asked = HostRequest(cpu_millis=3000, memory_bytes=GI)
    jobs = [job("a", request=0.1, host=asked), job("b", gpus=0, host=asked)]
    for policy in (
        "first-fit",
        "best-fit",
        "worst-fit",
        "random",
        "fgd",
        "round-robin",
        *PUBLISHED,
    ):
        played = Played(jobs, policy, host=host)
        assert sorted(played.placed_at.values()) == [0, 10]


def naive_fragmentation(
    left: tuple[int, ...], cpu_millis: int, model: str, jobs: list[Job]
) -> float:
    """The definition of the paper, job by job."""
    total = 0.0
    for each in jobs:
        demand = each.demand
        fits = [] if demand is None else [gpu for gpu in left if gpu >= demand.request_micros]
        hosts = (
            demand is not None
            and len(fits) >= demand.count
            and cpu_millis >= each.host.cpu_millis
            and (not each.host.models or model in each.host.models)
        )
        total += sum(left) - (sum(fits) if hosts else 0)
    return total / len(jobs)


def test_the_fragmentation_is_that_of_the_definition() -> None:
    cpus = HostRequest(cpu_millis=2000)
    jobs = [
        job("a", request=0.3),
        job("b", request=0.3),
        job("c", request=0.6, host=cpus),
        job("d", request=1, gpus=2, host=HostRequest(models=frozenset(["T4"]))),
        job("e", gpus=0, host=cpus),
    ]
    fragmentation = Fragmentation(kinds_in(jobs))
    amounts = (0, 300_000, 500_000, 600_000, MICROS)
    for left in product(amounts, repeat=2):
        for cpu_millis, model in product((1999, 2000), ("T4", "A10")):
            naive = naive_fragmentation(left, cpu_millis, model, jobs)
            fast = fragmentation.of(list(left), cpu_millis, model)
            assert sum(left) + fast == pytest.approx(naive)


def test_fgd_leaves_whole_gpus_to_those_that_need_them() -> None:
    # Most jobs need a whole GPU: shares go together. In a workload of shares alike they may not.
    whole = [job(f"w{number}", request=1) for number in range(8)]
    placed = Placed("fgd", *shares(0.3, 0.3, 0.3), *whole, nodes=2).at
    assert len(set(placed[:3])) == 1


def test_a_changed_node_is_ranked_anew() -> None:
    jobs = shares(0.6)
    placed = Placed("best-fit", *jobs)
    rooms = placed.ledger.index(NodeRooms)
    stale: set[str] = set()
    rooms.follow(stale)
    placed.ledger.release("j0")
    assert stale == {"n1"}
    assert rooms.of("n1").micros == 2 * MICROS


def test_the_gpus_of_a_node_are_those_of_its_devices() -> None:
    placed = Placed("best-fit", *shares(0.6))
    ledger = placed.ledger
    rooms = ledger.index(NodeRooms)
    in_use, idle = sorted(
        (device for device in ledger.devices.values() if device.node == "n1"),
        key=lambda device: device.idle,
    )

    def gpus() -> dict[str, int]:
        return {gpu.id: gpu.micros for gpu in rooms.of("n1").gpus}

    assert gpus() == {in_use.id: 4 * MICROS // 10, idle.id: MICROS}
    ledger.remove_device(idle.id)
    assert gpus() == {in_use.id: 4 * MICROS // 10}
    ledger.release("j0")
    assert gpus() == {in_use.id: MICROS}
    ledger.add_device(idle)
    assert gpus() == {in_use.id: MICROS, idle.id: MICROS}
    assert [gpu.index for gpu in rooms.of("n1").gpus] == [0, 1]


def test_models_bind() -> None:
    nodes = [
        SimulatedNode(name="n1", gpus=1, kind=FreeGpu("A10", 16 * GI)),
        SimulatedNode(name="n2", gpus=1, kind=FreeGpu("T4", 16 * GI)),
    ]
    asked = job("a", labels={"model": "T4"}).demand
    assert asked is not None
    for policy in (
        "first-fit",
        "best-fit",
        "worst-fit",
        "random",
        "fgd",
        "round-robin",
        *PUBLISHED,
    ):
        chosen = system(policy, Setting(0, nodes, lambda _: ()))
        ledger = build_cluster(nodes, owned=True).ledger
        chosen.attach(ledger, None)
        assert chosen.policy(ledger, chosen.adapt(asked)).devices == ("n2/0",)


def test_gpu_packing_opens_neither_gpus_nor_nodes_without_need() -> None:
    # The third needs an idle GPU, and takes that of the node in use.
    at = Placed("gpu-packing", *shares(0.6, 0.3, 0.6, 0.6), nodes=2).at
    assert at == [("n1/0",), ("n1/0",), ("n1/1",), ("n2/0",)]


def test_gpu_clustering_keeps_shares_and_whole_gpus_apart() -> None:
    whole = job("whole", request=1)
    at = Placed("gpu-clustering", job("share", request=0.2), whole, *shares(0.9), nodes=2).at
    assert at == [("n1/0",), ("n2/0",), ("n1/1",)]


def test_dot_product_takes_the_node_that_is_fullest_of_what_is_asked_for() -> None:
    at = Placed("dot-product", *shares(0.9, 0.9, 0.9), nodes=2).at
    assert at == [("n1/0",), ("n1/1",), ("n2/0",)]

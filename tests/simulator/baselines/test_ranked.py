"""That ranking each shape of nodes once decides as ranking every node does."""

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest

from kubeshare.core.decision import commit
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import FreeGpu
from kubeshare.core.units import GI
from kubeshare.simulator.baselines import ranked, shapes
from kubeshare.simulator.baselines.fgd import Fragmentation, kinds_in
from kubeshare.simulator.baselines.fits import Fit, first_fit
from kubeshare.simulator.baselines.node_rooms import NodeRooms
from kubeshare.simulator.baselines.packing import (
    DotProduct,
    gpu_clustering,
    gpu_packing,
    kinds_of_jobs,
)
from kubeshare.simulator.baselines.ranked import Rank, RankedNodes
from kubeshare.simulator.cluster import SimulatedNode, build_cluster
from kubeshare.simulator.engine.host_room import HostCapacity
from kubeshare.simulator.gradient.policy import Gradient, offered
from kubeshare.simulator.jobs import FOREVER, HostRequest, Job
from kubeshare.simulator.systems import Setting, system
from simulator.baselines.every_node import EveryClass, EveryClassByCpus, best_of_every_node
from simulator.builders import job


@pytest.mark.parametrize("name", ["best-fit", "dot-product", "fgd", "first-fit", "gpu-packing"])
def test_a_job_without_gpus_goes_to_a_node_without_gpus(name: str) -> None:
    kind = FreeGpu("T4", 16 * GI)
    nodes = [
        SimulatedNode(
            name=node,
            gpus=gpus,
            kind=kind,
            host=HostCapacity(cpu_millis=cpu_millis, memory_bytes=8 * GI),
        )
        for node, gpus, cpu_millis in (("cpus", 0, 8000), ("gpus", 2, 2000))
    ]
    cluster = build_cluster(nodes, owned=True)
    chosen = system(name, Setting(0, nodes, lambda _: iter(())))
    chosen.attach(cluster.ledger, cluster.room)
    assert chosen.node_for is not None
    assert chosen.node_for(HostRequest(cpu_millis=4000, memory_bytes=GI)) == "cpus"


def random_jobs(random: Random, count: int) -> list[Job]:
    jobs = []
    for number in range(count):
        gpus = random.choice([1, 1, 1, 2, 4])
        request = random.choice([0.2, 0.3, 0.5, 0.7, 1]) if gpus == 1 else random.choice([0.5, 1])
        models = random.choice([frozenset(), frozenset(), frozenset(["T4"])])
        host = HostRequest(
            cpu_millis=random.choice([0, 1000, 1500, 4000]),
            memory_bytes=random.choice([0, GI, 3 * GI]),
            models=models,
        )
        name = random.choice(["affinity", "anti_affinity", "exclusion"])
        labels = {name: random.choice("xy")} if random.random() < 0.2 else {}
        jobs.append(
            job(f"j{number}", request=request, gpus=gpus, work=FOREVER, host=host, labels=labels)
        )
    return jobs


def random_nodes(random: Random) -> list[SimulatedNode]:
    return [
        SimulatedNode(
            name=f"n{number}",
            gpus=random.choice([1, 2, 4]),
            kind=FreeGpu(model, 16 * GI),
            host=HostCapacity(
                cpu_millis=random.choice([4000, 9000]), memory_bytes=8 * GI, model=model
            ),
        )
        for number, model in enumerate(random.choices(["T4", "A10"], k=14))
    ]


def forget_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "MAX_SHAPES", 3)
    monkeypatch.setattr(ranked, "MAX_RANKINGS", 5)
    monkeypatch.setattr(ranked, "MAX_RANKS", 40)


def alike(rank: Rank) -> Callable[..., tuple[Rank, Rank]]:
    return lambda *_: (rank, rank)


RANKS: dict[str, Callable[[list[Job], int], tuple[Rank, Rank]]] = {
    "first-fit": alike(first_fit),
    "best-fit": alike(Fit(worst=False, most_gpus=4, most_cpu_millis=9000)),
    "worst-fit": alike(Fit(worst=True, most_gpus=4, most_cpu_millis=9000)),
    "dot-product": alike(DotProduct(4, 9000)),
    "gpu-packing": alike(gpu_packing),
    "gpu-clustering": alike(gpu_clustering),
    "fgd": lambda jobs, _: (Fragmentation(kinds_in(jobs)), EveryClass(kinds_in(jobs))),
    "gradient": lambda jobs, gpus: (
        Gradient(kinds_in(jobs), offered(jobs, gpus)),
        EveryClassByCpus(kinds_in(jobs), offered(jobs, gpus)),
    ),
}


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("name", RANKS)
def test_decisions_are_those_of_ranking_every_node(
    name: str, monkeypatch: pytest.MonkeyPatch, *, bounded: bool
) -> None:
    if bounded:
        forget_often(monkeypatch)
    for seed in range(2):
        random = Random(seed)
        nodes, jobs = random_nodes(random), random_jobs(random, 90)
        fast, slow = RANKS[name](jobs, sum(node.gpus for node in nodes))
        cluster = build_cluster(nodes, owned=True)
        assert cluster.room is not None
        ledger, room = cluster.ledger, cluster.room
        policy = RankedNodes(fast, kinds_of_jobs if name == "gpu-clustering" else lambda _: None)
        policy.attach(ledger, room)
        placed: list[str] = []
        for each in jobs:
            room.requests[each.host.key] = each.host
            demand = allowed(each, room.candidates(each.host))
            decision = policy(ledger, demand)
            expected = best_of_every_node(slow, ledger, ledger.index(NodeRooms), demand)
            found = (decision.node, decision.devices) if decision.outcome == "bound" else None
            assert found == expected
            if found is not None:
                commit(ledger, demand, decision)
                placed.append(demand.uid)
            elif placed:
                for uid in random.sample(placed, len(placed) // 2):
                    placed.remove(uid)
                    ledger.release(uid)
        assert len(placed) > 3


def allowed(each: Job, nodes: frozenset[str]) -> Demand:
    assert each.demand is not None
    changed: dict[str, Any] = {"service": each.host.key, "nodes": nodes}
    return msgspec.structs.replace(each.demand, **changed)


def test_each_shape_is_ranked_once_for_a_kind_of_job() -> None:
    ranked_rooms = 0

    def rank(*given: Any) -> Any:
        nonlocal ranked_rooms
        ranked_rooms += 1
        return first_fit(*given)

    nodes = [SimulatedNode(name=f"n{at}", gpus=2, kind=FreeGpu("", GI)) for at in range(50)]
    ledger = build_cluster(nodes, owned=True).ledger
    policy = RankedNodes(rank)
    policy.attach(ledger, None)
    for number in range(200):
        demand = job(f"j{number}", request=0.5).demand
        assert demand is not None
        commit(ledger, demand, policy(ledger, demand))
    # A node goes through five states, and in the last nothing fits.
    assert ranked_rooms == 4


def test_candidates_follow_what_is_taken_and_given_back() -> None:
    nodes = [
        SimulatedNode(
            name=f"n{at}",
            gpus=1,
            kind=FreeGpu("", GI),
            host=HostCapacity(cpu_millis=2000, memory_bytes=2 * GI),
        )
        for at in range(3)
    ]
    room = build_cluster(nodes, owned=True).room
    assert room is not None
    one, two = HostRequest(cpu_millis=1000), HostRequest(cpu_millis=2000, memory_bytes=GI)
    assert room.candidates(two) == {"n0", "n1", "n2"}
    room.take("n1", one)
    assert room.candidates(two) == {"n0", "n2"}
    assert room.candidates(one) == {"n0", "n1", "n2"}
    room.take("n1", one)
    assert room.candidates(one) == {"n0", "n2"}
    room.give_back("n1", one)
    room.give_back("n1", one)
    assert room.candidates(two) == room.candidates(one) == {"n0", "n1", "n2"}

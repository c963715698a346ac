"""That ``gradient`` learns the workload from the demands that came."""

import msgspec
import pytest

from kubeshare.core.decision import commit
from kubeshare.core.demand import Demand
from kubeshare.core.fragmentation.measure import DemandClass
from kubeshare.core.units import GI, MICROS
from kubeshare.simulator.cluster import build_cluster, equal_nodes
from kubeshare.simulator.engine.host_room import HostCapacity
from kubeshare.simulator.gradient import recent
from kubeshare.simulator.gradient.policy import Gradient
from kubeshare.simulator.gradient.recent import RecentGradient, offered_by
from kubeshare.simulator.jobs import HostRequest
from simulator.builders import GPU, job


def test_what_is_offered_follows_how_often_each_kind_came() -> None:
    kinds = {
        DemandClass(micros=MICROS // 2): 2,
        DemandClass(micros=MICROS, count=2): 1,
        DemandClass(micros=0, count=0): 5,
    }
    # 1.3 GPUs are asked for, of each GPU: a third in halves, two thirds in whole ones.
    expected = {MICROS // 2: 2 * 1.3 / 3, MICROS: 2 * 1.3 / 3}
    assert offered_by(kinds) == pytest.approx(expected)
    assert offered_by({}) == {}


def test_it_learns_after_so_many_demands_whatever_becomes_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recent, "FIRST", 2)
    monkeypatch.setattr(recent, "WINDOW", 8)
    learnt: list[dict[DemandClass, int]] = []

    def note(policy: RecentGradient, rank: Gradient) -> None:
        del rank
        learnt.append(policy.recent.most_common())

    monkeypatch.setattr(RecentGradient, "rank_by", note)
    policy = RecentGradient()
    ledger = build_cluster(equal_nodes(1, 1, GPU), owned=True).ledger
    policy.attach(ledger, None)
    for number in range(24):
        asked = demand(f"j{number}", 0.5)
        for _ in range(2):  # those that wait are tried again
            decision = policy(ledger, asked)
        if decision.outcome == "bound":
            commit(ledger, asked, decision)
    assert [sum(each.values()) for each in learnt] == [2, 8, 16, 24]


def demand(name: str, request: float, service: str = "") -> Demand:
    made = job(name, request=request).demand
    assert made is not None
    return msgspec.structs.replace(made, service=service)


def test_what_it_has_learnt_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "FIRST", 8)
    policy = RecentGradient()
    ledger = build_cluster(equal_nodes(2, 2, GPU), owned=True).ledger
    policy.attach(ledger, None)
    ledger.place(demand("there", 0.3), "n2/0")
    assert policy(ledger, demand("before", 0.3)).devices == ("n1/0",)
    for number in range(8):
        policy(ledger, demand(f"w{number}", 1))
    # Whole GPUs came: a share goes beside another one.
    assert policy(ledger, demand("after", 0.3)).devices == ("n2/0",)


def test_the_cpus_of_a_job_are_of_its_kind() -> None:
    host = HostCapacity(cpu_millis=4000, memory_bytes=8 * GI)
    asked = HostRequest(cpu_millis=3000, memory_bytes=GI)
    cluster = build_cluster(equal_nodes(1, 1, GPU, host), owned=True)
    assert cluster.room is not None
    cluster.room.requests[asked.key] = asked
    policy = RecentGradient()
    policy.attach(cluster.ledger, cluster.room)
    policy(cluster.ledger, demand("a", 0.1, asked.key))
    [kind] = policy.recent.most_common()
    assert (kind.micros, kind.cpu_millis) == (MICROS // 10, 3000)

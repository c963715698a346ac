"""Nodes and vGPUs that could not be used are excluded for one requester for a while."""

from datetime import timedelta
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec import structs

from fakes.cluster.cluster import BORN
from kubeshare.api.configuration import DynamicConfiguration
from kubeshare.api.predicates.eligibility import Eligibility, Eligible
from kubeshare.api.types.v1 import ExcludedNode
from kubeshare.api.upgrades import Upgrades
from kubeshare.core.demand import Demand
from kubeshare.kube.conditions import timestamp
from kubeshare.kube.controller.controller import RequeueAfter
from kubeshare.scheduler import candidate_nodes
from kubeshare.scheduler.candidate_nodes import CandidateNodes
from kubeshare.scheduler.requesters.base import Requester

ALL = Eligible(frozenset({"n1", "n2", "n3"}), {"n4": "cordoned"})
DEMAND = Demand(uid="a", name="a", request_micros=1)
PAUSE = 60


class Cluster:
    """Three eligible nodes, and a clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = BORN
        settings = SimpleNamespace(set_aside_seconds=PAUSE)
        self.candidates = CandidateNodes(
            cast("Eligibility", SimpleNamespace(of=lambda _spec, _family: ALL)),
            cast("DynamicConfiguration", SimpleNamespace(now=lambda: settings)),
            cast("Upgrades", SimpleNamespace(filter=lambda _demand, eligible: eligible)),
            lambda: self.now,
        )

    def of(self, asks: Requester) -> Eligible:
        return self.candidates.of(asks, DEMAND)

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def requester(uid: str, *excluded: ExcludedNode) -> Requester:
    fields = SimpleNamespace(uid=uid, excluded=excluded, pod_spec={}, filter=lambda each: each)
    return cast("Requester", fields)


def test_an_excluded_node_is_no_candidate_of_that_requester_until_its_time_is_over() -> None:
    cluster, asks = Cluster(), requester("a")
    assert cluster.of(asks) == ALL
    assert cluster.candidates.next_retry([asks]) is None
    cluster.candidates.exclude(asks, "n1", "its GPU was taken")
    found = cluster.of(asks)
    assert found.nodes == {"n2", "n3"}
    until = timestamp(BORN + timedelta(seconds=PAUSE))
    assert dict(found.refusals) == {
        "n4": "cordoned",
        "n1": f"set aside until {until}: its GPU was taken",
    }
    assert cluster.of(requester("b")) == ALL
    cluster.wait(PAUSE - 1)
    assert cluster.candidates.next_retry([requester("b"), asks]) == RequeueAfter(1)
    cluster.wait(1)
    assert cluster.of(asks) == ALL
    assert cluster.candidates.next_retry([asks]) is None


def test_whether_one_node_is_a_candidate_is_found_without_the_others() -> None:
    cluster, looked_at = Cluster(), set[str]()

    def only_n1_and_n2(each: Eligible) -> Eligible:
        looked_at.update(each.nodes)
        return structs.replace(each, nodes=each.nodes & {"n1", "n2"})

    fields = SimpleNamespace(uid="a", excluded=(), pod_spec={}, filter=only_n1_and_n2)
    asks = cast("Requester", fields)
    cluster.candidates.exclude(asks, "n2", "its GPU was taken")
    found = {name: cluster.candidates.has(name, asks, DEMAND) for name in ("n1", "n2", "n4")}
    assert found == {"n1": True, "n2": False, "n4": False}
    assert looked_at == {"n1", "n2"}
    assert not cluster.candidates.has("n3", asks, DEMAND)


def test_a_further_exclusion_leaves_the_earlier_ones_and_the_next_for_the_same_is_longer() -> None:
    cluster, asks = Cluster(), requester("a")
    cluster.candidates.exclude(asks, "n1", "taken")
    cluster.wait(20)
    cluster.candidates.exclude(asks, "n2", "taken")
    assert cluster.of(asks).nodes == {"n3"}
    assert cluster.candidates.next_retry([asks]) == RequeueAfter(PAUSE - 20)
    cluster.wait(PAUSE)
    assert cluster.of(asks).nodes == {"n1", "n2", "n3"}
    cluster.candidates.exclude(asks, "n1", "taken")
    assert cluster.candidates.next_retry([asks]) == RequeueAfter(2 * PAUSE)


def test_one_vgpu_may_be_excluded_and_its_node_stays() -> None:
    cluster, asks = Cluster(), requester("a")
    cluster.candidates.exclude(asks, "n1", "it failed", gpuid="A")
    found = cluster.of(asks)
    assert found.nodes == ALL.nodes
    assert list(found.gpus) == [("n1", "A")]


def test_what_its_object_excludes_counts_as_well() -> None:
    cluster = Cluster()
    until = timestamp(BORN + timedelta(seconds=5))
    asks = requester("a", ExcludedNode(node="n2", until=until, message="full", times=1))
    cluster.candidates.exclude(asks, "n1", "taken")
    assert cluster.of(asks).nodes == {"n3"}
    assert cluster.candidates.next_retry([asks]) == RequeueAfter(5)


def test_the_oldest_requester_is_forgotten_where_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(candidate_nodes, "MAX_REQUESTERS", 2)
    cluster, many = Cluster(), [requester(uid) for uid in "abc"]
    for each in many[:2]:
        cluster.candidates.exclude(each, "n1", "taken")
    cluster.candidates.exclude(many[0], "n2", "taken")  # now it is the newest
    cluster.candidates.exclude(many[2], "n1", "taken")
    assert [len(cluster.of(each).nodes) for each in many] == [1, 3, 2]

"""Scores of nodes agree with decisions, on random states and on large clusters."""

import random
from types import ModuleType

import msgspec
import pytest

from core.builders import a_demand, a_device, a_gpu, a_pod
from core.clusters import POLICIES, Asker, Cluster
from kubeshare.core.decision import Decision, commit
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import policy
from kubeshare.core.policies.binpack import policy as binpack
from kubeshare.core.policies.locality import policy as locality
from kubeshare.core.policies.scoring import by_decisions, fits, scorer
from kubeshare.core.policies.topology import policy as topology
from robustness.prove import binpack as prove_binpack
from robustness.prove import locality as prove_locality
from robustness.prove import topology as prove_topology
from robustness.prove.engine import Trial, run
from robustness.prove.several_shares import SEVERAL_SHARES

MODULES = {"locality": locality, "binpack": binpack, "topology": topology}
TRIALS = (
    ("locality", prove_locality.LOCALITY),
    ("binpack", prove_binpack.BINPACK),
    ("topology", prove_topology.TOPOLOGY),
    *zip(MODULES, SEVERAL_SHARES, strict=True),
)
STATES, STATES_OF_SEVERAL = 1_500, 150
SEED = 20180801


def best_by_score(module: ModuleType, ledger: Ledger, demand: Demand) -> str | None:
    """The node with the least score; every node that fits by score must fit by decision."""
    nodes = sorted(ledger.nodes)
    scores = module.score(ledger, demand, nodes)
    for name in nodes:
        is_asked = demand.nodes is None or name in demand.nodes
        alone = msgspec.structs.replace(demand, nodes=frozenset([name]))
        is_bound = is_asked and module.decide(ledger, alone).outcome == "bound"
        is_fit = fits(module.score, ledger, demand, name)
        assert (name in scores) == is_bound == is_fit, (name, scores)
        if is_bound:
            assert module.score(ledger, demand, [name]) == {name: scores[name]}
    return min(scores, key=scores.__getitem__, default=None)


def compared(module: ModuleType, trial: Trial) -> Trial:
    """The trial with the best node by score as its slow side."""

    def slow(ledger: Ledger, demand: Demand) -> str | None:
        return best_by_score(module, ledger, demand)

    def short(decision: Decision) -> str | None:
        return decision.node

    return Trial(f"{trial.name}_by_score", module.decide, slow, short, trial.episode, branch)


def branch(ledger: Ledger, demand: Demand, decision: Decision) -> str:
    del ledger, demand
    return decision.outcome


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "trial"), TRIALS, ids=lambda each: each.name if isinstance(each, Trial) else "in"
)
def test_the_best_node_by_score_is_the_one_that_the_policy_chooses(name: str, trial: Trial) -> None:
    states = STATES_OF_SEVERAL if trial in SEVERAL_SHARES else STATES
    *_, seen = run(compared(MODULES[name], trial), states, SEED)
    assert seen.branches["bound"] > states // 20


@pytest.mark.parametrize(("name", "cluster", "demands"), POLICIES, ids=MODULES)
def test_scores_follow_what_happens_to_a_ledger(
    name: str, cluster: Cluster, demands: Asker
) -> None:
    source, module = random.Random(7), MODULES[name]
    for _ in range(30):
        ledger = cluster(source)
        for number in range(12):
            demand = demands(source, number)
            decision = module.decide(ledger, demand)
            assert best_by_score(module, ledger, demand) == decision.node
            if decision.outcome == "bound":
                commit(ledger, demand, decision)


@pytest.mark.parametrize("name", MODULES)
def test_a_node_that_comes_goes_or_fails_is_scored_so(name: str) -> None:
    score = scorer(name)
    demand = a_demand("p", "0", share_of_memory="0.5", proportional=True)
    ledger = Ledger([Node("n1")], [a_device("A"), a_device("B", node="n2")])
    assert set(score(ledger, demand, ["n1", "n2", "n3"])) == {"n1"}
    ledger.add_node(Node("n2"))
    assert set(score(ledger, demand, ["n1", "n2"])) == {"n1", "n2"}
    ledger.mark("A", healthy=False)
    assert set(score(ledger, demand, ["n1", "n2"])) == {"n2"}
    ledger.remove_node("n2")
    assert score(ledger, demand, ["n1", "n2"]) == {}
    ledger.mark("A", healthy=True)
    assert set(score(ledger, demand, ["n1", "n2"])) == {"n1"}
    ledger.remove_device("A")
    assert score(ledger, demand, ["n1", "n2"]) == {}


def test_a_policy_of_another_package_is_scored_by_its_decisions() -> None:
    ledger = Ledger([Node("n1"), Node("n2"), Node("n3")], [a_gpu("n1", 0), a_gpu("n2", 0, 500)])
    demand = a_pod("p", 100)
    expected = min(scorer("binpack")(ledger, demand, ledger.nodes))
    scores = by_decisions(policy("binpack"))(ledger, demand, ledger.nodes)
    assert scores == {"n1": (True,), "n2": (False,)}
    assert expected == "n1"

"""The locality index, however it came to be as it is, is as one that is made anew."""

import random

import msgspec
import pytest

from core.builders import a_demand, a_device, a_holder, a_node
from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import FreeGpu
from kubeshare.core.ledger.index.gpu_kinds import GpuKinds
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies.locality.index import LocalityIndex
from kubeshare.core.policies.locality.policy import decide
from robustness.prove.engine import narrow_trees, play
from robustness.prove.locality import LOCALITY


def contents(index: LocalityIndex) -> object:
    """All that an index holds but for how its trees have grown."""
    groups = {
        kind: {group: bool(tree) for group, tree in trees.items()}
        for kind, trees in index._trees._trees.items()
    }
    homes = {kind: nodes for kind, nodes in index._free_gpu_nodes._sorted.items() if nodes}
    return dict(index._on_node), groups, homes


@pytest.mark.slow
def test_it_holds_what_one_that_is_made_anew_holds() -> None:
    def checked(ledger: Ledger, demand: Demand) -> Decision:
        assert contents(ledger.index(LocalityIndex)) == contents(LocalityIndex(ledger))
        return decide(ledger, demand)

    trial = msgspec.structs.replace(LOCALITY, fast=checked)
    source = random.Random(5)
    with narrow_trees():
        for _ in range(15):
            assert play(trial, trial.episode(source))


def test_a_kind_of_gpu_that_nobody_has_any_more_leaves_nothing_behind() -> None:
    ledger = Ledger([a_node()], [a_device("A", model="V100"), a_device("B", model="A100")])
    index, kinds = ledger.index(LocalityIndex), ledger.index(GpuKinds)
    ledger.remove_device("B")
    assert [kind.model for kind in kinds.kinds] == ["V100"]
    assert [model for model, _ in index._trees._trees] == ["V100"]


def test_a_gpu_whose_holders_disagree_about_exclusion_takes_nobody() -> None:
    mixed = a_device("A", a_holder("p", "0.1"), a_holder("q", "0.1", exclusion="e"))
    ledger = Ledger([a_node()], [mixed])
    assert decide(ledger, a_demand("r", "0.1")).outcome == "pending"
    ledger.release("q")
    assert decide(ledger, a_demand("r", "0.1")).devices == ("A",)


def test_a_gpu_with_as_many_holders_as_may_be_takes_another_when_one_leaves() -> None:
    holders = (a_holder(f"q{number}", "0") for number in range(128))
    ledger = Ledger([a_node()], [a_device("A", *holders)])
    assert decide(ledger, a_demand("p", "0.1")).outcome == "pending"
    ledger.release("q7")
    assert decide(ledger, a_demand("p", "0.1")).devices == ("A",)


def test_a_device_may_be_known_before_its_node() -> None:
    ledger = Ledger(devices=[a_device("A")])
    assert decide(ledger, a_demand("p")).outcome == "pending"
    ledger.add_node(a_node())
    assert decide(ledger, a_demand("p")).devices == ("A",)
    ledger.remove_node("n1")
    assert decide(ledger, a_demand("p")).outcome == "pending"


def test_a_new_vgpu_is_opened_where_the_fewest_gpus_are_free() -> None:
    ledger = Ledger([a_node("n10", free=2), a_node("n2", free=2), a_node("n3", free=3)])
    demand = a_demand("p", memory=1)
    assert decide(ledger, demand).node == "n2"
    ledger.set_free("n3", a_node(free=1).free)
    assert decide(ledger, demand).node == "n3"
    ledger.set_free("n3", (FreeGpu("A100", 1),))
    assert decide(ledger, demand).node == "n2"
    assert decide(ledger, a_demand("p", memory=1, nodes=frozenset(["n3", "n10"]))).node == "n10"

"""Which nodes a pod may go to: found anew only when a node changes in what counts."""

from typing import Any

import pytest

from kubeshare.api.predicates import eligibility
from kubeshare.api.predicates.eligibility import Eligibility
from kubeshare.api.types.core_v1 import NODES, Node, NodeSpec, NodeStatus, Taint
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.meta import Condition, Key, ObjectMeta
from kubeshare.simulator.control import FakeApiServer

READY = Condition(type="Ready", status="True")


def node(name: str, version: int = 1, **spec: Any) -> Node:
    status = NodeStatus(conditions=(spec.pop("ready", READY),), allocatable={"cpu": version})
    metadata = ObjectMeta(
        name=name, uid=name, resource_version=str(version), labels=spec.pop("labels", {})
    )
    return Node(metadata=metadata, spec=NodeSpec(**spec), status=status)


class Nodes:
    """The nodes' watch, driven by the test."""

    def __init__(self, *nodes: Node) -> None:
        self._reflector: Reflector[Node] = Reflector(FakeApiServer().client(), NODES)
        self.eligibility = Eligibility(self._reflector)
        for each in nodes:
            self.watched(each)

    def watched(self, changed: Node) -> None:
        self._reflector._notify(self._reflector.store.put(changed))

    def gone(self, name: str) -> None:
        self._reflector._notify(self._reflector.store.remove(Key("", name)))


def test_the_answer_is_remembered_while_nodes_give_signs_of_life_only() -> None:
    nodes = Nodes(node("a"), node("b", unschedulable=True))
    first = nodes.eligibility.of({})
    assert first.nodes == {"a"}
    assert first.refusals == {"b": "cordoned"}
    nodes.watched(node("a", 2))
    assert nodes.eligibility.of({}).nodes is first.nodes


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"unschedulable": True}, "cordoned"),
        ({"ready": Condition(type="Ready", status="Unknown")}, "not ready"),
        ({"taints": (Taint(key="gone", effect="NoExecute"),)}, "taint gone is not tolerated"),
        ({"labels": {"zone": "2"}}, "without the label zone=1 of its nodeSelector"),
    ],
)
def test_a_node_that_changes_in_what_counts_is_looked_at_again(
    change: dict[str, Any], refusal: str
) -> None:
    spec = {"nodeSelector": {"zone": "1"}}
    nodes = Nodes(node("a", labels={"zone": "1"}))
    assert nodes.eligibility.of(spec).nodes == {"a"}
    nodes.watched(node("a", 2, **({"labels": {"zone": "1"}} | change)))
    assert nodes.eligibility.of(spec).refusals == {"a": refusal}


def test_a_node_that_comes_or_goes_is_known_at_once() -> None:
    nodes = Nodes(node("a"))
    assert nodes.eligibility.of({}).nodes == {"a"}
    nodes.watched(node("b"))
    assert nodes.eligibility.of({}).nodes == {"a", "b"}
    nodes.gone("a")
    assert nodes.eligibility.of({}).nodes == {"b"}


def test_pods_that_ask_for_the_same_share_an_answer_and_others_do_not() -> None:
    nodes = Nodes(node("a", taints=(Taint(key="gpu", effect="NoSchedule"),)))
    tolerant = {"tolerations": [{"key": "gpu", "operator": "Exists"}]}
    assert nodes.eligibility.of(tolerant).nodes == {"a"}
    again = nodes.eligibility.of({**tolerant, "containers": []})
    assert again.nodes is nodes.eligibility.of(tolerant).nodes
    assert not nodes.eligibility.of({}).nodes


@pytest.mark.parametrize("bound", ["MAX_CACHED", "MAX_CACHED_NAMES"])
def test_a_bounded_number_of_answers_is_remembered(
    bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eligibility, bound, 8)
    nodes = Nodes(*(node(f"n{each}", labels={f"pair-{each // 2}": "x"}) for each in range(40)))
    for number in range(20):
        assert len(nodes.eligibility.of({"nodeSelector": {f"pair-{number}": "x"}}).nodes) == 2
    assert len(nodes.eligibility._known) == (8 if bound == "MAX_CACHED" else 4)


def test_kinds_with_the_same_nodes_keep_their_names_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eligibility, "MAX_CACHED_NAMES", 8)
    nodes = Nodes(*(node(f"n{each}") for each in range(6)), node("b", unschedulable=True))
    kinds = [{"tolerations": [{"key": f"team-{each}"}]} for each in range(20)]
    first, *others = [nodes.eligibility.of(kind).nodes for kind in kinds]
    assert len(first) == 6
    assert all(each is first for each in others)
    assert all(nodes.eligibility.of(kind).nodes is first for kind in kinds)
    assert len(nodes.eligibility._known) == 20


def test_a_thousand_different_selectors_look_at_each_node_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = []
    refusal = eligibility._refusal

    def counting(node: Node, pod_spec: dict[str, Any]) -> str:
        looked.append(node.metadata.name)
        return refusal(node, pod_spec)

    monkeypatch.setattr(eligibility, "_refusal", counting)
    nodes = Nodes(*(node(f"n{each}", labels={"host": f"h{each}"}) for each in range(1000)))
    for _ in range(2):
        for each in range(1000):
            found = nodes.eligibility.of({"nodeSelector": {"host": f"h{each}"}})
            assert found.nodes == {f"n{each}"}
    assert len(looked) == 1000
    assert "n2" in found.refusals

"""What each policy says of GPUs and nodes that were passed over, word by word and in order."""

from typing import Any

import pytest

from core.builders import GPU_MEMORY, a_demand, a_device, a_holder, a_node
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import policy
from kubeshare.core.policies.topology.reasons import _difference
from kubeshare.core.topology import Level, nvlink, read_notation
from kubeshare.core.topology.selection import FragmentScore, Score, SingularScore
from kubeshare.core.topology.subsets import LinkScore

V100, A100 = FreeGpu("V100", GPU_MEMORY), FreeGpu("A100", GPU_MEMORY)
PROPORTIONAL: dict[str, Any] = {"share_of_memory": "0.3", "proportional": True}


def nodes(**free: int) -> list[Node]:
    return [Node(name, (V100,) * number) for name, number in free.items()]


def labelled(device_id: str, request: str, *, node: str = "n1", memory: int = 0) -> Device:
    holder = a_holder(f"on-{device_id}", request, memory=memory, affinity="red")
    return a_device(device_id, holder, node=node, model="V100")


@pytest.mark.parametrize(
    ("name", "ledger", "demand", "node", "expected"),
    [
        pytest.param(
            "locality",
            Ledger(nodes(n1=3, n2=2, n3=1, n4=2, n9=0), []),
            a_demand("p", count=2),
            "n2",
            {
                "n1": "those on n2 fit better or come first",
                "n3": "1 suitable GPUs of one model, 2 asked",
                "n4": "those on n2 fit better or come first",
                "n9": "no free GPU",
            },
            id="new ones open where the fewest are free",
        ),
        pytest.param(
            "locality",
            Ledger(
                nodes(n1=2, n9=0, n10=0),
                [
                    a_device("A", a_holder("x", "0.9")),
                    a_device("B", node="n10"),
                    a_device("C", node="n10"),
                ],
            ),
            a_demand("p", count=2, nodes=frozenset(["n1"])),
            "n1",
            {
                "n1/A": "compute 0.1 left, 0.5 asked",
                "n9": "not among the nodes asked for",
                "n10": "not among the nodes asked for",
            },
            id="of nodes that were not asked for no GPU is named",
        ),
        pytest.param(
            "locality",
            Ledger(
                [Node("n1", (V100, A100)), Node("n2", (V100,), kinds=frozenset([V100]), total=2)],
                [a_device("A", a_holder("x", "0.9"), node="n2", model="V100")],
            ),
            a_demand("p", count=2),
            None,
            {
                "n2/A": "compute 0.1 left, 0.5 asked",
                "n1": "1 suitable GPUs of one model, 2 asked",
                "n2": "1 suitable GPUs of one model, 2 asked",
            },
            id="two models are not one",
        ),
        pytest.param(
            "locality",
            Ledger(nodes(n1=2, n2=0), [labelled("A", "0.7"), labelled("B", "0.7", node="n2")]),
            a_demand("p", affinity="red", count=2),
            None,
            {
                "n1/A": "compute 0.3 left, 0.5 asked",
                "n2/B": "compute 0.3 left, 0.5 asked",
                "n1": "affinity red is on n1/A, n2/B",
                "n2": "affinity red is on n1/A, n2/B",
            },
            id="several go where the label is",
        ),
        pytest.param(
            "locality",
            Ledger(
                nodes(n1=3, n2=0),
                [
                    *(a_device(name, node="n1") for name in "AB"),
                    *(a_device(name, node="n2") for name in "CD"),
                ],
            ),
            a_demand("p", count=2),
            "n1",
            {
                "n2/C": "fits, but those on n1 fit better or come first",
                "n2/D": "fits, but those on n1 fit better or come first",
            },
            id="what is free does not matter where nothing is opened",
        ),
        pytest.param(
            "locality",
            Ledger(
                nodes(n1=0),
                [
                    labelled("A", "0.2", memory=300),
                    labelled("B", "0.2", memory=100),
                    labelled("C", "0.2", memory=200),
                ],
            ),
            a_demand("p", "0.1", affinity="red", count=2),
            "n1",
            {"n1/A": "fits, but those on n1 fit better or come first"},
            id="of those with the label the emptiest",
        ),
        pytest.param(
            "locality",
            Ledger(nodes(n1=1), [labelled("10", "0.7"), labelled("9", "0.7"), a_device("C")]),
            a_demand("p", affinity="red"),
            None,
            {
                "n1/9": "compute 0.3 left, 0.5 asked",
                "n1/10": "compute 0.3 left, 0.5 asked",
                "n1/C": "affinity red is on n1/9, n1/10",
                "n1": "affinity red is on n1/9, n1/10",
            },
            id="all who have the label are named",
        ),
        pytest.param(
            "locality",
            Ledger(nodes(n1=1, n2=2), [labelled("A", "0.1")]),
            a_demand("p", affinity="red", device_id="mine"),
            "n1",
            {"n1/A": "vGPU mine is asked for", "n2": "2 free GPUs, and n1 has 1"},
            id="a new id goes before a label",
        ),
        pytest.param(
            "locality",
            Ledger(nodes(n1=0), [labelled("A", "0.5"), labelled("B", "0.3"), labelled("C", "0.2")]),
            a_demand("p", "0.1", affinity="red", count=2),
            "n1",
            {"n1/A": "fits, but those on n1 fit better or come first"},
            id="of those with the label the ones with the most compute left",
        ),
        pytest.param(
            "locality",
            Ledger(nodes(n1=1), [labelled("A", "0.7"), a_device("C", a_holder("x", "0.9"))]),
            a_demand("p", affinity="red", device_id="C"),
            None,
            {
                "n1/A": "vGPU C is asked for",
                "n1/C": "compute 0.1 left, 0.5 asked",
                "n1": "vGPU C is asked for",
            },
            id="an id goes before a label",
        ),
        pytest.param(
            "locality",
            Ledger(
                nodes(n1=0),
                [
                    a_device(
                        "A",
                        a_holder("r", "0.1", affinity="red"),
                        a_holder("s", "0.1", affinity="blue"),
                    ),
                    a_device("C"),
                ],
            ),
            a_demand("p", "0.1"),
            "n1",
            {"n1/A": "fits, but has affinity blue, red, and n1/C has none"},
            id="all labels of a GPU are named",
        ),
        pytest.param(
            "binpack",
            Ledger(nodes(n10=0, n9=0, n2=0), [a_device("A", node="n2"), a_device("B", node="n9")]),
            a_demand("p", "0", nodes=frozenset(["n2"]), **PROPORTIONAL),
            "n2",
            {
                "n9": "not among the nodes asked for",
                "n10": "not among the nodes asked for",
            },
            id="nodes come in their natural order",
        ),
        pytest.param(
            "binpack",
            Ledger(
                nodes(n1=0),
                [
                    a_device(name, a_holder(f"on-{name}", "0.1", memory=memory))
                    for name, memory in (("10", 100), ("9", 100), ("8", 50))
                ],
            ),
            a_demand("p", "0", count=2, **PROPORTIONAL),
            "n1",
            {"n1/8": "fits, but n1/9, n1/10 fit closer or come first"},
            id="GPUs come in their natural order",
        ),
        pytest.param(
            "topology",
            Ledger(
                nodes(n1=0, n10=0, n9=0),
                [
                    a_device("A", a_holder("x", "0"), a_holder("y", "0")),
                    a_device("B", node="n7"),
                ],
            ),
            a_demand("p", "1", nodes=frozenset(["n1", "n7", "n9"])),
            None,
            {
                "n1/A": "held by x, y, and a whole GPU is asked",
                "n7/B": "node n7 is not known",
                "n1": "no free GPU",
                "n9": "no GPU",
                "n10": "not among the nodes asked for",
            },
            id="all holders of a GPU are named",
        ),
        pytest.param(
            "topology",
            Ledger(nodes(n10=0, n9=0), [a_device("A", node="n10"), a_device("B", node="n9")]),
            a_demand("p", "1"),
            "n9",
            {"n10/A": "idle, but n9/B is as good, on a node with less left or first by name"},
            id="nodes that are alike go by their natural order",
        ),
        pytest.param(
            "topology",
            Ledger(
                [
                    Node("n1", links=read_notation("SYS(0,1)", "n1")),
                    Node("n2", links=read_notation("PIX(0,1)", "n2")),
                ],
                [
                    a_device(f"{node}-{index}", node=node, index=index)
                    for node in ("n1", "n2")
                    for index in range(2)
                ],
            ),
            a_demand("p", "1", count=2),
            "n2",
            {
                "n1/0": "idle, but the best here are linked by SYS, n2/0, n2/1 by PIX",
                "n1/1": "idle, but the best here are linked by SYS, n2/0, n2/1 by PIX",
            },
            id="links are named by their level",
        ),
    ],
)
def test_it_is_told_why(
    name: str, ledger: Ledger, demand: Demand, node: str | None, expected: dict[str, str]
) -> None:
    decision = policy(name)(ledger, demand)
    assert decision.node == node
    assert list(decision.reasons.items()) == list(expected.items())


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"count": 2}, "request", "of several GPUs the topology policy gives whole ones"),
        ({"device_id": "A"}, "id", "the topology policy chooses the GPU"),
    ],
)
def test_the_topology_policy_says_what_it_does_not_know(
    fields: dict[str, Any], field: str, words: str
) -> None:
    decision = policy("topology")(Ledger([a_node()], [a_device("A")]), a_demand("p", **fields))
    assert (decision.outcome, decision.field) == ("rejected", field)
    assert decision.reasons[field].startswith(words)
    assert decision.reasons["n1/A"] == decision.reasons[field]


@pytest.mark.parametrize(
    ("mine", "theirs", "words"),
    [
        (
            FragmentScore(Level.SYS, whole=True),
            FragmentScore(Level.PIX, whole=False),
            "access cost is SYS, of X PIX",
        ),
        (
            FragmentScore(Level.PIX, whole=True),
            FragmentScore(Level.PIX, whole=False),
            "the first of its group, and the group of X is in use",
        ),
        (
            SingularScore(True, Level.PIX, 1, (1,)),
            SingularScore(False, Level.PIX, 1, (1,)),
            "the siblings of X are all busy, and here they are not",
        ),
        (
            SingularScore(True, Level.SYS, 1, (1,)),
            SingularScore(True, Level.PIX, 1, (1,)),
            "access cost is SYS, of X PIX",
        ),
        (
            SingularScore(True, Level.PIX, 3, (2,)),
            SingularScore(True, Level.PIX, 1, (1,)),
            "breaks 3 whole groups, X 1",
        ),
        (
            SingularScore(True, Level.PIX, 1, (2,)),
            SingularScore(True, Level.PIX, 1, (1,)),
            "has more idle GPUs around it than X",
        ),
        (
            LinkScore(Level.SYS, 9 * Level.NVLINK, 2, (2,)),
            LinkScore(Level.PIX, 8 * Level.NVLINK, 1, (1,)),
            "the best here are linked by SYS, X by PIX",
        ),
        (
            LinkScore(Level.PIX, 9 * Level.NVLINK, 2, (2,)),
            LinkScore(Level.PIX, 8 * Level.NVLINK, 1, (1,)),
            "links of the best here cost 9 in all, of X 8",
        ),
        (
            LinkScore(Level.PIX, 9 * Level.NVLINK - 1, 2, (2,)),
            LinkScore(Level.PIX, 8 * Level.NVLINK - 5, 1, (1,)),
            "links of the best here cost 9 in all, of X 8",
        ),
        (
            LinkScore(nvlink(1), 3 * Level.NVLINK - 1, 2, (2,)),
            LinkScore(nvlink(2), 3 * Level.NVLINK - 3, 1, (1,)),
            "the best here are linked by NV1, X by NV2",
        ),
        (
            LinkScore(nvlink(1), 3 * Level.NVLINK - 1, 2, (2,)),
            LinkScore(nvlink(1), 3 * Level.NVLINK - 2, 1, (1,)),
            "the best here have weaker NVLinks than X",
        ),
        (
            LinkScore(Level.PIX, 8 * Level.NVLINK, 2, (2,)),
            LinkScore(Level.PIX, 8 * Level.NVLINK, 1, (1,)),
            "the best here break 2 whole groups, X 1",
        ),
        (
            LinkScore(Level.PIX, 8 * Level.NVLINK, 1, (2,)),
            LinkScore(Level.PIX, 8 * Level.NVLINK, 1, (1,)),
            "the best here have more idle GPUs around them than X",
        ),
    ],
)
def test_the_first_in_which_scores_differ_is_told(mine: Score, theirs: Score, words: str) -> None:
    assert _difference(mine, theirs, "X") == words

"""The locality policy against a slow one written from the text, and for its own promises."""

import random
import re
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import samples
from core.builders import GPU_MEMORY, a_demand, a_device, a_holder, a_node
from core.policies.slow_locality import slow_decide
from core.strategies import demands, devices, nodes
from kubeshare.core.decision import Decision, commit
from kubeshare.core.demand import Demand, Memory
from kubeshare.core.errors import LedgerError, UnknownPolicyError
from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import policy
from kubeshare.core.policies.locality import policy as locality
from kubeshare.core.policies.locality.policy import decide
from kubeshare.core.units import MI


def in_short(decision: Decision) -> tuple[str, str | None, str | None]:
    """As the slow policy answers: a generated id is "new"."""
    gpuids = {device.id: device.gpuid or device.id for device in decision.new}
    opened = {each for each, gpuid in gpuids.items() if gpuid.startswith("vgpu-")}
    kept = sorted(gpuids.get(each, each) for each in decision.devices if each not in opened)
    devices = ",".join([*kept, *["new"] * len(opened)])
    return decision.outcome, decision.node, devices or None


def assert_explained(ledger: Ledger, demand: Demand, decision: Decision) -> None:
    """Every GPU and every node that could have been it and is not has a reason."""
    for device in ledger.devices.values():
        excluded = demand.nodes is not None and device.node not in demand.nodes
        has_reason = device.path in decision.reasons
        assert has_reason == (device.id not in decision.devices and not excluded)
    for name in ledger.nodes:
        excluded = demand.nodes is not None and name not in demand.nodes
        opened = decision.created and decision.node == name
        found = decision.outcome == "bound" and not decision.created
        if excluded or decision.outcome == "pending":
            assert name in decision.reasons
        elif opened or found:
            assert name not in decision.reasons
    assert all(decision.reasons.values())
    assert (decision.field is not None) == (decision.outcome == "rejected")


UNIQUE_NODES = st.lists(nodes, max_size=3, unique_by=lambda node: node.name)
UNIQUE_DEVICES = st.lists(devices, max_size=4, unique_by=lambda device: device.id)
SEVERAL = demands(st.uuids().map(str))


@pytest.mark.slow
@settings(max_examples=samples.count(whole=400, sample=100), deadline=None)
@given(UNIQUE_NODES, UNIQUE_DEVICES, st.lists(SEVERAL, min_size=1, max_size=10))
def test_it_answers_as_the_slow_one_and_explains_itself(
    known: list[Node], pool: list[Device], asked: list[Demand]
) -> None:
    ledger = Ledger(known, pool)
    for demand in asked:
        decision = decide(ledger, demand)
        assert in_short(decision) == slow_decide(ledger, demand)
        assert_explained(ledger, demand, decision)
        if decision.outcome == "bound":
            commit(ledger, demand, decision)


def random_demand(source: random.Random, number: int) -> Demand:
    pick = source.choice
    return Demand(
        uid=f"p{number}",
        name=f"p{number}",
        request_micros=pick([0, 100_000, 200_000, 300_000, 500_000, 900_000]),
        memory=pick([Memory(bytes=pick([0, 1, 5, 9, 17])), Memory(micros=pick([0, 250_000]))]),
        affinity=pick(["", "", "", "red", "blue"]),
        anti_affinity=pick(["", "", "", "g", "h"]),
        exclusion=pick(["", "", "", "", "e"]),
        device_id=pick([""] * 12 + ["1", "mine"]),
        model=pick(["", "", "", "V100", "A100"]),
        nodes=pick([None, None, None, frozenset(["n1"]), frozenset(["n2", "n10"])]),
    )


def random_cluster(source: random.Random) -> tuple[list[Node], list[Device]]:
    kinds = [FreeGpu("V100", 16), FreeGpu("V100", 8), FreeGpu("A100", 10)]
    names = ["n1", "n2", "n10"]
    known = [Node(name, tuple(source.choices(kinds, k=source.randint(0, 3)))) for name in names]
    pool = []
    for number in range(source.randint(0, 6)):
        kind = source.choice(kinds)
        pool.append(
            Device(
                id=str(number),
                node=source.choice(names),
                model=kind.model,
                memory_bytes=kind.memory_bytes,
                healthy=source.random() > 0.05,
            )
        )
    return known, pool


@pytest.mark.slow
def test_on_thousands_of_random_states_it_answers_as_the_slow_one() -> None:
    source = random.Random(20200623)
    seen: Counter[tuple[str, bool]] = Counter()
    for _ in range(150):
        ledger = Ledger(*random_cluster(source))
        holders: list[str] = []
        for number in range(30):
            if holders and source.random() < 0.3:
                ledger.release(holders.pop(source.randrange(len(holders))))
            demand = random_demand(source, number)
            decision = decide(ledger, demand)
            assert in_short(decision) == slow_decide(ledger, demand), (ledger.devices, demand)
            seen[decision.outcome, decision.created] += 1
            if decision.outcome == "bound":
                commit(ledger, demand, decision)
                holders.append(demand.uid)
    # Every kind of answer came often; otherwise the comparison would say little.
    assert min(seen.values()) >= 50
    assert len(seen) == 4


def encoded(decision: Decision) -> bytes:
    """Everything that a decision says, in the order in which it says it."""
    return msgspec.json.encode(
        msgspec.structs.replace(decision, reasons=dict(decision.reasons)), order=None
    )


def test_no_answer_depends_on_an_order_of_listing() -> None:
    source = random.Random(11)
    for _ in range(200):
        known, pool = random_cluster(source)
        ledger = Ledger(known, pool)
        for number in range(10):
            demand = random_demand(source, number)
            answer = decide(ledger, demand)
            if answer.outcome == "bound":
                commit(ledger, demand, answer)
        demand = random_demand(source, 99)
        expected = encoded(decide(ledger, demand))
        shuffled = Ledger(
            source.sample(list(ledger.nodes.values()), len(ledger.nodes)),
            source.sample(list(ledger.devices.values()), len(ledger.devices)),
        )
        assert encoded(decide(shuffled, demand)) == expected


def test_deciding_changes_nothing() -> None:
    def a_ledger() -> Ledger:
        return Ledger([a_node(free=1)], [a_device("A", a_holder("q"))])

    ledger = a_ledger()
    assert decide(ledger, a_demand("p", "0.9")).created
    assert ledger == a_ledger()


def test_a_generated_id_is_new_and_follows_from_the_demand() -> None:
    ledger = Ledger([a_node(free=3)])
    first = decide(ledger, a_demand("p", "0.9"))
    assert decide(ledger, a_demand("p", "0.9")).devices == first.devices
    assert decide(ledger, a_demand("p", "0.9", attempt=1)).devices != first.devices
    ledger.add_device(a_device(first.devices[0], a_holder("q", "1")))
    again = decide(ledger, a_demand("p", "0.9"))
    assert again.created
    assert again.devices != first.devices


def test_a_new_vgpu_takes_the_smallest_free_gpu_that_will_do() -> None:
    free = (FreeGpu("A100", 80), FreeGpu("V100", 16), FreeGpu("V100", 32))
    ledger = Ledger([Node("n1", free)])
    small = decide(ledger, a_demand("p", "0.5"))
    assert small.new[0].memory_bytes == 16
    picky = decide(ledger, a_demand("p", "0.5", model="A100"))
    assert picky.new[0].model == "A100"
    large = decide(ledger, Demand(uid="p", name="p", request_micros=1, memory=Memory(bytes=17)))
    assert large.new[0].memory_bytes == 32


REASONS: dict[str, tuple[Device, Demand, str]] = {
    "a GPU that failed": (a_device("A", healthy=False), a_demand("p"), "unhealthy"),
    "a fenced GPU": (a_device("A", fenced=True), a_demand("p"), "fenced, takes no new holder"),
    "a node that is not known": (a_device("A", node="n9"), a_demand("p"), "node n9 is not known"),
    "a model": (a_device("A"), a_demand("p", model="A100"), "model unknown, asked A100"),
    "compute": (
        a_device("A", a_holder("q", "0.8")),
        a_demand("p"),
        "compute 0.2 left, 0.5 asked",
    ),
    "memory": (
        a_device("A", a_holder("q", "0.1", memory=800)),
        a_demand("p", memory=300),
        "memory 200Mi left, 300Mi asked",
    ),
    "amounts of memory that read alike": (
        a_device("A", memory_bytes=10 * 1024 * MI + 1),
        Demand(uid="p", name="p", request_micros=0, memory=Memory(bytes=10 * 1024 * MI + 2)),
        "memory 10737418241 left, 10737418242 asked",
    ),
    "exclusion": (
        a_device("A", a_holder("q", "0.1", exclusion="e1")),
        a_demand("p", exclusion="e2"),
        "exclusion e1, asked e2",
    ),
    "anti-affinity": (
        a_device("A", a_holder("q", "0.1", anti_affinity="g")),
        a_demand("p", anti_affinity="g"),
        "anti-affinity g is on it already",
    ),
    "as many holders as there may be": (
        a_device("A", *(a_holder(f"q{number}", "0") for number in range(128))),
        a_demand("p"),
        "128 holders, as many as a vGPU takes",
    ),
    "an affinity that nobody has yet": (
        a_device("A", a_holder("q", "0.1")),
        a_demand("p", affinity="red"),
        "occupied, and affinity red asks for an idle or a new vGPU",
    ),
}


@pytest.mark.parametrize(("device", "demand", "words"), REASONS.values(), ids=REASONS)
def test_why_a_gpu_is_passed_over(device: Device, demand: Demand, words: str) -> None:
    assert decide(Ledger([a_node()], [device]), demand).reasons[device.path] == words


NODE_REASONS: dict[str, tuple[Node, Demand, str]] = {
    "nothing is free": (a_node("n2"), a_demand("p"), "no free GPU"),
    "another model is free": (
        a_node("n2", free=1, model="V100"),
        a_demand("p", model="A100"),
        "no free GPU of model A100, only of V100",
    ),
    "too little memory": (
        a_node("n2", free=1, memory=200 * MI),
        a_demand("p", memory=300),
        "memory 200Mi on its largest free GPU, 300Mi asked",
    ),
    "not asked for": (
        a_node("n2", free=1),
        a_demand("p", nodes=frozenset(["n1"])),
        "not among the nodes asked for",
    ),
    "another has fewer": (a_node("n2", free=2), a_demand("p"), "2 free GPUs, and n1 has 1"),
    "another comes first": (
        a_node("n2", free=1),
        a_demand("p"),
        "as many free GPUs as n1, whose name comes first",
    ),
}


@pytest.mark.parametrize(("node", "demand", "words"), NODE_REASONS.values(), ids=NODE_REASONS)
def test_why_a_node_is_passed_over(node: Node, demand: Demand, words: str) -> None:
    ledger = Ledger([a_node("n1", free=1, model=demand.model), node])
    decision = decide(ledger, demand)
    assert decision.node == "n1"
    assert decision.reasons["n2"] == words


@pytest.mark.parametrize(
    ("demand", "field", "words"),
    [
        (a_demand("p", count=2), "count", "2 GPUs asked, and no node has more than 1 that do"),
        (a_demand("p", memory=2000), "memory", "1.95Gi asked, and the largest GPU has 1000Mi"),
        (a_demand("p", model="A100"), "model", "no GPU of model A100 in this cluster"),
        (
            a_demand("p", device_id="vgpu-x"),
            "id",
            "there is no vGPU vgpu-x, and new ones of that prefix are not for users",
        ),
    ],
)
def test_what_can_never_be_is_rejected_by_its_field(demand: Demand, field: str, words: str) -> None:
    # The only GPU is in use elsewhere: it counts for feasibility, not for placement now.
    ledger = Ledger([Node("n1", kinds=frozenset([FreeGpu("V100", GPU_MEMORY)]))])
    decision = decide(ledger, demand)
    assert (decision.outcome, decision.field) == ("rejected", field)
    assert decision.reasons[field] == words


def test_a_cluster_without_any_known_gpu_rejects_nothing() -> None:
    decision = decide(Ledger([a_node()]), a_demand("p", memory=99_000, model="A100"))
    assert decision.outcome == "pending"


def test_an_affinity_label_on_a_gpu_out_of_reach_is_still_waited_for() -> None:
    ledger = Ledger(
        [a_node("n1"), a_node("n2", free=1)],
        [a_device("A", a_holder("q", "0.1", affinity="red"))],
    )
    decision = decide(ledger, a_demand("p", affinity="red", nodes=frozenset(["n2"])))
    assert decision.outcome == "pending"
    assert decision.reasons == {
        "n1": "not among the nodes asked for",
        "n2": "affinity red is on n1/A",
    }


def test_a_decision_that_came_too_late_records_nothing() -> None:
    ledger = Ledger([a_node(free=1)])
    demand = a_demand("p", "0.9")
    decision = decide(ledger, demand)
    ledger.set_free("n1", ())
    with pytest.raises(LedgerError, match="no free GPU"):
        commit(ledger, demand, decision)
    assert ledger == Ledger([a_node()])


def test_policies_are_found_by_name() -> None:
    assert policy("locality") is decide
    with pytest.raises(
        UnknownPolicyError, match=r"nearest is not registered; these are: .*locality"
    ):
        policy("nearest")


def test_a_reader_finds_each_line_of_the_algorithm_by_its_number() -> None:
    folder = Path(locality.__file__).parent
    core = folder.parents[1]
    sources = [*folder.glob("*.py"), *(core / "constraints").glob("*.py"), core / "decision.py"]
    named: set[int] = set()
    for source in sources:
        for lines in re.findall(r"[Ll]ines? ([0-9]+(?:(?:-|, | and )[0-9]+)*)", source.read_text()):
            for first, last in re.findall("([0-9]+)(?:-([0-9]+))?", lines):
                named |= set(range(int(first), int(last or first) + 1))
    assert named == set(range(1, 27))

"""A GPU under an exclusion label is charged as a whole, once for all holders of a namespace."""

import random
from typing import Any

import pytest

from core.builders import GPU_MEMORY, a_demand, a_device, a_holder, a_node, share
from kubeshare.core.decision import Decision, commit
from kubeshare.core.demand import Demand, Share
from kubeshare.core.ledger.device import Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy, policy
from kubeshare.core.preemption import cheapest_preemption
from kubeshare.core.quota.charge import Held, charges
from kubeshare.core.quota.index import QuotaIndex
from kubeshare.core.quota.model import QuotaPolicy
from kubeshare.core.quota.namespace import HeldIndex, NamespaceQuota, is_exceeded, within_quotas
from kubeshare.core.quota.rows import Place, Quota
from kubeshare.core.units import GI, MI, MICROS

POLICIES = ("locality", "binpack", "topology")
WORDS = "charged as a whole GPU for its exclusion label"


def mate(name: str, request: str = "0.1", **fields: Any) -> Any:
    return a_holder(name, request, **({"exclusion": "x", "namespace": "a"} | fields))


def gpus(number: float, **fields: Any) -> Quota:
    return Quota(namespace="a", micros=int(number * MICROS), **fields)


def by_time(number: float) -> NamespaceQuota:
    return NamespaceQuota(name="gpus", micros=int(number * MICROS))


def ask(decide: Any, ledger: Ledger, name: str, request: str = "0.02", **fields: Any) -> Decision:
    wanted = {"namespace": "a", "exclusion": "x"} | fields
    demand = a_demand(name, request, **wanted)
    decision: Decision = decide(ledger, demand)
    if decision.outcome == "bound":
        commit(ledger, demand, decision)
    return decision


def within(by: str | Policy, row: Quota | NamespaceQuota) -> Any:
    """A policy within a GPUQuota or a ResourceQuota of namespace ``a``."""
    chosen = policy(by) if isinstance(by, str) else by
    if isinstance(row, Quota):
        return QuotaPolicy(chosen, lambda of: [row] if of == "a" else [], "pending")
    return within_quotas(chosen, lambda of: [row] if of == "a" else [])


@pytest.mark.parametrize(
    ("holders", "charged"),
    [
        ([], {}),
        ([mate("p", exclusion="")], {"a": Held(100_000, 0)}),
        ([mate("p")], {"a": Held(MICROS, GI)}),
        ([mate("p", "0")], {"a": Held(MICROS, GI)}),
        ([mate("p"), mate("q", "0.7", memory=5)], {"a": Held(MICROS, GI)}),
        # Each namespace asks that everybody else be kept off.
        ([mate("p"), mate("q", namespace="b")], {"a": Held(MICROS, GI), "b": Held(MICROS, GI)}),
        (
            [a_holder("p", "0.3", memory=2, namespace="a"), a_holder("q", "0", namespace="b")],
            {"a": Held(300_000, 2 * MI), "b": Held()},
        ),
    ],
)
def test_what_the_holders_of_a_gpu_are_charged(holders: list[Any], charged: object) -> None:
    assert charges(holders, GI, lambda holder: holder.namespace) == charged


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("row", [gpus(0.1), by_time(0.1)])
def test_a_small_share_that_keeps_all_others_off_needs_quota_for_a_gpu(
    name: str, row: Quota | NamespaceQuota
) -> None:
    decide = within(name, row)
    ledger = Ledger([a_node()], [a_device(each) for each in "ABC"])
    refused = ask(decide, ledger, "p")
    assert (refused.outcome, refused.field) == ("pending", "quota")
    assert refused.reasons["quota"].endswith(f"0 held, 1 asked, {WORDS}")
    assert ask(decide, ledger, "q", exclusion="").outcome == "bound"
    assert ask(decide, ledger, "r", namespace="free").outcome == "bound", "no quota, no charge"


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("row", [gpus(1), by_time(1)])
def test_label_mates_share_the_charge_wherever_the_policy_would_put_them(
    name: str, row: Quota | NamespaceQuota
) -> None:
    decide = within(name, row)
    # The idle GPUs are of another size, so each policy has a reason to prefer some of them.
    ledger = Ledger([a_node(free=1)], [a_device(each) for each in "ABC"])
    first = ask(decide, ledger, "p1", "0.4")
    for number in range(2, 5):
        assert ask(decide, ledger, f"p{number}", "0.2").devices == first.devices
    # What does not fit beside its mates would open a GPU of its own.
    waiting = ask(decide, ledger, "p5", "0.1")
    assert (waiting.outcome, waiting.field) == ("pending", "quota")
    assert waiting.reasons["quota"].endswith(f"1 held, 1 asked, {WORDS}")
    if isinstance(row, Quota):
        assert waiting.reasons[f"n1/{first.devices[0]}"] == "compute 0 left, 0.1 asked"
    for number in range(1, 5):
        ledger.release(f"p{number}")
    assert ask(decide, ledger, "p6", "0.1").outcome == "bound"


@pytest.mark.parametrize(
    ("held", "request_"),
    [
        ({"exclusion": "y"}, "0.1"),
        ({"request": "0.95"}, "0.1"),
        ({"memory": GPU_MEMORY // MI}, "0"),
    ],
)
def test_without_a_mate_that_has_room_the_policy_is_asked_once(
    held: dict[str, Any], request_: str
) -> None:
    """Explanations and waiting gangs ask hundreds of times, and a namespace may hold thousands."""
    asked: list[str] = []

    def counting(ledger: Ledger, demand: Demand) -> Decision:
        asked.append(demand.uid)
        return policy("locality")(ledger, demand)

    ledger = Ledger(
        [a_node("n1"), a_node("n2", free=1)], [a_device("A", holders=[mate("p", **held)])]
    )
    waiting = ask(within(counting, by_time(1)), ledger, "q", request_, memory=16)
    assert (waiting.outcome, waiting.field) == ("pending", "quota")
    assert len(asked) == 1


def test_memory_is_charged_as_a_whole_too() -> None:
    row = NamespaceQuota(name="memory", memory_bytes=GPU_MEMORY - 1)
    ledger = Ledger([a_node()], [a_device("A")])
    refused = ask(within("locality", row), ledger, "p", memory=16)
    assert refused.reasons["quota"].endswith(f"0 held, 1000Mi asked, {WORDS}")
    enough = NamespaceQuota(name="memory", memory_bytes=GPU_MEMORY)
    assert ask(within("locality", enough), ledger, "p", memory=16).outcome == "bound"


def test_another_model_is_taken_where_the_quota_has_room_for_a_gpu() -> None:
    rows = [gpus(0.5, model="V100"), gpus(1, model="M40")]
    decide = QuotaPolicy(policy("locality"), lambda _: rows, "pending")
    ledger = Ledger([a_node()], [a_device("A", model="V100"), a_device("B", model="M40")])
    assert ask(decide, ledger, "p").devices == ("B",)
    assert ask(decide, ledger, "q", exclusion="other").field == "quota"


@pytest.mark.parametrize("row", [gpus(1), by_time(1)])
def test_mates_on_nodes_that_are_not_asked_for_do_not_help(row: Quota | NamespaceQuota) -> None:
    ledger = Ledger(
        [a_node("n1"), a_node("n2")], [a_device("A", mate("p")), a_device("B", node="n2")]
    )
    assert ask(within("locality", row), ledger, "q", nodes=frozenset(["n2"])).field == "quota"
    joined = ask(within("locality", row), ledger, "q")
    assert joined.devices == ("A",)


@pytest.mark.parametrize("row", [gpus(0.5), by_time(0.5)])
def test_beyond_a_quota_that_was_lowered_nothing_is_placed_beside_mates(
    row: Quota | NamespaceQuota,
) -> None:
    ledger = Ledger([a_node()], [a_device("A", mate("p")), a_device("B")])
    assert ask(within("binpack", row), ledger, "q").field == "quota"


def idle_first(ledger: Ledger, demand: Demand) -> Decision:
    """A policy that shares a GPU only where none is idle."""
    locality = policy("locality")
    with ledger.what_if():
        for device in [each for each in ledger.devices.values() if each.holders]:
            ledger.mark(device.id, fenced=True)
        decision = locality(ledger, demand)
    return decision if decision.outcome == "bound" else locality(ledger, demand)


@pytest.mark.parametrize("row", [gpus(1), by_time(1)])
def test_mates_are_joined_where_the_policy_would_rather_take_an_idle_gpu(
    row: Quota | NamespaceQuota,
) -> None:
    nodes = [a_node("n1", free=1), a_node("n2", free=1)]
    ledger = Ledger(nodes, [a_device("A", mate("p")), a_device("B"), a_device("C", node="n2")])
    before = Ledger(ledger.nodes.values(), ledger.devices.values())
    assert idle_first(ledger, a_demand("q", "0.02", exclusion="x")).devices != ("A",)
    decision = within(idle_first, row)(ledger, a_demand("q", "0.02", namespace="a", exclusion="x"))
    assert ledger == before
    assert decision.devices == ("A",)
    for place in ("n1/B", "n2"):
        assert decision.reasons[place].endswith(f"1 held, 1 asked, {WORDS}")


def test_several_gpus_go_to_the_model_that_has_quota_for_all() -> None:
    rows = [gpus(1, model="V100"), gpus(2, model="M40")]
    decide = QuotaPolicy(policy("binpack"), lambda _: rows, "pending")
    models = {"A": "V100", "B": "V100", "C": "M40", "D": "M40"}
    ledger = Ledger([a_node()], [a_device(each, model=model) for each, model in models.items()])
    assert ask(decide, ledger, "p", count=2).devices == ("C", "D")


def test_a_group_joins_its_own_mates_where_others_would_cost_its_limit_more() -> None:
    rows = [gpus(2), gpus(1, group="web")]
    decide = QuotaPolicy(policy("binpack"), lambda _: rows, "pending")
    devices = [
        a_device("A", mate("p", group="web")),
        a_device("B", mate("q", "0.5", memory=500, group="b")),
    ]
    ledger = Ledger([a_node()], devices)
    assert ask(decide, ledger, "r", group="web").devices == ("A",)


def test_a_group_is_charged_the_gpu_for_its_own_limit() -> None:
    rows = [gpus(2), gpus(1, group="web")]
    decide = QuotaPolicy(policy("binpack"), lambda _: rows, "pending")
    ledger = Ledger([Node("n1")], [a_device(each, model="V100") for each in "ABC"])
    assert ask(decide, ledger, "p1", group="web").devices == ("A",)
    assert ask(decide, ledger, "p2", group="web").devices == ("A",)
    refused = ask(decide, ledger, "p3", group="web", exclusion="other")
    assert refused.reasons["n1/B"] == (
        f"quota of a is 1 GPUs for group web: 1 held, 1 asked, {WORDS}"
    )
    assert ask(decide, ledger, "p4", group="batch", exclusion="other").devices == ("B",)
    assert dict(ledger.index(QuotaIndex).used_by("a")) == {
        Place("", "", "V100"): 2 * MICROS,
        Place("", "", "V100", "web"): MICROS,
        Place("", "", "V100", "batch"): MICROS,
    }
    # Beside mates of another group, the namespace is charged nothing, and the group a GPU.
    assert (
        ask(decide, ledger, "p5", group="web", exclusion="other", device_id="B").outcome
        == "pending"
    )
    ledger.release("p1")
    ledger.release("p2")
    assert ask(decide, ledger, "p6", group="web", exclusion="other", device_id="B").devices == (
        "B",
    )


def test_mates_of_another_namespace_do_not_pay_for_this_one() -> None:
    ledger = Ledger([a_node()], [a_device("A", mate("p", namespace="b"))])
    refused = ask(within("locality", gpus(0.5)), ledger, "q")
    assert refused.reasons["quota"].endswith(WORDS)
    assert ask(within("locality", gpus(1)), ledger, "q").devices == ("A",)


@pytest.mark.parametrize("row", [gpus(1), by_time(1)])
def test_each_of_several_gpus_is_charged(row: Quota | NamespaceQuota) -> None:
    ledger = Ledger([a_node()], [a_device("A"), a_device("B")])
    assert ask(within("binpack", row), ledger, "p", count=2).field == "quota"


@pytest.mark.parametrize("row", [gpus(1), by_time(1)])
@pytest.mark.parametrize(("request_", "outcome"), [(300_000, "bound"), (600_000, "pending")])
def test_shares_of_one_demand_are_charged_for_the_gpus_that_they_get(
    row: Quota | NamespaceQuota, request_: int, outcome: str
) -> None:
    shares = tuple(
        Share(name=name, request_micros=request_, containers=(name,)) for name in ("x", "y")
    )
    demand = Demand(uid="p", name="p", namespace="a", exclusion="x", shares=shares)
    ledger = Ledger([a_node()], [a_device("A"), a_device("B")])
    assert within("binpack", row)(ledger, demand).outcome == outcome


def test_labels_of_a_namespace_are_charged_alike() -> None:
    ledger = Ledger([a_node()], [a_device("A"), a_device("B")], label_scope="namespace")
    decide = within("locality", gpus(1))
    assert ask(decide, ledger, "p").devices == ask(decide, ledger, "q").devices
    assert ask(decide, ledger, "r", exclusion="other").outcome == "pending"


@pytest.mark.parametrize("row", [gpus(1), by_time(1)])
def test_preemption_frees_the_charge_with_the_last_mate(row: Quota | NamespaceQuota) -> None:
    """Of one's own namespace only: no other's eviction helps against a quota."""
    ledger = Ledger(
        [a_node()],
        [a_device("A", mate("p", "0.6")), a_device("B", a_holder("q", "0.6", namespace="b"))],
    )
    demand = a_demand("r", "0.5", namespace="a", exclusion="x")
    found = cheapest_preemption(
        within("locality", row), ledger, demand, priority=9, preemptible={"p": 1, "q": 0}
    )
    assert found is not None
    assert found.leave == ("p",)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("row", [gpus(1.5), by_time(1.5)])
def test_no_sequence_holds_more_gpus_than_the_quota(seed: int, row: Quota | NamespaceQuota) -> None:
    """Against a sum over all holders: the GPUs that nobody else can use, and the rest's requests.

    What is refused for its quota would exceed it; what is placed does not; the indexes follow.
    """
    draw = random.Random(seed)
    ledger = Ledger([a_node("n1", 1), a_node("n2", 1)], [a_device("A"), a_device("B", node="n2")])
    decide = within(POLICIES[seed % 3], row)
    outcomes = set()
    for number in range(60):
        held = sorted(
            {holder.demand for device in ledger.devices.values() for holder in device.holders}
        )
        if held and draw.random() < 0.4:
            ledger.release(draw.choice(held))
        label, namespace = draw.choice(["", "x", "y"]), draw.choice("aab")
        request = draw.choice(["0", "0.2", "0.5"])
        fields = {"exclusion": label, "namespace": namespace}
        free = 1_500_000 - _used(ledger)
        decision = ask(decide, ledger, f"p{number}", request, **fields)
        outcomes.add(decision.field or "")
        if decision.field == "quota":
            assert free < (MICROS if label else share(request))
            assert not label or not _beside_mates(ledger, label, share(request))
        used = _used(ledger)
        assert used <= 1_500_000
        assert ledger.index(HeldIndex).of("a").micros == used
        assert ledger.index(QuotaIndex).used_by("a").total() == used
        assert not is_exceeded([by_time(1.5)], ledger.index(HeldIndex).of("a"))
    assert "quota" in outcomes


def _used(ledger: Ledger) -> int:
    used = 0
    for device in ledger.devices.values():
        own = [holder for holder in device.holders if holder.namespace == "a"]
        exclusive = any(holder.exclusion for holder in own)
        used += MICROS if exclusive else sum(holder.request_micros for holder in own)
    return used


def _beside_mates(ledger: Ledger, label: str, request: int) -> bool:
    """Whether a GPU has room that is charged to the namespace for holders of the label."""
    return any(
        (holder.namespace, holder.exclusion) == ("a", label) and device.compute_left >= request
        for device in ledger.devices.values()
        for holder in device.holders
    )

"""Quotas by model, and groups that stay on one model, around any policy."""

import random

import pytest

from core.builders import GPU_MEMORY, a_demand, a_device, a_holder
from kubeshare.core.decision import Decision, commit
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy, policy
from kubeshare.core.quota.index import QuotaIndex
from kubeshare.core.quota.model import QuotaPolicy, fixed
from kubeshare.core.quota.rows import Place, Quota

LOCALITY = policy("locality")


def a_cluster(*extra: Device) -> Ledger:
    """Two M40 and a V100 in pool research, an M40 in pool web."""
    ledger = Ledger(
        [
            Node("m1", pool="research"),
            Node("v1", pool="research"),
            Node("w1", pool="web"),
        ],
        [
            a_device("a", node="m1", model="M40"),
            a_device("b", node="m1", model="M40"),
            a_device("c", node="v1", model="V100"),
            a_device("d", node="w1", model="M40"),
        ],
    )
    for device in extra:
        ledger.add_device(device)
    return ledger


def a_row(gpus: float, namespace: str = "a", *, pool: str = "", model: str = "") -> Quota:
    pools = frozenset([pool] if pool else [])
    return Quota(namespace=namespace, micros=int(gpus * 1_000_000), pools=pools, model=model)


def within(policy: Policy, rows: list[Quota]) -> QuotaPolicy:
    return QuotaPolicy(policy, fixed(rows))


def ask(decide: Policy, ledger: Ledger, name: str, request: str, **fields: object) -> Decision:
    demand = a_demand(name, request, **({"namespace": "a"} | fields))  # type: ignore[arg-type]
    decision = decide(ledger, demand)
    if decision.outcome == "bound":
        commit(ledger, demand, decision)
    return decision


def test_a_namespace_may_hold_as_much_of_a_model_as_its_row_says() -> None:
    ledger = a_cluster()
    decide = within(LOCALITY, [a_row(2, pool="research", model="M40")])
    assert ask(decide, ledger, "p1", "1").outcome == "bound"
    assert ask(decide, ledger, "p2", "0.5").outcome == "bound"
    refused = ask(decide, ledger, "p3", "0.6")
    assert (refused.outcome, refused.field) == ("rejected", "quota")
    words = "quota of a is 2 M40 GPUs in pool research: 1.5 held, 0.6 asked"
    assert refused.reasons["quota"] == refused.reasons["m1/a"] == words
    # Nothing of what was refused counts.
    assert ask(decide, ledger, "p4", "0.5").outcome == "bound"
    assert ask(decide, ledger, "p5", "0.1").outcome == "rejected"
    # Nothing of what has ended counts.
    ledger.release("p1")
    assert ask(decide, ledger, "p6", "0.1").outcome == "bound"


def test_a_namespace_without_a_row_is_free() -> None:
    ledger = a_cluster()
    decide = within(LOCALITY, [a_row(0, "b")])
    assert ask(decide, ledger, "p", "1").outcome == "bound"
    assert ask(decide, ledger, "q", "1", namespace="b").field == "quota"


def test_what_no_row_covers_is_out_of_bounds() -> None:
    ledger = a_cluster()
    decide = within(LOCALITY, [a_row(9, pool="web")])
    assert ask(decide, ledger, "p", "1").devices == ("d",)
    refused = ask(decide, ledger, "q", "1", model="V100")
    assert refused.reasons["quota"] == "no quota of a covers V100 GPUs in pool research"


def test_every_row_that_covers_a_gpu_limits_it() -> None:
    ledger = a_cluster()
    decide = within(LOCALITY, [a_row(1.5), a_row(1, model="M40")])
    assert ask(decide, ledger, "p1", "1").devices == ("a",)
    assert ask(decide, ledger, "p2", "0.5").devices == ("c",)
    assert ask(decide, ledger, "p3", "0.1").field == "quota"


def test_what_waits_for_room_is_not_refused() -> None:
    ledger = a_cluster()
    free = within(LOCALITY, [])
    for name in ("x", "y"):
        assert ask(free, ledger, name, "1", namespace="", nodes=frozenset(["m1"])).node == "m1"
    decide = within(LOCALITY, [a_row(2, pool="research", model="M40")])
    waiting = ask(decide, ledger, "p", "0.5")
    assert waiting.outcome == "pending"
    assert waiting.reasons["m1/a"] == "compute 0 left, 0.5 asked"
    assert waiting.reasons["v1/c"] == "no quota of a covers V100 GPUs in pool research"


def test_a_node_of_two_models_is_used_as_far_as_quota_reaches() -> None:
    free = (FreeGpu("M40", GPU_MEMORY), FreeGpu("V100", GPU_MEMORY))
    ledger = Ledger([Node("n1", free)], [a_device("v", model="V100")])
    decide = within(LOCALITY, [a_row(1, model="M40")])
    before = Ledger(ledger.nodes.values(), ledger.devices.values())
    decision = decide(ledger, a_demand("p", "1", namespace="a"))
    assert ledger == before
    assert [device.model for device in decision.new] == ["M40"]
    assert decision.reasons["n1/v"] == "no quota of a covers V100 GPUs"
    assert "fenced" not in str(dict(decision.reasons))


def test_a_demand_that_no_gpu_could_take_is_refused_for_that() -> None:
    decide = within(LOCALITY, [a_row(0)])
    refused = ask(decide, a_cluster(), "p", "0", memory=2000)
    assert refused.field == "memory"


def test_the_gpus_of_a_demand_count_all() -> None:
    ledger = a_cluster()
    decide = within(policy("binpack"), [a_row(1)])
    assert ask(decide, ledger, "p", "0.6", count=2).field == "quota"
    assert ask(decide, ledger, "q", "0.5", count=2).devices == ("a", "b")


@pytest.mark.parametrize("name", ["locality", "binpack"])
def test_a_group_stays_on_the_model_of_its_first(name: str) -> None:
    ledger = a_cluster()
    decide = within(policy(name), [])
    first = ask(decide, ledger, "p1", "0.9", group="g", model="V100")
    assert first.devices == ("c",)
    second = ask(decide, ledger, "p2", "0.9", group="g")
    assert second.outcome == "pending"
    assert second.reasons["m1/a"] == "model M40, asked V100"
    third = ask(decide, ledger, "p3", "0.9", group="g", model="M40")
    assert (third.outcome, third.field) == ("rejected", "group")
    assert ask(decide, ledger, "p4", "0.9", group="g", namespace="b").outcome == "bound"
    ledger.release("p1")
    assert ask(decide, ledger, "p5", "0.9", group="g", model="M40").outcome == "bound"


def test_what_is_counted_follows_the_ledger() -> None:
    source = random.Random(5)
    ledger = a_cluster(a_device("e", a_holder("h", "0.3"), node="v1", model="V100"))
    rows = [a_row(1.3, model="M40"), a_row(0.9, pool="research"), a_row(2)]
    decide = within(LOCALITY, rows)
    holding: list[str] = []
    for number in range(400):
        if holding and source.random() < 0.5:
            ledger.release(holding.pop(source.randrange(len(holding))))
        name = f"p{number}"
        request = source.choice(["0.1", "0.3", "0.5"])
        fields = {"group": source.choice(["", "g"]), "namespace": source.choice("ab")}
        if ask(decide, ledger, name, request, **fields).outcome == "bound":
            holding.append(name)
        fresh = Ledger(ledger.nodes.values(), ledger.devices.values())
        probe: Demand = a_demand("probe", "0.2", namespace="a", group="g")
        again = within(LOCALITY, rows)(fresh, probe)
        now = decide(ledger, probe)
        assert (now.outcome, now.devices, dict(now.reasons)) == (
            again.outcome,
            again.devices,
            dict(again.reasons),
        )
        held = ledger.index(QuotaIndex).used_by("a")
        assert sum(n for at, n in held.items() if at.model == "M40" and not at.group) <= 1_300_000
    assert len(holding) > 3


def test_on_a_node_of_two_models_only_what_is_out_of_bounds_is_left_out() -> None:
    ledger = Ledger(
        [Node("n1", (FreeGpu("A100", GPU_MEMORY), FreeGpu("V100", GPU_MEMORY)))],
        [a_device("a", model="A100"), a_device("v", model="V100")],
    )
    decide = within(LOCALITY, [a_row(2, model="V100")])
    assert ask(decide, ledger, "p1", "1").devices == ("v",)
    opened = ask(decide, ledger, "p2", "1")
    assert [device.model for device in opened.new] == ["V100"]
    assert opened.reasons["n1/a"] == "no quota of a covers A100 GPUs"
    assert ledger.devices["a"].fenced is False


def test_nodes_that_were_not_asked_for_are_told_apart_from_those_out_of_bounds() -> None:
    decide = within(LOCALITY, [a_row(2, model="M40")])
    asked = frozenset(["m1", "v1"])
    decision = decide(a_cluster(), a_demand("p", "1", namespace="a", nodes=asked))
    assert dict(decision.reasons) == {
        "m1/b": "fits, but m1/a fits as well and comes first",
        "w1": "not among the nodes asked for",
        "v1/c": "no quota of a covers V100 GPUs in pool research",
    }


def test_what_is_gone_from_the_ledger_counts_no_more() -> None:
    ledger = a_cluster()
    decide = within(LOCALITY, [a_row(1, model="V100")])
    assert ask(decide, ledger, "p1", "1").devices == ("c",)
    ledger.release("p1")
    ledger.remove_device("c")
    index = ledger.index(QuotaIndex)
    assert index.used_by("a").total() == 0
    assert index.kinds_on(ledger.nodes["v1"]) == frozenset()
    assert ask(decide, ledger, "p2", "1").reasons["quota"].startswith("no quota of a covers M40")


def test_gpus_of_an_unknown_model_pin_no_group() -> None:
    ledger = a_cluster(a_device("u", node="v1"))
    decide = within(LOCALITY, [])
    assert ask(decide, ledger, "p1", "1", group="g", nodes=frozenset(["v1"]), memory=0).node == "v1"
    ledger.release("p1")
    ledger.mark("c", healthy=False)
    assert ask(decide, ledger, "p2", "1", group="g", nodes=frozenset(["v1"])).devices == ("u",)
    assert ask(decide, ledger, "p3", "1", group="g", model="M40").devices == ("a",)
    waiting = ask(decide, ledger, "p4", "1", group="g", nodes=frozenset(["v1"]))
    assert waiting.reasons["v1/u"] == "model unknown, asked M40"


def test_what_is_held_on_several_nodes_of_a_pool_is_added_up() -> None:
    nodes = [Node(name, pool=pool) for name, pool in (("n1", "p"), ("n2", "p"), ("n3", "q"))]
    devices = [
        a_device(
            f"gpu-{name}", a_holder(f"on-{name}", "0.3", namespace="a"), node=name, model="M40"
        )
        for name in ("n1", "n2", "n3", "n4")
    ]
    index = Ledger(nodes, devices).index(QuotaIndex)
    assert dict(index.used_by("a")) == {
        Place("p", "", "M40"): 600_000,
        Place("q", "", "M40"): 300_000,
        Place("", "", "M40"): 300_000,
    }
    assert dict(index.used_by("b")) == {}


def test_a_group_without_a_name_is_none() -> None:
    ledger = Ledger([Node("n1")], [a_device("a", model="M40"), a_device("b", model="V100")])
    decide = within(LOCALITY, [a_row(5)])
    first = ask(decide, ledger, "p1", "1", model="V100")
    assert first.devices == ("b",)
    assert ask(decide, ledger, "p2", "1").devices == ("a",)


def test_a_group_that_has_left_may_go_anywhere() -> None:
    ledger = Ledger([Node("n1")], [a_device("a", model="M40"), a_device("b", model="V100")])
    decide = within(LOCALITY, [])
    assert ask(decide, ledger, "p1", "1", group="g", model="V100").devices == ("b",)
    assert ledger.index(QuotaIndex).model_of_group("a", "g") == "V100"
    ledger.release("p1")
    assert ledger.index(QuotaIndex).model_of_group("a", "g") == ""
    assert ask(decide, ledger, "p2", "1", group="g").devices == ("a",)


def test_what_is_out_of_bounds_is_told_of_gpus_and_nodes_in_natural_order() -> None:
    free = (FreeGpu("", GPU_MEMORY),)
    ledger = Ledger(
        [Node("n10", free), Node("n9", free), Node("n2")], [a_device("u", node="n2", model="M40")]
    )
    decision = within(LOCALITY, [a_row(2, model="M40")])(
        ledger, a_demand("p", "1", namespace="a", nodes=frozenset(["n2", "n9", "n10"]))
    )
    assert decision.devices == ("u",)
    assert list(decision.reasons.items()) == [
        ("n9", "no quota of a covers its GPUs"),
        ("n10", "no quota of a covers its GPUs"),
    ]


def test_a_demand_that_follows_memory_counts_by_its_share() -> None:
    ledger = Ledger([Node("n1")], [a_device("a", model="M40")])
    decide = within(LOCALITY, [a_row(0.4)])

    def asked(share: str) -> Demand:
        return a_demand("p", "0", share_of_memory=share, proportional=True, namespace="a")

    assert decide(ledger, asked("0.3")).outcome == "bound"
    refused = decide(ledger, asked("0.5"))
    assert refused.reasons["quota"] == "quota of a is 0.4 GPUs: 0 held, 0.5 asked"


def test_of_two_free_models_the_one_within_bounds_is_opened() -> None:
    free = (FreeGpu("A100", GPU_MEMORY), FreeGpu("V100", GPU_MEMORY))
    decide = within(LOCALITY, [a_row(2, model="V100")])
    opened = ask(decide, Ledger([Node("n1", free)]), "p", "1")
    assert [device.model for device in opened.new] == ["V100"]

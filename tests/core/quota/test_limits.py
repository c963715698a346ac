"""Limits of groups, names of models by node labels, and charges that are in flight."""

import pytest

from core.builders import a_demand, a_device
from kubeshare.core.decision import Decision, commit
from kubeshare.core.ledger.device import Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import policy
from kubeshare.core.quota.index import QuotaIndex
from kubeshare.core.quota.model import QuotaPolicy
from kubeshare.core.quota.rows import Place, Quota, exceeded

LOCALITY = policy("locality")


def a_row(gpus: float, *pools: str, **of: object) -> Quota:
    fields = {"namespace": "a", "micros": int(gpus * 1_000_000), "pools": frozenset(pools)}
    return Quota(**(fields | of))  # type: ignore[arg-type]  # fields of Quota by name


def a_cluster() -> Ledger:
    """Two M40, labelled as such, and two V100."""
    return Ledger(
        [Node("m1", pool="p", model="M40"), Node("v1", pool="q")],
        [
            a_device("a", node="m1", model="Tesla M40 24GB"),
            a_device("b", node="m1", model="Tesla M40 24GB"),
            a_device("c", node="v1", model="V100"),
            a_device("d", node="v1", model="V100"),
        ],
    )


def within(*rows: Quota) -> QuotaPolicy:
    return QuotaPolicy(LOCALITY, lambda _: rows, "pending")


def ask(
    decide: QuotaPolicy, ledger: Ledger, name: str, request: str = "1", **fields: object
) -> Decision:
    demand = a_demand(name, request, **({"namespace": "a"} | fields))  # type: ignore[arg-type]
    decision = decide(ledger, demand)
    if decision.outcome == "bound":
        commit(ledger, demand, decision)
    return decision


@pytest.mark.parametrize("model", ["M40", "Tesla M40 24GB"])
def test_a_model_is_named_by_its_own_name_or_that_of_the_nodes_label(model: str) -> None:
    ledger, decide = a_cluster(), within(a_row(1, model=model))
    assert ask(decide, ledger, "p1").node == "m1"
    refused = ask(decide, ledger, "p2")
    assert (refused.outcome, refused.field) == ("pending", "quota")
    assert refused.reasons["quota"] == f"quota of a is 1 {model} GPUs: 1 held, 1 asked"
    assert refused.reasons["v1/c"] == "no quota of a covers V100 GPUs in pool q"


def test_a_row_of_several_pools_adds_them_up() -> None:
    ledger, decide = a_cluster(), within(a_row(1.5, "p", "q"))
    assert ask(decide, ledger, "p1", model="V100").node == "v1"
    words = "quota of a is 1.5 GPUs in pools p, q: 1 held, 1 asked"
    assert ask(decide, ledger, "p2").reasons["quota"] == words
    assert ask(decide, ledger, "p3", "0.5").outcome == "bound"


def test_a_group_has_its_own_row_and_is_in_that_of_the_namespace() -> None:
    ledger = a_cluster()
    decide = within(a_row(2), a_row(1, group="web"))
    assert ask(decide, ledger, "p1", "0.6", group="web").outcome == "bound"
    words = "quota of a is 1 GPUs for group web: 0.6 held, 0.6 asked"
    assert ask(decide, ledger, "p2", "0.6", group="web").reasons["quota"] == words
    assert ask(decide, ledger, "p3", "1").outcome == "bound"
    words = "quota of a is 2 GPUs: 1.6 held, 0.5 asked"
    assert ask(decide, ledger, "p4", "0.5").reasons["quota"] == words


def test_rows_of_other_groups_only_leave_a_demand_free() -> None:
    decide = within(a_row(0, group="web"))
    assert ask(decide, a_cluster(), "p1").outcome == "bound"
    assert ask(decide, a_cluster(), "p2", group="other").outcome == "bound"


def test_what_the_namespace_may_not_use_a_group_may_not_either() -> None:
    ledger = a_cluster()
    decide = within(a_row(9, model="M40"), a_row(9, model="V100", group="web"))
    refused = ask(decide, ledger, "p1", group="web")
    assert refused.reasons["m1/a"] == "no quota of a for group web covers M40 GPUs in pool p"
    assert refused.reasons["v1/c"] == "no quota of a covers V100 GPUs in pool q"


def test_a_service_stays_on_one_model_where_a_row_concerns_it() -> None:
    web = {"service": "Deployment/web"}
    ledger, decide = a_cluster(), within(a_row(4))
    assert ask(decide, ledger, "p1", model="V100", **web).node == "v1"
    assert ask(decide, ledger, "p2", **web).node == "v1"
    waiting = ask(decide, ledger, "p3", **web)
    assert waiting.reasons["m1/a"] == "model Tesla M40 24GB, asked V100"
    other = ask(decide, ledger, "p4", model="Tesla M40 24GB", **web)
    assert (other.outcome, other.field) == ("pending", "group")
    assert other.reasons["group"] == "group Deployment/web is on V100, and Tesla M40 24GB is asked"
    # Nothing concerns it: it may go where there is room.
    assert ask(within(), ledger, "p5", **web).node == "m1"


def test_exactly_the_quota_fits_and_a_millionth_more_does_not() -> None:
    place, rows = Place("p", "", "V100"), [a_row(1)]
    assert exceeded(rows, {place: 400_000}, place, 600_000) == ""
    assert exceeded(rows, {place: 400_000}, place, 600_001) != ""


def test_a_ledger_can_be_restricted_without_a_decision() -> None:
    ledger = a_cluster()
    demand = a_demand("p", "1", namespace="a", nodes=frozenset(["m1", "v1"]))
    with ledger.what_if():
        left = within(a_row(1, model="V100")).restrict(ledger, demand)
        assert (left.demand.nodes, left.refusal) == (frozenset(["v1"]), "")
        assert left.excluded == {"m1": "no quota of a covers M40 GPUs in pool p"}
    with ledger.what_if():
        left = within(a_row(0)).restrict(ledger, demand)
        assert left.refusal == "quota of a is 0 GPUs: 0 held, 1 asked"
        assert set(left.excluded) == {"m1", "v1"}
    assert not any(device.fenced for device in ledger.devices.values())


def test_nodes_that_change_their_pool_change_their_kind() -> None:
    ledger = a_cluster()
    index = ledger.index(QuotaIndex)
    ledger.set_node(Node("m1", pool="q"))
    assert sorted((kind.pool, *names) for kind, names in index.node_kinds().items()) == [
        ("q", "m1"),
        ("q", "v1"),
    ]
    ledger.remove_node("v1")
    assert sum(map(len, index.node_kinds().values())) == 1

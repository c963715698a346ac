"""Turns the rules of a policy into decisions and scores."""

from collections.abc import Iterable
from functools import partial

from kubeshare.core.decision import Decision, LazyReasons
from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis import feasibility
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies.rules import Rules
from kubeshare.core.policies.scoring import Score, allowed_nodes
from kubeshare.core.policies.several_shares.policy import SeveralShares


def decide(ledger: Ledger, demand: Demand, rules: Rules) -> Decision:
    """Decide where a demand is placed; a pure function of its arguments.

    Returns:
        ``bound`` to devices of the ledger or to new ones, ``pending`` until something changes, or
        ``rejected`` because no node of this cluster could ever fit it, or because it uses a
        field that the policy does not support.
    """
    demand = ledger.comparable(demand)
    if demand.shares:
        rules = SeveralShares(rules)
    explain = partial(rules.explain, ledger.snapshot(), demand)
    refused = rules.refuses(ledger, demand)
    choice = None if refused else rules.choose(ledger, demand)
    if choice is not None:
        return Decision(
            outcome="bound",
            node=choice.node,
            devices=tuple([device.id for device in choice.devices]),
            shares=choice.shares,
            new=choice.new,
            reasons=LazyReasons(partial(explain, choice)),
        )
    # This may go through all GPUs, so it is done only where no node fits.
    refused = refused or feasibility.infeasible(ledger, demand)
    if refused is None:
        return Decision(outcome="pending", reasons=LazyReasons(explain))
    why = LazyReasons(partial(explain, infeasible=refused))
    return Decision(outcome="rejected", reasons=why, field=refused[0])


def score(ledger: Ledger, demand: Demand, nodes: Iterable[str], rules: Rules) -> dict[str, Score]:
    """The scores of those of `nodes` where a demand fits; see :mod:`.scoring`."""
    demand = ledger.comparable(demand)
    if demand.shares:
        rules = SeveralShares(rules)
    if rules.refuses(ledger, demand):
        return {}
    return rules.score(ledger, demand, allowed_nodes(demand, nodes))

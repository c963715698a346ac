"""Scores nodes for a demand, for a scheduler extender.

Each built-in policy has ``score(ledger, demand, nodes)`` beside ``decide``. It returns one entry
for each of the named nodes on which the demand fits now: those on which ``decide`` places it when
it may use that node alone. The least score is the best; it is that of the node which ``decide``
picks among these nodes. Scores of different demands or policies do not compare.
"""

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, TypeAlias

import msgspec

from kubeshare.core.demand import Demand
from kubeshare.core.errors import PolicyFailedError
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import BUILT_IN, Policy, policy
from kubeshare.core.policies.guard import raised

Score: TypeAlias = tuple[Any, ...]
Scorer: TypeAlias = Callable[[Ledger, Demand, Iterable[str]], dict[str, Score]]


def scorer(name: str) -> Scorer:
    """The ``score`` of a policy by name; of one from another package by its decisions.

    Raises:
        UnknownPolicyError: no policy has the name, or its package is broken.
    """
    if name in BUILT_IN:
        score: Scorer = import_module(BUILT_IN[name]).score
        return score
    return by_decisions(policy(name))


def guarded(name: str, on_failure: Callable[[], object]) -> Scorer:
    """The ``score`` of a policy by name, which names the policy if it fails.

    The scorer raises :class:`~kubeshare.core.errors.PolicyFailedError` for whatever the policy
    raises, and leaves the ledger as before.

    Args:
        name: of the policy.
        on_failure: called after each failure.

    Raises:
        UnknownPolicyError: no policy has the name, or its package is broken.
    """
    unguarded = scorer(name)

    def score(ledger: Ledger, demand: Demand, nodes: Iterable[str]) -> dict[str, Score]:
        try:
            with ledger.what_if():
                return unguarded(ledger, demand, nodes)
        except Exception as error:
            on_failure()
            raise PolicyFailedError(f"policy {name} {raised(error)}") from error

    return score


def fits(score: Scorer, ledger: Ledger, demand: Demand, node: str) -> bool:
    """Whether a demand fits on a node now, by the scores of a policy."""
    return bool(score(ledger, demand, (node,)))


def by_decisions(decide: Policy) -> Scorer:
    """A slow ``score`` for any policy: the node that it picks is first, the others are equal."""

    def score(ledger: Ledger, demand: Demand, nodes: Iterable[str]) -> dict[str, Score]:
        asked = frozenset(allowed_nodes(demand, nodes))
        first = decide(ledger, msgspec.structs.replace(demand, nodes=asked)).node
        alone = {name: msgspec.structs.replace(demand, nodes=frozenset([name])) for name in asked}
        fitting = sorted(name for name in asked if decide(ledger, alone[name]).outcome == "bound")
        return {name: (name != first,) for name in fitting}

    return score


def allowed_nodes(demand: Demand, nodes: Iterable[str]) -> list[str]:
    """Those of the named nodes that a demand may use."""
    if demand.nodes is None:
        return list(nodes)
    return [name for name in nodes if name in demand.nodes]

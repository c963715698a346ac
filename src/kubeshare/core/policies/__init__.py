"""Placement policies, by name.

A policy is a pure function from a ledger and a demand to a decision. It changes
nothing: whoever asked records the decision (:func:`kubeshare.core.decision.commit`).
"""

from collections.abc import Callable
from typing import TypeAlias

from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand
from kubeshare.core.errors import UnknownPolicyError
from kubeshare.core.ledger import Ledger
from kubeshare.core.policies import locality

Policy: TypeAlias = Callable[[Ledger, Demand], Decision]

_REGISTRY: dict[str, Policy] = {"locality": locality.decide}


def policy(name: str) -> Policy:
    """The policy that is registered under `name`.

    Raises:
        UnknownPolicyError: none is.
    """
    try:
        return _REGISTRY[name]
    except KeyError:
        known = ", ".join(sorted(_REGISTRY))
        raise UnknownPolicyError(f"policy {name} is not registered; these are: {known}") from None

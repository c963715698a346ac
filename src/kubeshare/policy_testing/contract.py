"""Checks the contract of a placement policy on seeded random clusters."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple, NoReturn, TypeVar

import msgspec

from kubeshare.core.decision import Decision, commit
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy
from kubeshare.core.policies.guard import misfit, raised
from kubeshare.policy_testing.clusters import brief, clusters, demands, described, shuffled

T = TypeVar("T")


class PolicyContractError(AssertionError):
    """A policy breaks the contract; the message says how, and for which cluster and demand."""


class _Answer(NamedTuple):
    """A decision, and its reasons as they were when it was made."""

    decision: Decision
    reasons: dict[str, str]


def check_policy(decide: Policy, *, seed: int = 1, cases: int = 200) -> None:
    """Run a policy on random clusters; a pure function of its arguments.

    What it decides has to fit and to keep to labels, model, nodes and GPUID of the demand; be the
    same when it is asked again, and when the cluster lists its objects in another order; leave the
    ledger as it is; and explain each GPU that was passed over, also if the reasons are read when
    the cluster has changed.

    Args:
        decide: the policy.
        seed: of the random clusters and demands.
        cases: so many clusters, each with six demands one after the other.

    Raises:
        PolicyContractError: the policy breaks the contract.
    """
    random, bound = Random(seed), 0  # noqa: S311 - draws clusters, no secrets
    for number in range(cases):
        ledger = clusters(random)
        for demand in demands(random, ledger):
            case = _Case(decide, ledger, demand, f"seed {seed}, case {number}")
            decision = case.check(random)
            if decision.outcome == "bound":
                bound += 1
                commit(ledger, demand, decision)
    if not bound:
        raise PolicyContractError(f"places none of the demands of {cases} clusters (seed {seed})")


class _Case:
    """One demand, asked of one cluster."""

    def __init__(self, decide: Policy, ledger: Ledger, demand: Demand, where: str) -> None:
        self._decide, self._ledger, self._demand, self._where = decide, ledger, demand, where

    def check(self, random: Random) -> Decision:
        """Check everything; returns the decision."""
        first = self._ask(self._ledger)
        self._check_reasons(first)
        if self._ask(self._ledger) != first:
            self._fail("decides differently when it is asked again")
        other = self._ask(shuffled(random, self._ledger))
        if other != first:
            words = f"{_place(first.decision)}, then {_place(other.decision)}"
            if _place(first.decision) == _place(other.decision):
                words = "the reasons differ"
            self._fail(f"depends on the order in which the ledger lists its objects: {words}")
        self._check_late_reasons(first)
        return first.decision

    def _ask(self, ledger: Ledger) -> _Answer:
        before = dict(ledger.nodes), dict(ledger.devices)
        decision = self._call(lambda: self._decide(ledger, self._demand))
        if (dict(ledger.nodes), dict(ledger.devices)) != before:
            self._fail("changes the ledger, which only its caller may")
        if wrong := misfit(ledger, self._demand, decision):
            self._fail(wrong)
        reasons = self._call(lambda: dict(decision.reasons))
        return _Answer(msgspec.structs.replace(decision, reasons={}), reasons)

    def _call(self, function: Callable[[], T]) -> T:
        try:
            return function()
        except Exception as error:
            raise PolicyContractError(self._message(raised(error))) from error

    def _check_reasons(self, answer: _Answer) -> None:
        decision, reasons = answer
        for place, why in reasons.items():
            if not (isinstance(place, str) and isinstance(why, str) and why):
                self._fail(f"has no text as the reason of {place!r}: {why!r}")
        if decision.outcome == "rejected":
            if not decision.field or decision.field not in reasons:
                self._fail(f"rejects the field {decision.field!r}, and has no reason under it")
            return
        chosen = set(decision.devices)
        for device in self._ledger.devices.values():
            if device.id in chosen and device.path in reasons:
                self._fail(f"chooses {device.path}, and says why it passed it over")
            if not {device.path, device.node}.isdisjoint(reasons):
                continue
            if device.id not in chosen:
                self._fail(f"does not say why it passed over {device.path}")

    def _check_late_reasons(self, answer: _Answer) -> None:
        """Check that reasons read after a change are those of the time of the decision."""
        ledger = self._ledger
        decision = self._decide(ledger, self._demand)
        with ledger.what_if():
            for device in tuple(ledger.devices.values()):
                ledger.mark(device.id, healthy=not device.healthy)
            reasons = self._call(lambda: dict(decision.reasons))
        if reasons != answer.reasons:
            self._fail("explains a decision from a ledger that has changed: use ledger.snapshot()")

    def _fail(self, words: str) -> NoReturn:
        raise PolicyContractError(self._message(words))

    def _message(self, words: str) -> str:
        return f"it {words}\n{self._where}: {brief(self._demand)}\n{described(self._ledger)}"


def _place(decision: Decision) -> str:
    return f"{decision.outcome} {decision.node or ''} {', '.join(decision.devices)}".strip()

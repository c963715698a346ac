"""Contains what a policy of another package raises or answers wrongly.

Such a policy has no say in whether its answer is recorded: an answer that does not fit would be
refused by the ledger or the API server, and an exception would end whoever asked. Here both become
a pending decision with the field ``policy``, whose reason names the policy and what it did. Nothing
else decides in its place, so a demand never gets a GPU that the cluster's policy did not choose.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeAlias, get_args

import msgspec

from kubeshare.core.constraints.filter import Filter
from kubeshare.core.decision import Decision, LazyReasons, Outcome, commit
from kubeshare.core.demand import Demand
from kubeshare.core.errors import LedgerError
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.ledger import Ledger

FIELD: Final = "policy"
"""The ``field`` of a decision that a policy failed to make."""
MAX_WORDS: Final = 300
"""Characters of what a policy raised, in a message."""

Decide: TypeAlias = Callable[[Ledger, Demand], Decision]


class GuardedPolicy:
    """A policy whose failures are pending decisions.

    The ledger is as before after each decision, whatever the policy did to it.

    Args:
        name: as users name it.
        target: its entry point, ``module:function``.
        decide: the function.
        on_failure: called after each failure.
    """

    def __init__(
        self, name: str, target: str, decide: Decide, on_failure: Callable[[], object] | None = None
    ) -> None:
        self.decide = decide
        self._on_failure = on_failure
        self._who = f"policy {name} ({target})"

    def __call__(self, ledger: Ledger, demand: Demand) -> Decision:
        """The decision of the policy, or a pending one that says how it failed."""
        try:
            with ledger.what_if():
                decision = self.decide(ledger, demand)
        except Exception as error:  # noqa: BLE001 - another package may raise anything
            return self._failed(raised(error))
        if wrong := misfit(ledger, demand, decision):
            return self._failed(wrong)
        reasons = LazyReasons(partial(self._read, decision))
        return msgspec.structs.replace(decision, reasons=reasons)

    def _read(self, decision: Decision) -> Mapping[str, str]:
        try:
            reasons = dict(decision.reasons)
        except Exception as error:  # noqa: BLE001 - it may compute them only now
            return {FIELD: f"{self._who} does not explain its decision: it {raised(error)}"}
        if all(isinstance(each, str) for each in (*reasons, *reasons.values())):
            return reasons
        return {FIELD: f"{self._who} does not explain its decision: a reason is not text"}

    def _failed(self, words: str) -> Decision:
        if self._on_failure is not None:
            self._on_failure()
        return Decision(outcome="pending", reasons={FIELD: f"{self._who} {words}"}, field=FIELD)


def failure(decision: Decision) -> str:
    """How the policy failed to make a decision; ``""`` if it made it."""
    return decision.reasons[FIELD] if decision.field == FIELD else ""


def raised(error: BaseException) -> str:
    """What was raised and where, in a line of bounded length."""
    words = " ".join(str(error).split())[:MAX_WORDS]
    text = f"raised {type(error).__name__}" + (f": {words}" if words else "")
    place, step = "", error.__traceback__
    while step is not None:
        module = str(step.tb_frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] != __name__.partition(".")[0]:
            place = f" (line {step.tb_lineno} of {module})"
        step = step.tb_next
    return text + place


def misfit(ledger: Ledger, demand: Demand, decision: object) -> str:
    """Why an answer of a policy cannot be recorded; ``""`` if it can.

    Args:
        ledger: the cluster, unchanged afterwards.
        demand: the demand; what it holds already counts as free.
        decision: the answer.
    """
    if not isinstance(decision, Decision):
        return f"answered with {type(decision).__name__}, which is no Decision"
    try:
        if decision.outcome not in get_args(Outcome):
            return f"answered with the outcome {decision.outcome!r}"
        if decision.outcome != "bound":
            names_gpus = decision.node is not None or decision.devices or decision.new
            return f"answered {decision.outcome}, and named a GPU" if names_gpus else ""
        with ledger.what_if():
            if ledger.held_by(demand.uid):
                ledger.release(demand.uid)
            wrong = _wrong_choice(ledger, demand, decision)
            if not wrong:
                commit(ledger, demand, decision)
    except LedgerError as error:
        return f"chose what does not fit: {error}"
    except Exception as error:  # noqa: BLE001 - its fields may be anything
        return f"answered with a Decision that cannot be read: it {raised(error)}"
    return wrong


def _wrong_choice(ledger: Ledger, demand: Demand, decision: Decision) -> str:
    """What of a bound decision the ledger does not check: node, labels, model, share names."""
    node = ledger.nodes.get(str(decision.node))
    if node is None:
        return f"chose node {decision.node}, which is not there"
    allowed = Filter(ledger, ledger.comparable(demand))
    if not allowed.admits(node.name):
        return f"chose node {node.name}, which the demand may not use"
    names = tuple([share.name for share in demand.per_gpu()]) if demand.shares else ()
    if decision.shares != names:
        return f"named the shares {decision.shares}, and they are {names}"
    return _wrong_gpus(ledger, allowed, node, decision)


def _wrong_gpus(ledger: Ledger, allowed: Filter, node: Node, decision: Decision) -> str:
    opened = {device.id: device for device in decision.new}
    if unused := opened.keys() - set(decision.devices):
        return f"opened {', '.join(sorted(unused))}, which it did not choose"
    models = set[str]()
    for device_id in decision.devices:
        device = opened.get(device_id) or ledger.devices.get(device_id)
        if device is None:
            return f"chose GPU {device_id}, which is not there"
        if why := _why_not(allowed, node, device, new=device_id in opened):
            return f"chose {device.path}, which does not fit: {why}"
        models.add(device.model)
    different = ", ".join(sorted(models)) if len(models) > 1 else ""
    return f"chose GPUs of different models: {different}" if different else ""


def _why_not(allowed: Filter, node: Node, device: Device, *, new: bool) -> str | None:
    demand = allowed.demand
    if device.node != node.name:
        return f"it is not on node {node.name}"
    if not new:
        return allowed.why_not(device)
    if demand.device_id not in ("", device.name):
        return f"vGPU {demand.device_id} is asked for"
    if demand.model not in ("", device.model):
        return f"model {demand.model} is asked for"
    return allowed.why_not_new(node)

"""The locality policy: Algorithm 1 of the KubeShare paper, with its errata.

HPDC '20, section 4.3. Comments name the lines of the printed algorithm ("Line 9", "Lines 4-6").
It has errors; where the algorithm and the text of the paper differ, the text is followed:

* lines 4-6 print "return -1": here the demand is pending, with the reason;
* lines 5 and 19 print a subset: a demand has one label, so it is membership;
* lines 9 and 10 do not check that the demand fits the device: here it must;
* line 17 prints "false": the idle devices pass unfiltered, but they must have room too;
* line 24 opens a device even if no physical GPU is left: here the demand is pending.

The loop of lines 15-17 is replaced by an index of the ledger
(:mod:`kubeshare.core.policies.locality.index`). Nothing is recorded here: lines 7, 11-13 and 25
are :func:`kubeshare.core.decision.commit`.

Ties never depend on the order of a listing. Best fit is the least compute left, then the least
memory left, then the id; worst fit is the most of both, then the id.

Of the nodes with enough GPUs for a demand for several, it takes the one that opens the fewest new
vGPUs, then uses the fewest with an affinity label, then whose GPUs fit best, then, if only new
ones are opened, with the fewest free GPUs, then by name.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from kubeshare.core.constraints.checks import Admitted
from kubeshare.core.constraints.device_search import Found, Key
from kubeshare.core.constraints.filter import State
from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.natural_sort import natural_name
from kubeshare.core.policies import answers
from kubeshare.core.policies.locality import reasons, reasons_of_several
from kubeshare.core.policies.locality.index import LocalityIndex
from kubeshare.core.policies.locality.node_scores import LabelledDevices, UnlabelledDevices, key
from kubeshare.core.policies.one_by_one.index import OneByOneIndex
from kubeshare.core.policies.one_by_one.policy import OneByOne, Pass
from kubeshare.core.policies.rules import FEASIBLE, Choice, Refusal
from kubeshare.core.policies.scoring import Score
from kubeshare.core.units import MICROS


def decide(ledger: Ledger, demand: Demand) -> Decision:
    """Decide where a demand is placed: :func:`kubeshare.core.policies.answers.decide`."""
    return answers.decide(ledger, demand, _RULES)


def score(ledger: Ledger, demand: Demand, nodes: Iterable[str]) -> dict[str, Score]:
    """Score nodes for a demand: :func:`kubeshare.core.policies.answers.score`."""
    return answers.score(ledger, demand, nodes, _RULES)


class _Locality(OneByOne):
    """See :mod:`kubeshare.core.policies.locality.policy`."""

    def index(self, ledger: Ledger) -> LocalityIndex:
        """See :mod:`kubeshare.core.policies.locality.index`."""
        return ledger.index(LocalityIndex)

    def first(self, index: OneByOneIndex[Any], demand: Demand, allowed: Admitted) -> Device | None:
        """Lines 2-10 and 15-23."""
        # Without a label, lines 21-22: first devices without an affinity label, including idle
        # ones. With one that no device has, lines 9-10: the idle devices.
        # Line 23: then those with one. With a label that a device has, lines 2-8: only those.
        # Lines 14, 24 and 26: then a new one, for which this policy and others do the same.
        return index.first(demand, allowed.unlabelled) or index.first(demand, allowed.labelled)

    def key(self, device: Device, before: Device) -> Key:
        """Line 21 before line 23."""
        return key(device, labelled=bool(before.affinities))

    def passes(self, ledger: Ledger, demand: Demand, *, label_in_use: bool) -> list[Pass]:
        """Devices without an affinity label, then those with one."""
        passes = []
        if not label_in_use:
            least = 0 if demand.proportional else demand.request_micros
            passes.append((ledger.index(UnlabelledDevices).refreshed(), least))
        # No device has a label that none carries.
        if label_in_use or not demand.affinity:
            passes.append((ledger.index(LabelledDevices).refreshed(), -MICROS))
        return passes

    def score_new(self, node: Node, smallest: FreeGpu) -> Score:
        """After all keys: the number of free GPUs, and the node."""
        del smallest  # any that fits will do
        return 2, len(node.free), natural_name(node.name)

    def rank(self, node: Node, taken: Sequence[Found], new: Sequence[FreeGpu]) -> Score:
        """The order of picks in the description above."""
        keys = [found.key for found in taken]
        labelled = sum(key[0] for key in keys)
        if keys:
            return len(new), labelled, keys
        return len(new), labelled, keys, *self.score_new(node, new[0]), natural_name(new[0].model)

    def explain(
        self,
        state: State,
        demand: Demand,
        choice: Choice | None = None,
        infeasible: Refusal = FEASIBLE,
    ) -> dict[str, str]:
        """See :meth:`kubeshare.core.policies.rules.Rules.explain`."""
        if demand.count > 1 and infeasible == FEASIBLE:
            return reasons_of_several.explain(state, demand, choice)
        return reasons.explain(state, demand, choice, infeasible)


_RULES: Final = _Locality()

"""The binpack policy: the fullest GPU that fits, as in Alibaba's gpushare.

Within a node it chooses the GPU with the least free memory that fits, the lowest number on ties.
gpushare leaves the choice of the node to kube-scheduler; here it is the node whose chosen GPU has
the least left, then the name. For one GPU that is the GPU with the least free memory of all that
fit. Which GPUs fit is the filter's decision (:mod:`kubeshare.core.constraints`). If no vGPU fits,
a new one is opened on the smallest free GPU that fits, by the same order of nodes.

A demand for several GPUs takes equal shares of different GPUs of one node and one model, the
fullest that fit, new ones last, all or none, on the node that opens the fewest new vGPUs, then
whose GPUs then have the least left in all, then by name.

On a node that spreads, a share of one GPU goes to the emptiest one (:mod:`.spread`).
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
from kubeshare.core.policies.binpack import reasons
from kubeshare.core.policies.binpack.index import BinpackIndex
from kubeshare.core.policies.binpack.node_scores import BinpackNodes, key
from kubeshare.core.policies.binpack.spread import spread
from kubeshare.core.policies.one_by_one.index import OneByOneIndex
from kubeshare.core.policies.one_by_one.policy import OneByOne, Pass
from kubeshare.core.policies.rules import FEASIBLE, Choice, Refusal
from kubeshare.core.policies.scoring import Score


def decide(ledger: Ledger, demand: Demand) -> Decision:
    """Decide where a demand is placed: :func:`kubeshare.core.policies.answers.decide`."""
    return spread(ledger, demand, answers.decide(ledger, demand, _RULES))


def score(ledger: Ledger, demand: Demand, nodes: Iterable[str]) -> dict[str, Score]:
    """Score nodes for a demand: :func:`kubeshare.core.policies.answers.score`."""
    return answers.score(ledger, demand, nodes, _RULES)


class _Binpack(OneByOne):
    """See :mod:`kubeshare.core.policies.binpack.policy`."""

    def index(self, ledger: Ledger) -> BinpackIndex:
        """See :mod:`kubeshare.core.policies.binpack.index`."""
        return ledger.index(BinpackIndex)

    def first(self, index: OneByOneIndex[Any], demand: Demand, allowed: Admitted) -> Device | None:
        """The fullest GPU."""
        return index.first(demand, allowed.unlabelled + allowed.labelled)

    def key(self, device: Device, before: Device) -> Key:
        """The memory left, then the order by node and number."""
        del before
        return key(device)

    def passes(self, ledger: Ledger, demand: Demand, *, label_in_use: bool) -> list[Pass]:
        """All devices."""
        del label_in_use
        return [(ledger.index(BinpackNodes).refreshed(), demand.memory.bytes or 0)]

    def score_new(self, node: Node, smallest: FreeGpu) -> Score:
        """After all keys: the memory, then node and model."""
        return 1, smallest.memory_bytes, natural_name(node.name), smallest.model

    def rank(self, node: Node, taken: Sequence[Found], new: Sequence[FreeGpu]) -> Score:
        """New vGPUs, memory left in all, node, GPUs, model."""
        left = sum(found.device.memory_left for found in taken)
        left += sum(kind.memory_bytes for kind in new)
        keys = [found.key for found in taken]
        return len(new), left, natural_name(node.name), keys, new

    def explain(
        self,
        state: State,
        demand: Demand,
        choice: Choice | None = None,
        infeasible: Refusal = FEASIBLE,
    ) -> dict[str, str]:
        """See :meth:`kubeshare.core.policies.rules.Rules.explain`."""
        return reasons.explain(state, demand, choice, infeasible)


_RULES: Final = _Binpack()

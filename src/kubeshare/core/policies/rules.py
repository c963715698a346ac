"""What a built-in policy consists of."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Final, TypeAlias

import msgspec

from kubeshare.core.constraints.filter import State
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies.scoring import Score
from kubeshare.core.policies.several_shares.search import Preference

Refusal: TypeAlias = tuple[str, str]
"""The field of a demand that cannot be satisfied, and why."""

FEASIBLE: Final[Refusal] = ("", "")
"""No refusal."""

RankedNode: TypeAlias = tuple[Score, str]
"""The score of a node, and its name."""


class Choice(msgspec.Struct, frozen=True):
    """The GPUs chosen for a demand, all of one node.

    Attributes:
        node: the name of the node.
        devices: one for each share, in the order of a decision.
        new: those of them that do not exist yet.
        shares: the names of the shares; empty if the demand has the short form.
    """

    node: str
    devices: tuple[Device, ...]
    new: tuple[Device, ...] = ()
    shares: tuple[str, ...] = ()


class Rules(ABC):
    """What distinguishes a policy; :mod:`kubeshare.core.policies.answers` does the rest.

    All demands have their labels as the ledger has them
    (:meth:`kubeshare.core.ledger.ledger.Ledger.comparable`), and the short form.
    """

    @abstractmethod
    def refuses(self, ledger: Ledger, demand: Demand) -> Refusal | None:
        """The field with which this policy cannot serve a demand, whatever is free, and why."""

    @abstractmethod
    def choose(self, ledger: Ledger, demand: Demand) -> Choice | None:
        """The GPUs for a demand that is not refused; None if none fit now."""

    @abstractmethod
    def score(self, ledger: Ledger, demand: Demand, nodes: Sequence[str]) -> dict[str, Score]:
        """The scores of nodes for a demand that is not refused and may use all of them."""

    @abstractmethod
    def prefer(self, node: Node, devices: Collection[Device]) -> Preference:
        """The order of the GPUs of a node, from the node and its devices, for several shares."""

    @abstractmethod
    def explain(
        self,
        state: State,
        demand: Demand,
        choice: Choice | None = None,
        infeasible: Refusal = FEASIBLE,
    ) -> dict[str, str]:
        """Why each device and node was passed over: devices first, each in natural order.

        Args:
            state: the cluster at the time of the decision.
            demand: the demand.
            choice: what was chosen, if anything.
            infeasible: the field that makes the demand infeasible, and why; empty if none does.
        """

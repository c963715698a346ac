"""Checks quotas once more after the holders of a demand are written.

Programs that decide at the same moment do not see each other's holders. Each looks at its namespace
again when the watch has delivered its own write: of two, the later one sees the earlier one's.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from kubeshare.api.quotas.policy import Quotas
from kubeshare.api.state.namespace_usage import Usage
from kubeshare.api.types.v1 import VGPU
from kubeshare.core.demand import Demand
from kubeshare.core.quota.model import group_of
from kubeshare.core.quota.namespace import is_exceeded
from kubeshare.core.quota.rows import Place, concerning, exceeded


class QuotaCheck:
    """Checks what namespaces hold against their quotas.

    Args:
        quotas: those of each namespace.
        place: node, model and group → what quotas see of a share there.
    """

    def __init__(self, quotas: Quotas, place: Callable[[str, str, str], Place]) -> None:
        self._quotas = quotas
        self._place = place

    def applies(self, demand: Demand) -> bool:
        """Whether its namespace has quotas, or it names a group, which stays on one model."""
        return bool(demand.group) or self._quotas.limit(demand.namespace)

    def exceeded(self, demand: Demand, vgpus: Sequence[VGPU], usage: Usage) -> str:
        """The quota that a namespace exceeds, or the model of the group; ``""`` for none.

        Args:
            demand: the demand.
            vgpus: those that it has shares of.
            usage: what its namespace holds, the demand included.
        """
        if is_exceeded(self._quotas.of_namespace(demand.namespace), usage.held):
            return f"a ResourceQuota of namespace {demand.namespace}"
        rows = concerning(self._quotas.by_model(demand.namespace), group_of(demand))
        if (rows or demand.group) and (other := _other_model(demand, vgpus, usage)):
            return f"group {group_of(demand)} is on {other}"
        if not rows:
            return ""
        held: Counter[Place] = Counter()
        for where, micros in usage.micros.items():
            held[self._place(*where)] += micros
        places = {
            self._place(vgpu.spec.node_name, vgpu.spec.model, group_of(demand)) for vgpu in vgpus
        }
        reasons = (exceeded(rows, held, place, 0) for place in sorted(places))
        return next(filter(None, reasons), "")


def _other_model(demand: Demand, vgpus: Sequence[VGPU], usage: Usage) -> str:
    """The model that the group of a demand is on without it, if that is another one."""
    group = group_of(demand)
    if not group:
        return ""
    left = Counter[str]()
    for at, holders in usage.holders.items():
        left[at.model] += holders if at.group == group else 0
    for vgpu in vgpus:
        left[vgpu.spec.model] -= sum(each.demand == demand.uid for each in vgpu.status.holders)
    pinned = min((model for model, holders in left.items() if model and holders > 0), default="")
    return "" if pinned in {"", *(vgpu.spec.model for vgpu in vgpus)} else pinned

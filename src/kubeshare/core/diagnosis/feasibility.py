"""Finds demands that no GPU here could satisfy even when empty."""

from kubeshare.core import reasons
from kubeshare.core.demand import NOTHING, Demand
from kubeshare.core.ledger.index.gpu_kinds import GpuKinds
from kubeshare.core.ledger.ledger import Ledger


def infeasible(ledger: Ledger, demand: Demand) -> tuple[str, str] | None:
    """The field that makes a demand infeasible in this cluster, and why; None if none."""
    index = ledger.index(GpuKinds)
    if not index.kinds:
        # The GPUs of the cluster are not known yet.
        return None
    return _infeasible_shares(index, demand) if demand.shares else _infeasible_short(index, demand)


def _infeasible_short(index: GpuKinds, demand: Demand) -> tuple[str, str] | None:
    sizes = [kind.memory_bytes for kind in index.kinds if demand.model in ("", kind.model)]
    if not sizes:
        return "model", f"no GPU of model {demand.model} in this cluster"
    largest = max(sizes)
    requested = demand.memory.on(largest)
    if requested > largest:
        has, wants = reasons.two_sizes(largest, requested)
        return "memory", f"{wants} asked, and the largest GPU has {has}"
    if demand.count > 1:
        most = index.most_on_a_node(demand.model, demand.memory)
        if demand.count > most:
            return "count", f"{demand.count} GPUs asked, and no node has more than {most} that do"
    return None


def _infeasible_shares(index: GpuKinds, demand: Demand) -> tuple[str, str] | None:
    """A share that is infeasible by itself, or more different GPUs than a node has."""
    for share in demand.shares:
        found = _infeasible_short(index, demand.reduced_to(share))
        if found:
            return f"shares.{share.name}.{found[0]}", found[1]
    needed, most = demand.different_gpus(), index.most_on_a_node(demand.model, NOTHING)
    if needed > most:
        asked = f"{needed} different GPUs asked"
        return "shares", f"{asked}, and no node has more than {most} of one model"
    return None

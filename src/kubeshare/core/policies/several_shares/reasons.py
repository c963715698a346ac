"""Explains why a demand of several shares has no place."""

from kubeshare.core import reasons
from kubeshare.core.constraints.filter import Filter, State
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.natural_sort import natural
from kubeshare.core.policies.rules import Choice, Refusal
from kubeshare.core.policies.several_shares.search import largest_first


def explain(
    state: State, demand: Demand, choice: Choice | None, infeasible: Refusal
) -> dict[str, str]:
    """See :meth:`kubeshare.core.policies.rules.Rules.explain`."""
    node = choice.node if choice else ""
    taken = {device.id for device in choice.devices} if choice else set()
    field, never = infeasible
    allowed = Filter(state, demand)
    devices = [device for device in state.devices.values() if allowed.admits(device.node)]
    devices.sort(key=lambda device: (natural(device.node), natural(device.name), device.id))
    result = {}
    for device in devices:
        if device.id not in taken:
            result[device.path] = allowed.why_not(device) or _why_shares(
                device, demand, never, node
            )
    for name in sorted(state.nodes, key=natural):
        if not allowed.admits(name):
            result[name] = reasons.NOT_ASKED
        elif name != node:
            result[name] = never or _why_not_on(state.nodes[name], demand, node)
    return result | ({field: never} if field else {})


def _why_shares(device: Device, demand: Demand, never: str, node: str) -> str:
    """Why a device that the demand may use was not chosen for any of its shares."""
    fitting, why_not = [], []
    for share in largest_first(demand.shares):
        why = reasons.room(device, demand.reduced_to(share))
        if why:
            why_not.append(f"share {share.name}: {why}")
        else:
            fitting.append(share.name)
    if not fitting:
        return "; ".join(why_not)
    if never:
        return never
    shares = f"share{'s' * (len(fitting) > 1)} {', '.join(fitting)}"
    if node:
        return f"fits {shares}, but others on {node} fit better or come first"
    return f"fits {shares}, but not all shares fit on {device.node} together"


def _why_not_on(node: Node, demand: Demand, chosen: str) -> str:
    """Why a node was not chosen as a whole."""
    if chosen:
        return f"{chosen} fits better or comes first"
    unfit = [
        f"share {share.name}: {why}"
        for share in largest_first(demand.shares)
        if (why := reasons.no_free_gpu(node.free, demand.reduced_to(share)))
    ]
    return "; ".join(unfit) or f"not all shares of {demand.name} fit on its free GPUs"

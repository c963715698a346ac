"""Reasons of the locality policy for equal shares of several GPUs."""

from collections import Counter

from kubeshare.core import reasons
from kubeshare.core.constraints.filter import Filter, State
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.natural_sort import natural
from kubeshare.core.policies import opening
from kubeshare.core.policies.rules import Choice


def explain(state: State, demand: Demand, choice: Choice | None) -> dict[str, str]:
    """See :meth:`kubeshare.core.policies.rules.Rules.explain`."""
    allowed = Filter(state, demand)
    taken = {device.id for device in choice.devices} if choice else set()
    devices = [device for device in state.devices.values() if allowed.admits(device.node)]
    devices.sort(key=lambda device: (natural(device.node), device.order))
    why_not = {device.id: allowed.why_not(device) for device in devices}
    fitting = Counter((each.node, each.model) for each in devices if not why_not[each.id])
    for name, node in state.nodes.items():
        free = () if allowed.only else node.free
        fitting.update((name, gpu.model) for gpu in opening.suitable(free, demand))
    result = {}
    for device in devices:
        alike = fitting[device.node, device.model]
        if device.id not in taken:
            result[device.path] = why_not[device.id] or _why_others(device, demand, choice, alike)
    for name in sorted(state.nodes, key=natural):
        if not allowed.admits(name):
            result[name] = reasons.NOT_ASKED
        elif allowed.only and not choice:
            result[name] = allowed.only
        elif not choice or (choice.new and name != choice.node):
            alike = max((fitting[kind] for kind in fitting if kind[0] == name), default=0)
            result[name] = _why_no_new(state.nodes[name], demand, choice, alike)
    return result


def _why_others(device: Device, demand: Demand, choice: Choice | None, alike: int) -> str:
    """Why others were chosen over a device that fits; `alike` GPUs of its node and model fit."""
    if choice is None or alike < demand.count:
        return f"fits, but only {alike} of {demand.count} of its model on {device.node} do"
    return f"fits, but those on {choice.node} fit better or come first"


def _why_no_new(node: Node, demand: Demand, choice: Choice | None, alike: int) -> str:
    """Why no new vGPUs were opened on a node where `alike` GPUs of one model fit."""
    reason = reasons.no_free_gpu(node.free, demand)
    if reason:
        return reason
    if choice is None or alike < demand.count:
        return f"{alike} suitable GPUs of one model, {demand.count} asked"
    return f"those on {choice.node} fit better or come first"

"""Finds moves of demands that free whole GPUs, the cheapest first.

A move releases a demand and places it again, by the policy, on GPUs that others use already. The
search is greedy: GPUs are tried in the order of what emptying them costs, and each is emptied
completely or left as it is. A GPU that received a demand is not emptied later, so no demand moves
twice. The search is not exhaustive: other moves may free more GPUs.
"""

from collections.abc import Iterator, Mapping

import msgspec

from kubeshare.core.decision import commit
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device
from kubeshare.core.ledger.holder import Holder
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.natural_sort import natural
from kubeshare.core.policies import Policy
from kubeshare.core.units import MICROS, Memory


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """A demand that is released and placed again.

    Attributes:
        demand: the demand.
        before: the ids of the devices that it leaves, sorted.
        after: the ids of the devices that it is placed on, in the order of its shares.
        micros: what it reserves on the devices that it leaves, in all.
    """

    demand: Demand
    before: tuple[str, ...]
    after: tuple[str, ...]
    micros: int


class Step(msgspec.Struct, frozen=True):
    """Moves that together free GPUs.

    Attributes:
        frees: the ids of the devices that are idle after them, sorted.
        moves: in the order in which they are made; each fits once those before it are made.
    """

    frees: tuple[str, ...]
    moves: tuple[Move, ...]

    @property
    def micros(self) -> int:
        """What the moved demands reserve."""
        return sum(move.micros for move in self.moves)


def defragment(ledger: Ledger, policy: Policy, movable: Mapping[str, Demand]) -> list[Step]:
    """The steps that free whole GPUs: fewest moves first, then the smallest demands.

    Args:
        ledger: the cluster; unchanged afterwards.
        policy: places the demands that move. It sees no idle vGPU and no free GPU.
        movable: uid → demand of those that may move; all others stay.

    Returns:
        the steps in the order in which they are made; each needs those before it.
    """
    with ledger.what_if():
        _hide_unused(ledger)
        return list(_steps(ledger, policy, movable))


def demand_of(holder: Holder, device: Device) -> Demand:
    """The demand that a holder stands for, as far as the holder tells.

    It does not say which nodes and models the demand allows: the model is taken to be the
    present one, and every node to be allowed.
    """
    return Demand(
        uid=holder.demand,
        name=holder.name,
        namespace=holder.namespace,
        request_micros=holder.request_micros,
        limit_micros=holder.limit_micros,
        limit_alone_micros=holder.limit_alone_micros,
        latency_sensitive=holder.latency_sensitive,
        memory=Memory(bytes=holder.memory_bytes),
        affinity=holder.affinity,
        anti_affinity=holder.anti_affinity,
        exclusion=holder.exclusion,
        model=device.model,
        group=holder.group,
        labels_qualified=holder.labels_qualified,
    )


class _CannotMoveError(Exception):
    """A demand fits nowhere else."""


def _hide_unused(ledger: Ledger) -> None:
    """Keep all moves away from idle vGPUs and free GPUs: using one would gain nothing."""
    for device in list(ledger.devices.values()):
        if device.idle:
            ledger.mark(device.id, fenced=True)
    for node in list(ledger.nodes.values()):
        if node.free:
            ledger.set_free(node.name, ())


def _steps(ledger: Ledger, policy: Policy, movable: Mapping[str, Demand]) -> Iterator[Step]:
    received: set[str] = set()
    for device_id in _by_cost(ledger, movable):
        device = ledger.devices[device_id]
        if device.idle or device_id in received:
            continue
        try:
            with ledger.transaction():
                step = _empty(ledger, policy, movable, device)
        except _CannotMoveError:
            continue
        received.update(*(move.after for move in step.moves))
        for freed in step.frees:
            ledger.mark(freed, fenced=True)
        yield step


def _by_cost(ledger: Ledger, movable: Mapping[str, Demand]) -> list[str]:
    """The devices that could be emptied, those first whose demands are fewest, then smallest."""
    costs = [
        (len(uids), MICROS - device.compute_left, natural(device.path), device.id)
        for device in ledger.devices.values()
        if device.healthy
        and not device.fenced
        and device.node in ledger.nodes
        and (uids := {holder.demand for holder in device.holders}) <= movable.keys()
    ]
    return [device_id for *_, device_id in sorted(costs)]


def _empty(ledger: Ledger, policy: Policy, movable: Mapping[str, Demand], device: Device) -> Step:
    """Move all demands of a device elsewhere, the largest first.

    Raises:
        _CannotMoveError: one of them fits nowhere else.
    """
    ledger.mark(device.id, fenced=True)
    sizes = {
        holder.demand: (holder.request_micros, holder.memory_bytes) for holder in device.holders
    }
    order = sorted(sizes, key=lambda uid: (*(-each for each in sizes[uid]), uid))
    moves = tuple([_move(ledger, policy, movable[uid]) for uid in order])
    left = {device_id for move in moves for device_id in move.before}
    frees = tuple(sorted(each for each in left if ledger.devices[each].idle))
    return Step(frees, moves)


def _move(ledger: Ledger, policy: Policy, demand: Demand) -> Move:
    before = tuple(sorted(ledger.held_by(demand.uid)))
    micros = sum(
        holder.request_micros
        for device_id in before
        for holder in ledger.devices[device_id].holders
        if holder.demand == demand.uid
    )
    ledger.release(demand.uid)
    decision = policy(ledger, demand)
    if decision.outcome != "bound" or decision.new:
        raise _CannotMoveError
    commit(ledger, demand, decision)
    return Move(demand=demand, before=before, after=decision.devices, micros=micros)

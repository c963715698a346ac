"""Placement of several different shares once more, written from its description and nothing else.

It tries all sets of GPUs of every node for each share, in the order that the policy prefers them.
"""

from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import msgspec

from core.policies import slow_binpack, slow_locality, slow_topology
from core.policies.slow_locality import by_id
from kubeshare.core.demand import Demand, Share
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.holder import Holder
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.topology import Level

WHOLE = 1_000_000
Answer = tuple[str, str | None, list[tuple[str, list[str]]]]
"""Outcome, node, and name of each share with its GPUs; see :func:`in_short`."""


class Gpu(NamedTuple):
    before: Device
    new: bool
    holders: tuple[Holder, ...]
    shares: tuple[Share, ...]

    @property
    def left(self) -> tuple[int, int]:
        compute = sum(holder.request_micros for holder in self.holders)
        memory = sum(holder.memory_bytes for holder in self.holders)
        return WHOLE - compute, self.before.memory_bytes - memory


class SlowPolicy(NamedTuple):
    """A policy: its answer in the short form, and its order of the GPUs for one share."""

    decide: Callable[[Ledger, Demand], tuple[str, str | None, object]]
    order: Callable[..., Any]


def slow_decide(policy: SlowPolicy, ledger: Ledger, demand: Demand) -> Answer:
    if rejected(policy, ledger, demand):
        return "rejected", None, []
    shares = sorted(demand.shares, key=size)
    fitting = {}
    for node in ledger.nodes.values():
        if demand.nodes is None or node.name in demand.nodes:
            order = partial(policy.order, ledger, node)
            placed = place(order, demand, shares, gpus_of(ledger, node, demand))
            if placed is not None:
                fitting[node.name] = placed
    if not fitting:
        return "pending", None, []
    lead = msgspec.structs.replace(short(demand, shares[0]), nodes=frozenset(fitting))
    _, name, _ = policy.decide(ledger, lead)
    if name is None:
        return "pending", None, []
    placed = {share.name: fitting[name][share.name] for share in demand.shares}
    new = {device.id for devices in placed.values() for device in devices}
    new -= ledger.devices.keys()
    return "bound", name, in_short(placed, new)


def in_short(placed: dict[str, list[Device]], new: set[str]) -> list[tuple[str, list[str]]]:
    """The ids for each share, sorted; of a new GPU its kind and all shares on it."""

    def named(device: Device) -> str:
        if device.id not in new:
            return device.id
        beside = sorted(name for name, devices in placed.items() if device in devices)
        return f"new {device.model} {device.memory_bytes} {beside}"

    return [(name, sorted(map(named, devices))) for name, devices in placed.items()]


def size(share: Share) -> tuple[int, ...]:
    memory = share.memory
    return -share.request_micros, -share.count, -(memory.micros or 0), -(memory.bytes or 0)


def short(demand: Demand, share: Share) -> Demand:
    return Demand(
        uid=demand.uid,
        name=demand.name,
        namespace=demand.namespace,
        request_micros=share.request_micros,
        memory=share.memory,
        proportional=share.proportional,
        count=share.count,
        affinity=demand.affinity,
        anti_affinity=demand.anti_affinity,
        exclusion=demand.exclusion,
        model=demand.model,
        nodes=demand.nodes,
    )


def rejected(policy: SlowPolicy, ledger: Ledger, demand: Demand) -> bool:
    for share in demand.shares:
        if policy.decide(ledger, short(demand, share))[0] == "rejected":
            return True
    gpus = [(device.node, device.model) for device in ledger.devices.values()]
    gpus += [(node.name, gpu.model) for node in ledger.nodes.values() for gpu in node.free]
    known = gpus + [("", gpu.model) for node in ledger.nodes.values() for gpu in node.kinds]
    suitable = [gpu for gpu in gpus if demand.model in (gpu[1], "")]
    most = max((suitable.count(gpu) for gpu in suitable), default=0)
    # A node has a GPU of each kind that it is said to have, and no more are known.
    most = max(most, int(any(demand.model in (model, "") for _, model in known)))
    return bool(known) and different(demand) > most


def different(demand: Demand) -> int:
    """The most GPUs that shares of one group have."""
    return max(
        sum(other.count for other in demand.shares if apart(one, other, demand.shares))
        for one in demand.shares
    )


def gpus_of(ledger: Ledger, node: Node, demand: Demand) -> list[Gpu]:
    carried = any(
        slow_locality.carries(ledger, device, demand) for device in ledger.devices.values()
    )
    gpus = []
    nothing = short(demand, Share())
    for device in ledger.devices.values():
        if device.node != node.name or not slow_locality.usable(ledger, device, demand):
            continue
        if not slow_locality.feasible(ledger, device, nothing):
            continue
        if not slow_locality.labels_allow(ledger, device, demand):
            continue
        gpus.append(Gpu(device, False, device.holders, ()))
    if not carried:
        for number, kind in enumerate(node.free):
            if demand.model in (kind.model, ""):
                device = Device(
                    id=f"new/{number}",
                    node=node.name,
                    model=kind.model,
                    memory_bytes=kind.memory_bytes,
                )
                gpus.append(Gpu(device, True, (), ()))
    return gpus


def apart(one: Share, other: Share, shares: tuple[Share, ...]) -> bool:
    """Whether a chain of shares, each with a container of the one before, joins both."""
    reached = [one]
    for share in reached:
        for further in shares:
            if further not in reached and (
                not share.containers
                or not further.containers
                or set(share.containers) & set(further.containers)
            ):
                reached.append(further)  # the loop goes on with it
    return other in reached


def fits(gpu: Gpu, share: Share, shares: tuple[Share, ...]) -> bool:
    if any(apart(share, other, shares) for other in gpu.shares):
        return False
    compute, memory = gpu.left
    total = gpu.before.memory_bytes
    asked = share.memory.on(total)
    micros = asked * WHOLE // total if share.proportional else share.request_micros
    return micros <= compute and asked <= memory and len(gpu.holders) < 128


def place(
    order: Callable[[Demand, list[Gpu], tuple[Gpu, ...]], Any],
    demand: Demand,
    shares: list[Share],
    gpus: list[Gpu],
) -> dict[str, list[Device]] | None:
    if not shares:
        return {}
    share, *others = shares
    taken = [gpu for gpu in gpus if gpu.shares]
    options: list[tuple[Any, tuple[int, ...]]] = []
    for numbers in combinations(range(len(gpus)), share.count):
        chosen = tuple(gpus[number] for number in numbers)
        models = {gpu.before.model for gpu in (*chosen, *taken)}
        if len(models) == 1 and all(fits(gpu, share, demand.shares) for gpu in chosen):
            key = order(short(demand, share), taken, chosen)
            if key is not None:
                options.append((key, numbers))
    for _, numbers in sorted(options, key=lambda option: option[0]):
        after = list(gpus)
        for number in numbers:
            gpu = gpus[number]
            total = gpu.before.memory_bytes
            micros = share.request_micros
            if share.proportional:
                micros = share.memory.on(total) * WHOLE // total
            holder = Holder(
                demand=demand.uid,
                name=demand.name,
                share=share.name,
                request_micros=micros,
                memory_bytes=share.memory.on(total),
            )
            after[number] = gpu._replace(
                holders=(*gpu.holders, holder), shares=(*gpu.shares, share)
            )
        rest = place(order, demand, others, after)
        if rest is not None:
            return {share.name: [gpus[number].before for number in numbers], **rest}
    return None


def by_algorithm_1(
    ledger: Ledger, node: Node, wanted: Demand, taken: list[Gpu], chosen: tuple[Gpu, ...]
) -> Any:
    def key(gpu: Gpu) -> Any:
        compute, memory = gpu.left
        labelled = bool(slow_locality.affinities(gpu.before))
        sign = -1 if labelled else 1
        return gpu.new, labelled, sign * compute, sign * memory, by_id(gpu.before)

    return sorted(map(key, chosen))


def by_fullness(
    ledger: Ledger, node: Node, wanted: Demand, taken: list[Gpu], chosen: tuple[Gpu, ...]
) -> Any:
    return sorted(
        (gpu.new, gpu.left[1], slow_binpack.by_number(gpu.before), gpu.before.id) for gpu in chosen
    )


def by_links(
    ledger: Ledger, node: Node, wanted: Demand, taken: list[Gpu], chosen: tuple[Gpu, ...]
) -> Any:
    view = slow_topology.SlowNode(ledger, node)
    numbers = {device.id: number for number, device in view.gpus.items()}
    known = [numbers.get(gpu.before.id) for gpu in chosen]
    whole = wanted.request_micros == WHOLE
    if whole and any(gpu.holders for gpu in chosen):
        return None
    order = [
        (number is None, number or 0, by_id(gpu.before))
        for number, gpu in zip(known, chosen, strict=True)
    ]
    if taken:
        return sorted(
            (*_distance(view, numbers, gpu, taken), bool(not gpu.holders), *gpu.left, place)
            for gpu, place in zip(chosen, order, strict=True)
        )
    places = tuple(number for number in sorted(number for number in known if number is not None))
    if len(places) < len(chosen):
        return (3, sorted(order)) if whole else (2, order)
    if whole:
        return 0, view.score(wanted, places), places
    if chosen[0].holders:
        return 0, chosen[0].left, order
    return 1, view.score(wanted, places), order


def _distance(
    view: slow_topology.SlowNode, numbers: dict[str, int], gpu: Gpu, taken: list[Gpu]
) -> tuple[int, int]:
    levels = []
    for other in taken:
        one, two = numbers.get(gpu.before.id), numbers.get(other.before.id)
        if gpu.before.id == other.before.id:
            levels.append(0)
        elif one is None or two is None:
            levels.append(7 * Level.NVLINK)
        else:
            levels.append(view.links[one][two])
    return max(levels), sum(levels)


LOCALITY = SlowPolicy(slow_locality.slow_decide, by_algorithm_1)
BINPACK = SlowPolicy(slow_binpack.slow_decide, by_fullness)
TOPOLOGY = SlowPolicy(slow_topology.slow_decide, by_links)

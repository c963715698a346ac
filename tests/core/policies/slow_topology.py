"""Placement by topology once more, written from its description and nothing else.

It looks at every set of GPUs of every node, and finds groups by walking the links. It
shares no code with the real policy but the plain data that both look at. A free GPU that can be
selected is a device whose id is "new on" its UUID; another new one is "new".
"""

from functools import cache
from itertools import combinations
from typing import Any, NamedTuple

from core.policies.slow_locality import by_name, labels_allow, must_join, used
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.topology import Level

Answer = tuple[str, str | None, tuple[str, ...]]
WHOLE = 1_000_000


class SlowGroup(NamedTuple):
    level: int
    members: frozenset[int]


def slow_decide(ledger: Ledger, demand: Demand) -> Answer:
    if demand.device_id:
        return "rejected", None, ()
    if demand.count > 1 and demand.request_micros < WHOLE:
        return "rejected", None, ()
    views = [
        SlowNode(ledger, node)
        for node in ledger.nodes.values()
        if demand.nodes is None or node.name in demand.nodes
    ]
    found: list[tuple[Any, ...]] = []
    if demand.request_micros < WHOLE:
        for view in views:
            found += view.fractions(demand)
    if not found:
        for view in views:
            found += view.sets(demand)
    opened = [option for view in views for option in view.opening(demand)]
    if not found and opened:
        *_, name, ids = min(opened)
        return "bound", next(view.name for view in views if by_name(view.name) == name), ids
    if found:
        *_, name, numbers = min(found)
        view = next(view for view in views if by_name(view.name) == name)
        return "bound", view.name, tuple(view.gpus[number].id for number in numbers)
    return ("rejected" if never(ledger, demand) else "pending"), None, ()


def never(ledger: Ledger, demand: Demand) -> bool:
    """No node has so many large enough GPUs of one model, in use or not."""
    kinds = [(device.node, device.model, device.memory_bytes) for device in ledger.devices.values()]
    for node in ledger.nodes.values():
        kinds += [(node.name, gpu.model, gpu.memory_bytes) for gpu in node.free]
    known = [(model, memory) for _, model, memory in kinds]
    known += [(gpu.model, gpu.memory_bytes) for node in ledger.nodes.values() for gpu in node.kinds]

    def suits(model: str, memory: int) -> bool:
        return demand.model in (model, "") and demand.memory.on(memory) <= memory

    if known and not any(suits(*kind) for kind in known):
        return True
    most = max(
        (
            sum(
                1
                for node, model, memory in kinds
                if (node, model) == place and suits(model, memory)
            )
            for place in {(node, model) for node, model, _ in kinds}
        ),
        default=0,
    )
    return bool(known) and demand.count > 1 and demand.count > most


class SlowNode:
    def __init__(self, ledger: Ledger, node: Node) -> None:
        self.ledger = ledger
        devices = [device for device in ledger.devices.values() if device.node == node.name]
        rest = list(node.free)
        for gpu in node.selectable:
            rest.remove(gpu.kind)
            devices.append(
                Device(
                    id=f"new on {gpu.uuid}",
                    node=node.name,
                    row=gpu.row,
                    model=gpu.kind.model,
                    memory_bytes=gpu.kind.memory_bytes,
                )
            )
        self.rest = rest
        self.name = node.name
        self.gpus: dict[int, Device] = {}
        numbered = [number_of(device) for device in devices if number_of(device) is not None]
        rows = range(len(node.links))
        if (
            node.links
            and len(set(numbered)) == len(devices)
            and all(number in rows for number in numbered)
        ):
            self.links = node.links
            for device in devices:
                number = number_of(device)
                assert number is not None
                self.gpus[number] = device
        else:
            size = range(len(devices))
            self.links = tuple(tuple(0 if a == b else Level.SYS for a in size) for b in size)
            devices.sort(key=lambda device: by_name(device.name))
            devices.sort(key=is_free)
            self.gpus = dict(enumerate(devices))
        self.groups = groups(self.links)
        serving = [d for d in devices if d.healthy and not d.fenced]
        self.free = sum(WHOLE - used(device)[0] for device in serving) + WHOLE * len(rest)
        self.idle = {
            number
            for number, device in self.gpus.items()
            if device in serving and not device.holders
        }
        self.busy = [
            number for number, device in self.gpus.items() if device in serving and device.holders
        ]

    def fractions(self, demand: Demand) -> list[tuple[Any, ...]]:
        """Fragment: (cores, memory, free, name, number)."""
        found = []
        for number in self.busy:
            device = self.gpus[number]
            cores, memory = WHOLE - used(device)[0], device.memory_bytes - used(device)[1]
            if (
                demand.model in (device.model, "")
                and demand.request_micros <= cores
                and demand.memory.on(device.memory_bytes) <= memory
                and len(device.holders) < 128
                and labels_allow(self.ledger, device, demand)
            ):
                found.append((cores, memory, self.free, by_name(self.name), (number,)))
        return found

    def sets(self, demand: Demand) -> list[tuple[Any, ...]]:
        """All sets that would do: (score, free, name, numbers)."""
        found = []
        for chosen in combinations(sorted(self.idle), demand.count):
            devices = [self.gpus[number] for number in chosen]
            if len({device.model for device in devices}) > 1:
                continue
            if all(
                demand.model in (device.model, "")
                and demand.memory.on(device.memory_bytes) <= device.memory_bytes
                and labels_allow(self.ledger, device, demand)
                for device in devices
            ):
                found.append((self.score(demand, chosen), self.free, by_name(self.name), chosen))
        return found

    def opening(self, demand: Demand) -> list[tuple[Any, ...]]:
        """With new ones that the plugin chooses: (opened, memory, free, name, ids)."""
        found: list[tuple[Any, ...]] = []
        if must_join(self.ledger, demand):
            return found
        count = demand.count if demand.request_micros == WHOLE else 1
        for model in {gpu.model for gpu in self.rest}:
            if demand.model not in (model, ""):
                continue
            idle = [
                self.gpus[number]
                for number in sorted(self.idle)
                if self.gpus[number].model == model
                and large_enough(self.gpus[number].memory_bytes, demand)
            ]
            free = [
                gpu.memory_bytes
                for gpu in self.rest
                if gpu.model == model and large_enough(gpu.memory_bytes, demand)
            ]
            opened = count - len(idle)
            if 0 < opened <= len(free):
                ids = (*(device.id for device in idle), *["new"] * opened)
                memory = sum(sorted(free)[:opened])
                found.append((opened, memory, model, self.free, by_name(self.name), ids))
        # On one node the first model; between nodes it does not matter.
        best = min(found, default=None)
        return [(*best[:2], *best[3:])] if best else []

    def score(self, demand: Demand, chosen: tuple[int, ...]) -> tuple[Any, ...]:
        if demand.request_micros < WHOLE:
            return (self.cost(chosen[0]), self.parent_is_whole(chosen[0]))
        if demand.count == 1:
            gpu = chosen[0]
            return (
                not self.all_siblings_are_busy(gpu),
                self.cost(gpu),
                self.broken(chosen),
                self.idle_around(chosen),
            )
        pairs = [self.links[a][b] for a, b in combinations(chosen, 2)]
        return (max(pairs), sum(pairs), self.broken(chosen), self.idle_around(chosen))

    def around(self, chosen: tuple[int, ...]) -> list[SlowGroup]:
        return sorted(
            (group for group in self.groups if group.members >= set(chosen)),
            key=lambda group: len(group.members),
        )

    def cost(self, gpu: int) -> int:
        around = self.around((gpu,))
        return around[0].level if around else 0

    def parent_is_whole(self, gpu: int) -> bool:
        around = self.around((gpu,))
        return bool(around) and around[0].members <= self.idle

    def all_siblings_are_busy(self, gpu: int) -> bool:
        around = self.around((gpu,))
        siblings = around[0].members - {gpu} if around else frozenset()
        return bool(siblings) and not siblings & self.idle

    def broken(self, chosen: tuple[int, ...]) -> int:
        taken = set(chosen)
        return sum(
            group.members <= self.idle
            and bool(group.members & taken)
            and not group.members <= taken
            for group in self.groups
        )

    def idle_around(self, chosen: tuple[int, ...]) -> list[int]:
        return [len(group.members & self.idle) for group in self.around(chosen)]


def large_enough(total: int, demand: Demand) -> bool:
    return demand.memory.on(total) <= total


def number_of(device: Device) -> int | None:
    return device.index if device.row is None else device.row


def is_free(device: Device) -> bool:
    return device.id.startswith("new on ")


@cache
def groups(links: tuple[tuple[int, ...], ...]) -> list[SlowGroup]:
    """GPUs that reach each other by links of a level or nearer, unless a nearer level does."""
    found: dict[frozenset[int], int] = {}
    for level in sorted({level for row in links for level in row} - {0}):
        for start in range(len(links)):
            reached, waiting = {start}, [start]
            while waiting:
                here = waiting.pop()
                for there in range(len(links)):
                    if there not in reached and links[here][there] <= level:
                        reached.add(there)
                        waiting.append(there)
            if len(reached) > 1:
                found.setdefault(frozenset(reached), level)
    return [SlowGroup(level, members) for members, level in found.items()]

"""What bin packing costs on one node and over ten thousand, and `kubeshare plan` an event.

Times are of the processor: a decision waits for nothing, and a busy neighbour is no
part of it.
"""

import gc
import random
import resource
import subprocess
import tempfile
import time
from collections import deque
from pathlib import Path

from bench.node.machine import KUBESHARE
from bench.report import line, median

from core.policies.slow_binpack import slow_decide
from kubeshare.core.decision import commit
from kubeshare.core.demand import Demand, Memory
from kubeshare.core.diagnosis.explain import shortest_change
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.holder import Holder
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies.binpack.policy import decide
from kubeshare.core.units import MI, MICROS

_GPUS = 8
_MEMORY = 16276
_BOUND = 3_000
_WARM = 200
_AT_ONCE = 100
_EVENTS = 100_000
_EXPLAINED_NODES = 1_250


def run() -> list[bool]:
    """A node alone, one of many, the best of many; explaining; a long file."""
    return [
        _decisions("one node of 8 GPUs", 1, "<= 10", 10),
        _decisions("a given node of 10 000", 10_000, "<= 60", 60, given=True),
        _decisions("the best of 10 000 nodes of 8 GPUs", 10_000, "<= 60", 60),
        _change(),
        _plan(),
    ]


def _cluster(nodes: int, source: random.Random) -> Ledger:
    """Half full, by gpushare's pods."""
    devices = []
    for node in range(nodes):
        for index in range(_GPUS):
            left = source.randint(0, _MEMORY)
            holders: list[Holder] = []
            while left < _MEMORY and len(holders) < 4:
                size = source.randint(1, _MEMORY - left)
                left += size
                name = f"pod-{node}-{index}-{len(holders)}"
                request = size * MICROS // _MEMORY
                holder = Holder(
                    demand=name, name=name, request_micros=request, memory_bytes=size * MI
                )
                holders.append(holder)
            devices.append(
                Device(
                    id=f"n{node}/{index}",
                    node=f"n{node}",
                    index=index,
                    memory_bytes=_MEMORY * MI,
                    holders=tuple(holders),
                )
            )
    return Ledger([Node(f"n{node}") for node in range(nodes)], devices)


def _pod(number: int, source: random.Random, nodes: int, *, given: bool) -> Demand:
    name = f"demand-{number}"
    return Demand(
        uid=name,
        name=name,
        request_micros=0,
        memory=Memory(bytes=source.choice([512, 1024, 2048, 4069, 8138]) * MI),
        proportional=True,
        nodes=frozenset([f"n{source.randrange(nodes)}"]) if given else None,
    )


def _decisions(what: str, nodes: int, goal: str, most_us: float, *, given: bool = False) -> bool:
    source = random.Random(5)
    ledger = _cluster(nodes, source)
    decide(ledger, _pod(-1, source, nodes, given=given))  # makes the index
    gc.collect()
    gc.freeze()
    held: deque[str] = deque()
    decisions: list[float] = []
    records: list[float] = []
    number = 0
    while len(decisions) < _WARM + _BOUND:
        number += 1
        demand = _pod(number, source, nodes, given=given)
        begun = time.thread_time_ns()
        decision = decide(ledger, demand)
        decided = time.thread_time_ns()
        if decision.outcome == "bound":
            commit(ledger, demand, decision)
            records.append((time.thread_time_ns() - decided) / 1000)
            decisions.append((decided - begun) / 1000)
            held.append(demand.uid)
        if held and (len(held) > _AT_ONCE or decision.outcome != "bound"):
            ledger.release(held.popleft())
    gc.unfreeze()
    cost = median(decisions[_WARM:])
    slow = _slow(ledger, source, nodes, given=given) if nodes == 1 else None
    return line(
        f"binpack, {what}: bound decision, µs",
        f"{goal} median",
        cost,
        met=cost <= most_us,
        p99=round(sorted(decisions[_WARM:])[_BOUND * 99 // 100], 1),
        record_us=round(median(records[_WARM:]), 1),
        brute_force_us=slow,
    )


def _slow(ledger: Ledger, source: random.Random, nodes: int, *, given: bool) -> float:
    """What the slow reference costs on the same node, in µs."""
    costs = []
    for number in range(50):
        demand = _pod(-number, source, nodes, given=given)
        begun = time.thread_time_ns()
        slow_decide(ledger, demand)
        costs.append((time.thread_time_ns() - begun) / 1000)
    return round(median(costs), 1)


def _change() -> bool:
    """The shortest list of who would have to leave, where 10 000 GPUs are full."""
    source = random.Random(6)
    ledger = _cluster(_EXPLAINED_NODES, source)
    whole = Demand(
        uid="whole",
        name="whole",
        request_micros=0,
        memory=Memory(bytes=_MEMORY * MI),
        proportional=True,
    )
    for device in [each for each in ledger.devices.values() if each.idle]:
        ledger.mark(device.id, fenced=True)
    costs = []
    for _ in range(5):
        begun = time.thread_time_ns()
        change = shortest_change(decide, ledger, whole)
        costs.append((time.thread_time_ns() - begun) / 1e6)
        assert change is not None
        assert len(change.leave) == 1
    value = median(costs)
    what = f"whose leaving would help, {_EXPLAINED_NODES * _GPUS} GPUs, ms"
    return line(what, "<= 50 median", value, met=value <= 50)


def _plan() -> bool:
    """A long file through the command, start included."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scenario.yaml"
        _write_scenario(path)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with Path("/dev/null").open("wb") as nowhere:
            command = [KUBESHARE, "plan", str(path), "-o", "json"]
            subprocess.run(command, stdout=nowhere, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    cost = seconds * 1e6 / _EVENTS
    return line(
        f"kubeshare plan, {_EVENTS} events on 16 GPUs: processor time an event, µs",
        "<= 200",
        cost,
        met=cost <= 200,
    )


def _write_scenario(path: Path) -> None:
    source = random.Random(7)
    live: list[int] = []
    with path.open("w") as file:
        file.write("policy: locality\nnodes:\n- {name: n1, free: 8}\n- {name: n2, free: 8}\n")
        file.write("events:\n")
        for number in range(_EVENTS):
            if len(live) > 40 or (live and source.random() < 0.45):
                leaver = live.pop(source.randrange(len(live)))
                file.write(f"- release: p{leaver}\n")
            else:
                share = source.randint(1, 5)
                file.write(f"- request: {{name: p{number}, request: 0.{share}}}\n")
                live.append(number)

"""What bin packing costs on one node and on many, and what `kubeshare plan` costs an event.

Times are processor time: a decision waits for nothing, and a busy neighbour does not count.
"""

import gc
import random
import resource
import subprocess
import tempfile
import time
from collections import deque
from pathlib import Path

import msgspec
from bench.node.machine import KUBESHARE
from bench.report import NO_GOAL, Met, median, percentile, report, time_at_most

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
_BOUND = 1_000
_ROUNDS = 5
_PLANS = 3
_WARM = 200
_AT_ONCE = 100
_EVENTS = 100_000
_EXPLAINED_NODES = 1_250


def run() -> list[Met]:
    """A node alone, one of many, the best of many; explaining; a long file."""
    courses = [
        _Course("one node of 8 GPUs", 1, 10),
        _Course("a given node of 10 000", 10_000, 60, given=True),
        _Course("the best of 12 500 nodes of 8 GPUs", 12_500, 40),
        _Course("the best of 12 500 nodes, labels on 30 %", 12_500, 40, labelled=True),
    ]
    gc.collect()
    gc.freeze()
    for _ in range(_ROUNDS):
        for course in courses:
            course.round()
    gc.unfreeze()
    decisions = [met for course in courses for met in course.report()]
    courses.clear()
    return [*decisions, _change(), _plan()]


def half_full(nodes: int, source: random.Random) -> Ledger:
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


def a_pod(number: int, source: random.Random, nodes: int, *, given: bool) -> Demand:
    name = f"demand-{number}"
    return Demand(
        uid=name,
        name=name,
        request_micros=0,
        memory=Memory(bytes=source.choice([512, 1024, 2048, 4069, 8138]) * MI),
        proportional=True,
        nodes=frozenset([f"n{source.randrange(nodes)}"]) if given else None,
    )


def _label(source: random.Random) -> dict[str, str]:
    """One of a hundred labels of one kind in 30 % of all cases."""
    if source.random() >= 0.3:
        return {}
    kind = source.choice(("affinity", "anti_affinity", "exclusion"))
    return {kind: f"label-{source.randrange(100)}"}


def _with_label(device: Device, source: random.Random) -> Device:
    """The device, with one label of all its holders or none."""
    label = _label(source)
    holders = [msgspec.structs.replace(holder, **label) for holder in device.holders]
    return msgspec.structs.replace(device, holders=tuple(holders))


class _Course:
    """A cluster on which as many pods come as go, and what each costs in µs."""

    def __init__(
        self, what: str, nodes: int, most_us: float, *, given: bool = False, labelled: bool = False
    ) -> None:
        self._labelled = labelled
        self._name = f"binpack, {what}: bound decision"
        self._nodes, self._most_us, self._given = nodes, most_us, given
        self._source = random.Random(5)
        self._ledger = half_full(nodes, self._source)
        if labelled:
            for device in list(self._ledger.devices.values()):
                self._ledger.set_device(_with_label(device, self._source))
        self._held: deque[str] = deque()
        self._number = 0
        self._decisions: list[list[float]] = []
        self._records: list[float] = []
        self._slow: list[float] = []
        decide(self._ledger, self._pod())  # makes the index
        self._run(_WARM)

    def round(self) -> None:
        """Measure one round, on one node the slow reference too."""
        self._decisions.append(self._run(_BOUND))
        if self._nodes == 1:
            self._slow += [self._slow_us() for _ in range(10)]

    def report(self) -> list[Met]:
        """Print what was measured."""
        return [
            report(
                f"{self._name}, µs",
                time_at_most(self._most_us),
                [median(costs) for costs in self._decisions],
                record_us=round(median(self._records), 1),
                **({"brute_force_us": round(median(self._slow), 1)} if self._slow else {}),
            ),
            report(
                f"{self._name}, p99, µs",
                NO_GOAL,
                [percentile(costs, 99) for costs in self._decisions],
            ),
        ]

    def _run(self, bindings: int) -> list[float]:
        decisions: list[float] = []
        while len(decisions) < bindings:
            demand = self._pod()
            begun = time.thread_time_ns()
            decision = decide(self._ledger, demand)
            decided = time.thread_time_ns()
            if decision.outcome == "bound":
                commit(self._ledger, demand, decision)
                self._records.append((time.thread_time_ns() - decided) / 1000)
                decisions.append((decided - begun) / 1000)
                self._held.append(demand.uid)
            if self._held and (len(self._held) > _AT_ONCE or decision.outcome != "bound"):
                self._ledger.release(self._held.popleft())
        return decisions

    def _slow_us(self) -> float:
        """What the slow reference costs on the same node."""
        demand = self._pod()
        begun = time.thread_time_ns()
        slow_decide(self._ledger, demand)
        return (time.thread_time_ns() - begun) / 1000

    def _pod(self) -> Demand:
        self._number += 1
        pod = a_pod(self._number, self._source, self._nodes, given=self._given)
        return msgspec.structs.replace(pod, **_label(self._source)) if self._labelled else pod


def _change() -> Met:
    """The shortest list of who would have to leave, where 10 000 GPUs are full."""
    source = random.Random(6)
    ledger = half_full(_EXPLAINED_NODES, source)
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
    what = f"whose leaving would help, {_EXPLAINED_NODES * _GPUS} GPUs, ms"
    return report(what, time_at_most(50), costs)


def _plan() -> Met:
    """A long file through the command, start included."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scenario.yaml"
        _write_scenario(path)
        seconds = [_plan_seconds(path) for _ in range(_PLANS)]
    return report(
        f"kubeshare plan, {_EVENTS} events on 16 GPUs: processor time an event, µs",
        time_at_most(200),
        [each * 1e6 / _EVENTS for each in seconds],
    )


def _plan_seconds(path: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with Path("/dev/null").open("wb") as nowhere:
        command = [*KUBESHARE, "plan", str(path), "-o", "json"]
        subprocess.run(command, stdout=nowhere, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


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

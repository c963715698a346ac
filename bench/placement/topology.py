"""What a decision by topology costs: one node, the best of many, a shape never seen before.

Times are processor time, not wall time: a decision waits for nothing, and a busy neighbour does
not count.
"""

import gc
import random
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from bench.report import NO_GOAL, Met, median, percentile, report, time_at_most

from core.policies.slow_topology import slow_decide
from kubeshare.core.decision import commit
from kubeshare.core.demand import Demand, Memory
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies.topology.index import TopologyIndex
from kubeshare.core.policies.topology.policy import decide
from kubeshare.core.topology import Links, read_notation
from kubeshare.core.topology.selection import Closest, closest
from kubeshare.core.units import GI, MICROS

EIGHT = read_notation("SYS(PHB(PIX(0,1),PIX(2,3)),PHB(PIX(4,5),PIX(6,7)))", "eight")
SIXTEEN = read_notation("SYS(PHB(PIX(0..3),PIX(4..7)),PHB(PIX(8..11),PIX(12..15)))", "sixteen")
Answer = TypeVar("Answer")

_SEED = 20180801
_ROUNDS = 5
_DECISIONS = 800  # in each round
_COLD = 60  # likewise
_SHAPES = (1, 2, 4)  # GPUs of a demand; 0 is a fraction of one


def run() -> list[Met]:
    """All numbers about topology; the kinds of measurement take turns in each round."""
    one, many, most = (_Course(_cluster(size, EIGHT)) for size in (1, 1_000, 12_500))
    explained = half_full(1250)
    fresh: dict[int, list[float]] = {count: [] for count in (0, *_SHAPES)}
    cold: list[list[float]] = []
    explain: list[float] = []
    for _ in range(_ROUNDS):
        one.round()
        many.round()
        most.round()
        for count, taken in fresh.items():
            taken.append(_first_of_a_shape(count))
        cold.append(_cold(SIXTEEN))
        explain.append(median([_explained_ms(explained, count) for count in (0, 1, 2, 8)]))
    return [
        *_report_decisions("decision on an 8-GPU node", 30, [taken.in_passing for taken in one]),
        report(
            "topology: brute force on an 8-GPU node, µs",
            NO_GOAL,
            [median(taken.brute_force) for taken in one],
        ),
        *_report_decisions(
            "best of 1 000 8-GPU nodes after one change",
            50,
            [taken.after_one_change for taken in many],
        ),
        *_report_decisions(
            "best of 12 500 8-GPU nodes after one change",
            60,
            [taken.after_one_change for taken in most],
        ),
        *_report_decisions(
            "best of 1 000 8-GPU nodes among other changes",
            None,
            [taken.in_passing for taken in many],
        ),
        report(
            "topology: best of 1 000 nodes of a shape never seen, slowest count, ms",
            time_at_most(20),
            [max(each) for each in zip(*(fresh[count] for count in _SHAPES), strict=True)],
            by_gpus={str(count): round(median(taken), 2) for count, taken in fresh.items()},
        ),
        report(
            "topology: a 16-GPU node of a shape never seen, ms",
            time_at_most(5),
            [median(taken) for taken in cold],
            slowest_ms=round(max(max(taken) for taken in cold), 2),
        ),
        report("topology: explain, 10 000 GPUs, ms", time_at_most(50), explain),
    ]


def _report_decisions(what: str, most_us: float | None, rounds: list[list[float]]) -> list[Met]:
    """The median and the tail of decisions, in µs."""
    goal = NO_GOAL if most_us is None else time_at_most(most_us)
    return [
        report(f"topology: {what}, µs", goal, [median(taken) for taken in rounds]),
        report(f"topology: {what}, p99, µs", NO_GOAL, [percentile(each, 99) for each in rounds]),
    ]


def _cluster(size: int, links: Links) -> Ledger:
    """Nodes with all their GPUs idle."""
    ledger = Ledger()
    for number in range(size):
        name = f"n{number}"
        ledger.add_node(Node(name, links=links))
        for index in range(len(links)):
            device = Device(
                id=f"{name}/{index}", node=name, index=index, model="V100", memory_bytes=16 * GI
            )
            ledger.add_device(device)
    return ledger


def a_demand(source: random.Random, number: int) -> Demand:
    """As many fractions as whole GPUs, 1, 2 or 4."""
    fraction = source.random() < 0.5
    return Demand(
        uid=str(number),
        name=str(number),
        request_micros=source.choice([100_000, 250_000, 500_000, 700_000]) if fraction else MICROS,
        memory=Memory(bytes=source.choice([1, 2, 4]) * GI) if fraction else Memory(micros=MICROS),
        count=1 if fraction else source.choice([1, 1, 2, 4]),
    )


def _fill(ledger: Ledger, source: random.Random) -> list[str]:
    """Place until half of all compute is taken; gives back who was placed."""
    left = len(ledger.devices) * MICROS // 2
    placed: list[str] = []
    while left > 0:
        demand = a_demand(source, len(placed))
        decision = decide(ledger, demand)
        if decision.outcome == "bound":
            commit(ledger, demand, decision)
            left -= demand.request_micros * demand.count
        elif len(ledger.nodes) == 1:
            break
        placed.append(demand.uid)
    return [uid for uid in placed if ledger.held_by(uid)]


class _Taken(NamedTuple):
    """µs of decisions: after exactly one change, after several, and by brute force."""

    after_one_change: list[float]
    in_passing: list[float]
    brute_force: list[float]


class _Course:
    """A half-full cluster on which demands come and go; iterating gives the rounds."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._source = random.Random(_SEED)
        self._held = _fill(ledger, self._source)
        self._number = 10**6
        self._rounds: list[_Taken] = []

    def __iter__(self) -> Iterator[_Taken]:
        return iter(self._rounds)

    def round(self) -> None:
        """Bound decisions; between two of them something is released."""
        ledger, source, held = self._ledger, self._source, self._held
        taken = _Taken([], [], [])
        for number in range(self._number, self._number + _DECISIONS):
            demand = a_demand(source, number)
            if number % 4 == 0:
                _bring_up_to_date(ledger)
            if number % 2 == 0 and held:
                gone = source.randrange(len(held))
                held[gone], held[-1] = held[-1], held[gone]
                ledger.release(held.pop())
            spent, decision = _timed(decide, ledger, demand)
            if decision.outcome == "bound":
                (taken.in_passing if number % 4 else taken.after_one_change).append(spent)
                bound = len(taken.in_passing) + len(taken.after_one_change)
                if len(ledger.nodes) == 1 and bound % 20 == 1:
                    taken.brute_force.append(_timed(slow_decide, ledger, demand)[0])
                commit(ledger, demand, decision)
                held.append(demand.uid)
        self._number += _DECISIONS
        self._rounds.append(taken)


def _bring_up_to_date(ledger: Ledger) -> None:
    """Let the index catch up with all changes so far."""
    for count in (0, 1, 2, 4):
        decide(ledger, _probe(count))


def _probe(count: int) -> Demand:
    """A demand of so many whole GPUs, 0 for a fraction."""
    return Demand(
        uid="probe",
        name="probe",
        request_micros=MICROS if count else 999_999,
        memory=Memory(micros=MICROS),
        count=max(count, 1),
    )


def _timed(
    ask: Callable[[Ledger, Demand], Answer], ledger: Ledger, demand: Demand
) -> tuple[float, Answer]:
    """µs of the processor that an answer took, and the answer."""
    started = time.process_time()
    answer = ask(ledger, demand)
    return 1e6 * (time.process_time() - started), answer


def _first_of_a_shape(count: int) -> float:
    """ms of the first decision on 1 000 half-full nodes with links that are not cached."""
    ledger = _cluster(1000, EIGHT)
    _fill(ledger, random.Random(_SEED))
    fresh = Ledger(ledger.nodes.values(), ledger.devices.values())
    fresh.index(TopologyIndex)
    closest.cache_clear()
    gc.collect()
    gc.freeze()
    try:
        return _timed(decide, fresh, _probe(count))[0] / 1000
    finally:
        gc.unfreeze()


def half_full(nodes: int) -> Ledger:
    """Nodes of eight GPUs, with half of all compute taken."""
    ledger = _cluster(nodes, EIGHT)
    _fill(ledger, random.Random(_SEED))
    return ledger


def _explained_ms(ledger: Ledger, count: int) -> float:
    """ms that it takes to give the reason for each of 10 000 GPUs."""
    decision = decide(ledger, _probe(count))
    started = time.process_time()
    assert len(decision.reasons) > 9_000
    return 1000 * (time.process_time() - started)


def _cold(links: Links) -> list[float]:
    """ms of each answer for one node with links that are not cached."""
    source = random.Random(_SEED)
    taken = []
    for _ in range(_COLD):
        idle = source.getrandbits(len(links)) | 1
        count = source.randint(1, idle.bit_count())
        started = time.process_time()
        solver = Closest(links)
        solver.best(idle, idle, count)
        taken.append(1000 * (time.process_time() - started))
    return taken

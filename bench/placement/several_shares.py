"""What it costs to place 2.5 GPUs: two whole ones and half of a third, on one node.

Before each measurement such a demand has come and an earlier one has gone, so some nodes have
changed. Times are processor time: a decision waits for nothing, and a busy neighbour does not
count.
"""

import gc
import time
from collections import deque
from collections.abc import Iterator
from itertools import count

from bench.placement.topology import half_full
from bench.report import NO_GOAL, Met, median, percentile, report, time_at_most

from kubeshare.core.decision import commit
from kubeshare.core.demand import Demand, Memory, Share
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import policy
from kubeshare.core.policies.scoring import scorer
from kubeshare.core.units import MICROS

_NODES = 1_000
_ROUNDS = 5
_DECISIONS = 40  # in each round
_SCORES = 10  # likewise
_LIVE = 10
_MOST_SCORES_MS = 5.0
_MOST_MS = {"locality": 2.0, "binpack": 2.0, "topology": None}
_SHARES = (
    Share(name="whole", request_micros=MICROS, memory=Memory(micros=MICROS), count=2),
    Share(name="rest", request_micros=MICROS // 2, memory=Memory(micros=MICROS // 2)),
)


def run() -> list[Met]:
    """2.5 GPUs on 1 000 nodes of 8 GPUs, under each policy."""
    clusters = {name: half_full(_NODES) for name in _MOST_MS}
    gc.collect()
    gc.freeze()
    courses = [_Course(name, cluster) for name, cluster in clusters.items()]
    for _ in range(_ROUNDS):
        for course in courses:
            course.round()
    gc.unfreeze()
    return [met for course in courses for met in course.report()]


def _demands() -> Iterator[Demand]:
    for number in count():
        yield Demand(uid=f"several-{number}", name=f"several-{number}", shares=_SHARES)


class _Course:
    """A cluster under one policy, and what each decision costs in ms."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        self._name, self._ledger, self._demands = name, ledger, _demands()
        self._decide = policy(name)
        self._score, self._nodes = scorer(name), tuple(ledger.nodes)
        self._held: deque[str] = deque()
        self._first, self._first_scores = self._decision_ms(), self._scores_ms()
        self._taken: list[list[float]] = []
        self._scores: list[list[float]] = []

    def round(self) -> None:
        """Measure one round."""
        self._taken.append([self._decision_ms() for _ in range(_DECISIONS)])
        self._scores.append([])
        for _ in range(_SCORES):
            self._decision_ms()
            self._scores[-1].append(self._scores_ms())

    def report(self) -> list[Met]:
        """Print what was measured."""
        what = f"{self._name}: 2.5 GPUs on one of {_NODES} nodes of 8 GPUs"
        most = _MOST_MS[self._name]
        goal = NO_GOAL if most is None else time_at_most(most)
        tails = [percentile(taken, 99) for taken in self._taken]
        return [
            report(f"{what}, ms", goal, [median(taken) for taken in self._taken]),
            report(f"{what}, p99, ms", NO_GOAL, tails),
            report(f"{what}, the first one of a ledger, ms", NO_GOAL, self._first),
            report(
                f"{self._name}: scores of {_NODES} nodes of 8 GPUs for 2.5 GPUs, ms",
                time_at_most(_MOST_SCORES_MS),
                [median(scores) for scores in self._scores],
                the_first_of_a_ledger=round(self._first_scores, 1),
            ),
        ]

    def _scores_ms(self) -> float:
        demand = next(self._demands)
        begun = time.thread_time_ns()
        scores = self._score(self._ledger, demand, self._nodes)
        taken = (time.thread_time_ns() - begun) / 1e6
        assert scores
        return taken

    def _decision_ms(self) -> float:
        demand = next(self._demands)
        begun = time.thread_time_ns()
        decision = self._decide(self._ledger, demand)
        taken = (time.thread_time_ns() - begun) / 1e6
        assert decision.outcome == "bound"
        commit(self._ledger, demand, decision)
        self._held.append(demand.uid)
        if len(self._held) > _LIVE:
            self._ledger.release(self._held.popleft())
        return taken

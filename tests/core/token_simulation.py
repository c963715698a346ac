"""A GPU, its arbiter and jobs on a virtual clock."""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from kubeshare.core.token import Action, Arbiter, Close, Open, Shut

MS = 1_000_000
SECOND = 1_000_000_000


@dataclass
class Job:
    """Saturating unless `busy_ns` says how long it works before it pauses for `pause_ns`."""

    request: int
    limit: int
    overrun_ns: Callable[[], int] = lambda: 0
    hangs: bool = False
    uses: list[tuple[int, int]] = field(default_factory=list)
    opened_ns: int | None = None
    closing: bool = False
    wanted_ns: int = 0
    longest_wait_ns: int = 0


class Simulation:
    """Runs jobs against an arbiter, and keeps the truth: who had the GPU when.

    A job wants the token 0.15 ms after it lost it (a handover's gap), and drains
    after its own overrun.
    """

    gap_ns = 150_000

    def __init__(self, seed: int = 0, quota_ns: int = 100 * MS) -> None:
        self.arbiter = Arbiter(quota_ns)
        self.random = random.Random(seed)
        self.now = 0
        self.jobs: dict[str, Job] = {}
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self.actions: list[tuple[int, Action]] = []

    def drains(self, longest_ms: int) -> Callable[[], int]:
        return lambda: self.random.randint(0, longest_ms * MS)

    def join(self, name: str, request: float, limit: float, *, drain_ms: int = 10) -> Job:
        job = Job(round(request * 1e6), round(limit * 1e6), self.drains(drain_ms))
        self.jobs[name] = job
        self._carry_out(self.arbiter.add(name, job.request, job.limit, self.now))
        self._want(name)
        return job

    def leave(self, name: str) -> None:
        self._carry_out(self.arbiter.remove(name, self.now))
        self.jobs.pop(name)

    def run(self, for_ns: int) -> None:
        end = self.now + for_ns
        while True:
            deadline = self.arbiter.deadline()
            event = self._events[0][0] if self._events else None
            upcoming = [at for at in (deadline, event) if at is not None]
            at = min(upcoming, default=end)
            if at >= end:
                self.now = end
                return
            self.now = max(self.now, at)
            if event is not None and event <= self.now:
                heapq.heappop(self._events)[2]()
            else:
                self._carry_out(self.arbiter.tick(self.now))

    def shares(self, for_ns: int) -> dict[str, float]:
        """Run, and say which part of the time each job had the GPU."""
        start = self.now
        self.run(for_ns)
        return {name: self._used(job, start) / for_ns for name, job in self.jobs.items()}

    def at(self, delay_ns: int, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + delay_ns, next(self._order), do))

    def _used(self, job: Job, start: int) -> int:
        uses = list(job.uses)
        if job.opened_ns is not None:
            uses.append((job.opened_ns, self.now))
        return sum(max(0, end - max(begin, start)) for begin, end in uses)

    def _want(self, name: str) -> None:
        job = self.jobs.get(name)
        if job is not None and job.opened_ns is None:
            job.wanted_ns = self.now
            self._carry_out(self.arbiter.want(name, self.now))

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            self.actions.append((self.now, action))
            job = self.jobs.get(action.member)
            if job is None:
                continue
            if isinstance(action, Open):
                others = [n for n, j in self.jobs.items() if j.opened_ns is not None]
                assert others == [], f"{others} hold the GPU while it goes to {action.member}"
                job.opened_ns = self.now
                job.longest_wait_ns = max(job.longest_wait_ns, self.now - job.wanted_ns)
            elif isinstance(action, Close) and not job.hangs:
                self.at(job.overrun_ns(), lambda name=action.member: self._drained(name))  # type: ignore[misc]
            elif isinstance(action, Shut):
                assert job.opened_ns is not None
                job.uses.append((job.opened_ns, self.now))
                job.opened_ns = None
                self.at(self.gap_ns, lambda name=action.member: self._want(name))  # type: ignore[misc]

    def _drained(self, name: str) -> None:
        if name in self.jobs:
            self._carry_out(self.arbiter.drained(name, self.now, self.now))

"""GPUs, their arbiter and jobs on a virtual clock."""

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from kubeshare.core.token import (
    DECAYED_AVERAGE,
    QUOTA_NS,
    Action,
    Amounts,
    Arbiter,
    Close,
    Measure,
    Open,
    Shut,
    Watch,
)

MS = 1_000_000
SECOND = 1_000_000_000
GPU = "gpu-0"
HALF = (500_000, 1_000_000)


def contended(start: int = 0, quota_ns: int = QUOTA_NS) -> Arbiter:
    """`a` holds since `start`, and `b` waits."""
    arbiter = Arbiter(quota_ns)
    arbiter.add("a", {GPU: HALF}, start)
    arbiter.add("b", {GPU: HALF}, start)
    assert arbiter.want("a", start) == [Open("a", GPU, start + quota_ns), Watch("a", GPU)]
    assert arbiter.want("b", start + MS) == []
    return arbiter


@dataclass
class Job:
    """Has always work for all of its GPUs, and drains after its own overrun.

    Attributes:
        hangs: whether it reports no end of its work.
        uses: GPU, start and end of each turn.
        overdue_uses: GPU, start and end of each use past a turn, beside those of others.
        opened: GPU → since when it has it.
        overdue: GPU → since when its work goes on there though it was bypassed.
    """

    gpus: tuple[str, ...]
    overrun_ns: Callable[[], int]
    hangs: bool = False
    uses: list[tuple[str, int, int]] = field(default_factory=list)
    overdue_uses: list[tuple[str, int, int]] = field(default_factory=list)
    opened: dict[str, int] = field(default_factory=dict)
    overdue: dict[str, int] = field(default_factory=dict)
    closing: set[str] = field(default_factory=set)
    wanted_ns: int | None = None
    longest_wait_ns: int = 0


class Simulation:
    """Runs jobs against an arbiter, and keeps the truth: who had which GPU when.

    A job wants what it lost 0.15 ms after it has drained all of it (a handover's gap). While it
    drains it says every 50 ms that it is busy.
    """

    gap_ns = 150_000
    busy_interval_ns = 50 * MS

    def __init__(
        self, seed: int = 0, quota_ns: int = 100 * MS, measure: Measure = DECAYED_AVERAGE
    ) -> None:
        self.arbiter = Arbiter(quota_ns, measure)
        self.random = random.Random(seed)
        self.now = 0
        self.jobs: dict[str, Job] = {}
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self.actions: list[tuple[int, Action]] = []

    def join(
        self,
        name: str,
        request: float,
        limit: float,
        *,
        alone: float = 0,
        latency_sensitive: bool = False,
        drain_ms: int = 10,
        gpus: Sequence[str] = (GPU,),
        whole: Sequence[str] = (),
        is_idle: bool = False,
    ) -> Job:
        """Add a job.

        Args:
            name: unique.
            request: of each of ``gpus``.
            limit: of each of them.
            alone: its limit while alone.
            latency_sensitive: whether it is served promptly.
            drain_ms: what its longest drain takes.
            gpus: those that it shares.
            whole: those that it requests whole beside them.
            is_idle: whether it never wants a GPU.
        """
        job = Job((*whole, *gpus), lambda: self.random.randint(0, drain_ms * MS))
        self.jobs[name] = job
        amounts = round(request * 1e6), round(limit * 1e6), round(alone * 1e6)
        spec = (*amounts, latency_sensitive)
        shares: dict[str, Amounts] = dict.fromkeys(whole, (1_000_000, 1_000_000))
        shares |= dict.fromkeys(gpus, spec)
        self._binder(self.arbiter.add(name, shares, self.now))
        if not is_idle:
            self._want(name)
        return job

    def leave(self, name: str) -> None:
        self._binder(self.arbiter.remove(name, self.now))
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
                self._binder(self.arbiter.tick(self.now))

    def shares(self, for_ns: int, gpu: str = GPU) -> dict[str, float]:
        """Run, and say which part of the time each job had the GPU."""
        start = self.now
        self.run(for_ns)
        return {
            name: self._time(gpu, start, job.uses, job.opened) / for_ns
            for name, job in self.jobs.items()
            if gpu in job.gpus
        }

    def worked(self, name: str, gpu: str = GPU) -> int:
        """How long a job had a GPU or worked on it past its turns, in ns since the start."""
        job = self.jobs[name]
        return self._time(gpu, 0, job.uses, job.opened) + self._time(
            gpu, 0, job.overdue_uses, job.overdue
        )

    def charged_ns(self, name: str, gpu: str = GPU) -> int:
        """What a job was charged for a GPU, with a use that goes on."""
        views = self.arbiter.views(self.now)
        return next(v.charged_ns for v in views if (v.name, v.gpu) == (name, gpu))

    def longest_wait_ns(self) -> int:
        """Of all jobs, with the waits that go on."""
        waits = [self.now - j.wanted_ns for j in self.jobs.values() if j.wanted_ns is not None]
        return max([*waits, *(job.longest_wait_ns for job in self.jobs.values())])

    def at(self, delay_ns: int, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + delay_ns, next(self._order), do))

    def _time(
        self, gpu: str, start: int, ended: list[tuple[str, int, int]], since: dict[str, int]
    ) -> int:
        uses = [(begin, end) for used, begin, end in ended if used == gpu]
        if gpu in since:
            uses.append((since[gpu], self.now))
        return sum(max(0, end - max(begin, start)) for begin, end in uses)

    def _want(self, name: str) -> None:
        job = self.jobs.get(name)
        if job is not None and job.opened.keys() - job.closing != set(job.gpus):
            job.wanted_ns = self.now if job.wanted_ns is None else job.wanted_ns
            self._binder(self.arbiter.want(name, self.now))

    def _binder(self, actions: list[Action]) -> None:
        for action in actions:
            self.actions.append((self.now, action))
            job = self.jobs.get(action.member)
            if job is None:
                continue
            if isinstance(action, Open):
                self._open(action, job)
                self._opened(action.member, job, action.gpu)
            elif isinstance(action, Close):
                job.closing.add(action.gpu)
                self._close(action.member, job, action.gpu)
            elif isinstance(action, Shut):
                job.uses.append((action.gpu, job.opened.pop(action.gpu), self.now))
                job.closing.discard(action.gpu)
                if action.bypassed:
                    job.overdue[action.gpu] = self.now
                if not job.closing:
                    self.at(self.gap_ns, lambda name=action.member: self._want(name))  # type: ignore[misc]

    def _close(self, name: str, job: Job, gpu: str) -> None:
        if job.hangs:
            return
        overrun_ns = job.overrun_ns()
        self.at(overrun_ns, lambda: self._drained(name, gpu))
        for busy_ns in range(self.busy_interval_ns, overrun_ns, self.busy_interval_ns):
            self.at(busy_ns, lambda: self._busy(name, gpu))

    def _busy(self, name: str, gpu: str) -> None:
        if name in self.jobs:
            self._binder(self.arbiter.busy(name, gpu, self.now))

    def _open(self, action: Open, job: Job) -> None:
        others = [n for n, j in self.jobs.items() if action.gpu in j.opened and j is not job]
        assert others == [], f"{others} hold {action.gpu} while it goes to {action.member}"
        self._end_overdue(job, action.gpu)
        job.opened.setdefault(action.gpu, self.now)
        job.closing.discard(action.gpu)

    def _opened(self, _name: str, job: Job, _gpu: str) -> None:
        if job.wanted_ns is not None and len(job.opened) == len(job.gpus):
            job.longest_wait_ns = max(job.longest_wait_ns, self.now - job.wanted_ns)
            job.wanted_ns = None

    def _end_overdue(self, job: Job, gpu: str) -> None:
        """Its work is over, or goes on in a turn of its own."""
        if gpu in job.overdue:
            job.overdue_uses.append((gpu, job.overdue.pop(gpu), self.now))

    def _drained(self, name: str, gpu: str) -> None:
        if name in self.jobs:
            self._end_overdue(self.jobs[name], gpu)
            self._binder(self.arbiter.drained(name, gpu, self.now, self.now))

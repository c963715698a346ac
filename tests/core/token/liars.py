"""Members that lie about their work, in all the ways in which messages can."""

from collections.abc import Sequence
from itertools import cycle
from typing import Literal, get_args

from core.token.simulation import GPU, MS, Job, Simulation
from kubeshare.core.token import Action, Close, Open, Shut, Watch

Lie = Literal[
    "says it is busy",
    "says it is busy and waits",
    "says nothing",
    "says nothing and waits",
    "says it is idle, then nothing",
    "says it is idle, then that it is busy",
    "says it is idle, then done since long",
    "works, then says it was idle",
    "says it is done since long",
    "says it is done after it was bypassed",
    "says it is busy, then done since long",
    "says nothing for long, then that it was done at once",
    "says nothing, and connects again",
    "says it is busy, and connects again",
]
"""What a member does with one turn."""

LIES: tuple[Lie, ...] = get_args(Lie)

_SILENT_AND_AGAIN = "says nothing, and connects again"
_BUSY_AND_AGAIN = "says it is busy, and connects again"
_DONE_AT_ONCE = (
    "says it is done since long",
    "says it is idle, then done since long",
    "works, then says it was idle",
)

_ANSWER_NS = 100_000
_IDLE_AFTER_NS = 5 * MS
_LONG_BUSY_NS = 15_000 * MS
_LONG_SILENCE_NS = 190 * MS


class Liars(Simulation):
    """Honest jobs, and one member that lies by a pattern: one lie a turn, again from the start."""

    def __init__(self, seed: int = 0, quota_ns: int = 100 * MS) -> None:
        super().__init__(seed, quota_ns)
        self._lies: dict[str, cycle[Lie]] = {}
        self._now: dict[str, Lie] = {}

    def lie(self, name: str, request: float, limit: float, pattern: Sequence[Lie]) -> Job:
        """Add a member that lies."""
        self._lies[name] = cycle(pattern)
        job = self.join(name, request, limit, is_idle=True)
        job.hangs = True
        self._want(name)
        return job

    def _binder(self, actions: list[Action]) -> None:
        super()._binder(actions)
        for action in actions:
            if action.member in self._lies:
                self._answer(action)

    def _answer(self, action: Action) -> None:
        name = action.member
        if isinstance(action, Open) and not action.again:
            self._now[name] = next(self._lies[name])
        lie = self._now.get(name)
        if isinstance(action, Watch) and lie is not None and "idle" in lie:
            after_ns = _IDLE_AFTER_NS if lie.startswith("works") else _ANSWER_NS
            self.at(after_ns, lambda: self._binder(self.arbiter.idle(name, GPU, self.now)))
        elif isinstance(action, Close) and lie is not None:
            self._answer_close(name, lie)
        elif isinstance(action, Shut) and lie == "says it is done after it was bypassed":
            self.at(_ANSWER_NS, lambda: self._drained_at(name, 0))
        elif isinstance(action, Shut) and action.bypassed and lie == _BUSY_AND_AGAIN:
            self.at(_ANSWER_NS, lambda: self._connect_again(name))

    def _answer_close(self, name: str, lie: Lie) -> None:
        if lie == _SILENT_AND_AGAIN:
            self.at(_ANSWER_NS, lambda: self._connect_again(name))
        if "busy" in lie:
            self.at(50 * MS, lambda: self._repeat_busy(name))
            if "then done" in lie:
                self.at(_LONG_BUSY_NS, lambda: self._drained_at(name, 0))
        if "then that it was done" in lie:
            self.at(_LONG_SILENCE_NS, lambda: self._drained_at(name, 0))
        if "waits" in lie:
            self.at(_ANSWER_NS, lambda: self._binder(self.arbiter.want(name, self.now)))
        if lie in _DONE_AT_ONCE:
            self.at(_ANSWER_NS, lambda: self._drained_at(name, 0))

    def _connect_again(self, name: str) -> None:
        """Close the connection and make another, while a kernel runs on."""
        self._binder(self.arbiter.gone(name, self.now))
        self.jobs[name].overdue.setdefault(GPU, self.now)
        self._binder(self.arbiter.connected(name, self.now))
        self._want(name)

    def _drained_at(self, name: str, idle_ns: int) -> None:
        self._end_overdue(self.jobs[name], GPU)
        self._binder(self.arbiter.drained(name, GPU, idle_ns, self.now))

    def _repeat_busy(self, name: str) -> None:
        if GPU in self.jobs[name].closing:
            self._binder(self.arbiter.busy(name, GPU, self.now))
            self.at(50 * MS, lambda: self._repeat_busy(name))


class EndlessElsewhere(Simulation):
    """Honest jobs, and one on two GPUs of which one drains; each launch waits for both."""

    def __init__(self, endless_gpu: str) -> None:
        super().__init__()
        self._endless_gpu = endless_gpu

    def _close(self, name: str, job: Job, gpu: str) -> None:
        if len(job.gpus) == 1:
            super()._close(name, job, gpu)
            return
        if gpu != self._endless_gpu:
            self.at(_ANSWER_NS, lambda: self._drained(name, gpu))
        self.at(2 * _ANSWER_NS, lambda: self._binder(self.arbiter.want(name, self.now)))

"""Jobs whose work on one GPU ends only when it has begun on all of their GPUs."""

from core.token.simulation import MS, Job, Simulation

_LAUNCH_NS = 300_000
"""Between two launches of one step at most: a gate often closes between them."""

_STEP_NS = 1 * MS
_CHECK_NS = 5 * MS


class CollectiveJob:
    """One thread that launches a collective on one GPU after the other, and waits for its end.

    Attributes:
        launched: GPU → how many collectives were launched there.
        done: how many have ended.
        waits_at: the GPU at whose gate the thread waits.
    """

    def __init__(self, gpus: tuple[str, ...]) -> None:
        self.launched = dict.fromkeys(gpus, 0)
        self.done = 0
        self.waits_at: str | None = None


class Collectives(Simulation):
    """Runs such jobs; a job that waits for nothing else always goes on."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.threads: dict[str, CollectiveJob] = {}

    def start(self, name: str, request: float, limit: float, gpus: tuple[str, ...]) -> None:
        """Add a job."""
        self.threads[name] = CollectiveJob(gpus)
        self.join(name, request, limit, gpus=gpus, is_idle=True)
        self._step(name, 0)

    def done(self) -> dict[str, int]:
        """How many collectives of each job have ended."""
        return {name: self.threads[name].done for name in self.jobs}

    def _step(self, name: str, index: int) -> None:
        if name not in self.jobs:
            return
        job, thread = self.jobs[name], self.threads[name]
        if index == len(job.gpus):
            self.at(_STEP_NS, lambda: self._end(name))
            return
        gpu = job.gpus[index]
        if gpu not in job.opened or gpu in job.closing:
            thread.waits_at = gpu
            super()._want(name)
            return
        thread.waits_at = None
        thread.launched[gpu] += 1
        self.at(self.random.randint(0, _LAUNCH_NS), lambda: self._step(name, index + 1))

    def _end(self, name: str) -> None:
        if name in self.jobs:
            self.threads[name].done += 1
            self._step(name, 0)

    def _want(self, name: str) -> None:
        """The device library says once for each closed gate that a launch waits there."""

    def _opened(self, name: str, job: Job, gpu: str) -> None:
        super()._opened(name, job, gpu)
        if self.threads[name].waits_at == gpu:
            self.threads[name].waits_at = None
            self.at(0, lambda: self._step(name, job.gpus.index(gpu)))

    def _drained(self, name: str, gpu: str) -> None:
        if name not in self.jobs:
            return
        thread, job = self.threads[name], self.jobs[name]
        if thread.launched[gpu] == thread.done:
            super()._drained(name, gpu)
        elif gpu in job.closing or gpu in job.overdue:
            if gpu in job.closing:
                self._binder(self.arbiter.busy(name, gpu, self.now))
            self.at(_CHECK_NS, lambda: self._drained(name, gpu))

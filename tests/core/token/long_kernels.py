"""A job of several threads, one on each of its GPUs, with long kernels on the first of them."""

from core.token.simulation import MS, Job, Simulation

_SHORT_NS = 2 * MS


class LongKernels(Simulation):
    """Honest jobs, and those that run a kernel on their first GPU whenever none of theirs runs.

    The thread of another GPU waits at its gate again as soon as that has closed.

    Attributes:
        ran_ns: for how long kernels ran on the first GPU of each such job.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.ran_ns: dict[str, int] = {}
        self._kernel_ns: dict[str, int] = {}
        self._running: dict[str, bool] = {}

    def start(
        self, name: str, request: float, limit: float, gpus: tuple[str, ...], kernel_ns: int
    ) -> None:
        """Add such a job."""
        self.ran_ns[name], self._kernel_ns[name], self._running[name] = 0, kernel_ns, False
        self.join(name, request, limit, gpus=gpus)

    def _opened(self, name: str, job: Job, gpu: str) -> None:
        super()._opened(name, job, gpu)
        if name in self._running and gpu == job.gpus[0] and not self._running[name]:
            self._launch(name)

    def _close(self, name: str, job: Job, gpu: str) -> None:
        if name not in self._running:
            super()._close(name, job, gpu)
        elif gpu != job.gpus[0]:
            self.at(_SHORT_NS, lambda: self._drained(name, gpu))
        elif self._running[name]:
            self.at(self.busy_interval_ns, lambda: self._repeat_busy(name, gpu))
        else:
            self.at(0, lambda: self._drained(name, gpu))

    def _launch(self, name: str) -> None:
        self._running[name] = True
        self.at(self._kernel_ns[name], lambda: self._end(name))

    def _end(self, name: str) -> None:
        job = self.jobs[name]
        gpu = job.gpus[0]
        self.ran_ns[name] += self._kernel_ns[name]
        if gpu in job.opened and gpu not in job.closing:
            self._launch(name)
            return
        self._running[name] = False
        self._drained(name, gpu)
        self._want(name)

    def _drained(self, name: str, gpu: str) -> None:
        super()._drained(name, gpu)
        if name in self._running:
            self._want(name)

    def _repeat_busy(self, name: str, gpu: str) -> None:
        if self._running[name] and gpu in self.jobs[name].closing:
            self._busy(name, gpu)
            self.at(self.busy_interval_ns, lambda: self._repeat_busy(name, gpu))

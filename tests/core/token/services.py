"""A service that has work for a GPU now and then, beside jobs that always have."""

from core.token.simulation import GPU, MS, Job, Simulation

_IDLE_NS = 5 * MS
"""After a pause of this time the device library reports that it is idle."""


class Services(Simulation):
    """Jobs that always have work, and services that answer one request after another.

    Attributes:
        waits_ns: how long the requests of each service waited for the GPU, in their order.
        worked_ns: how long the GPU worked for each service.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.waits_ns: dict[str, list[int]] = {}
        self.worked_ns: dict[str, int] = {}
        self._every_ns: dict[str, int] = {}
        self._work_ns: dict[str, int] = {}
        self._since: dict[str, int] = {}  # when the present request came
        self._ended: dict[str, int] = {}  # when the last one was answered
        self._works: set[str] = set()

    def serve(
        self,
        name: str,
        request: float,
        limit: float,
        *,
        every_ms: float,
        work_ms: float,
        latency_sensitive: bool = False,
        gpu: str = GPU,
    ) -> None:
        """Add a service.

        Args:
            name: unique.
            request: of the GPU.
            limit: of it.
            every_ms: between the end of a request and the next one, on average.
            work_ms: of one request.
            latency_sensitive: whether it is served promptly.
            gpu: the one that it uses.
        """
        self.waits_ns[name], self.worked_ns[name] = [], 0
        self._every_ns[name] = round(every_ms * MS)
        self._work_ns[name] = round(work_ms * MS)
        self.join(
            name,
            request,
            limit,
            gpus=(gpu,),
            is_idle=True,
            latency_sensitive=latency_sensitive,
        )
        self._pause(name)

    def _pause(self, name: str) -> None:
        every_ns = self._every_ns[name]
        self.at(self.random.randint(every_ns // 2, every_ns * 3 // 2), lambda: self._ask(name))

    def _ask(self, name: str) -> None:
        self._since[name] = self.now
        job = self.jobs[name]
        if job.opened and not job.closing:
            self._work(name)
        else:
            super()._want(name)

    def _want(self, name: str) -> None:
        if name not in self.waits_ns or name in self._since:
            super()._want(name)

    def _opened(self, name: str, job: Job, gpu: str) -> None:
        super()._opened(name, job, gpu)
        if name in self._since and name not in self._works:
            self._work(name)

    def _work(self, name: str) -> None:
        self.waits_ns[name].append(self.now - self._since[name])
        self._works.add(name)
        self.at(self._work_ns[name], lambda: self._end(name))

    def _end(self, name: str) -> None:
        self.worked_ns[name] += self._work_ns[name]
        self._works.discard(name)
        del self._since[name]
        ended = self._ended[name] = self.now
        self.at(_IDLE_NS, lambda: self._report_idle(name, ended))
        self._pause(name)
        if self.jobs[name].closing:
            self._drained(name, *self.jobs[name].gpus)

    def _report_idle(self, name: str, ended: int) -> None:
        job = self.jobs[name]
        is_idle = name not in self._works and bool(job.opened) and not job.closing
        if is_idle and self._since.get(name, ended) <= ended:
            self._binder(self.arbiter.idle(name, job.gpus[0], self.now))

    def _close(self, name: str, job: Job, gpu: str) -> None:
        if name not in self.waits_ns:
            super()._close(name, job, gpu)
        elif name in self._works:
            self.at(self.busy_interval_ns, lambda: self._repeat_busy(name))
        else:
            self.at(0, lambda: self._drained(name, gpu))

    def _drained(self, name: str, gpu: str) -> None:
        if name in self.waits_ns:
            self._binder(self.arbiter.drained(name, gpu, self._ended[name], self.now))
        else:
            super()._drained(name, gpu)

    def _repeat_busy(self, name: str) -> None:
        if name in self._works and self.jobs[name].closing:
            self._busy(name, *self.jobs[name].gpus)
            self.at(self.busy_interval_ns, lambda: self._repeat_busy(name))

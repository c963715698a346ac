"""Counts the requests of programs, and times how pods are created."""

from array import array
from collections import Counter
from typing import Final

from kubeshare.simulator.control import FakeApiServer, Request
from kubeshare.simulator.control_numbers import ControlNumbers, Latency
from kubeshare.simulator.measurements import mean, percentile

_REQUESTS: Final = 1000
"""As many requests are kept in memory."""
_COMPACT: Final = 5000
"""So many changes are kept for watches that are opened again."""
_ERRORS: Final = 10
"""The most errors that are kept."""
_CONFLICTS: Final = frozenset({409, 422})
"""A conflict; or, of a JSON patch, a value that is no longer what was read."""


class ControlMeasurements:
    """The counts and times of a run.

    Args:
        server: whose requests are counted.

    Attributes:
        created_s, ran_s: of each job, from its first holder to its pod, and until that runs.
        restarts: program → how often it was killed and started again.
        errors: what programs logged with an exception.
    """

    def __init__(self, server: FakeApiServer) -> None:
        self._server = server
        self._writes: dict[str, Counter[str]] = {}
        self._reads: Counter[str] = Counter()
        self._conflicts: dict[str, Counter[str]] = {}
        self.created_s = array("d")
        self.ran_s = array("d")
        self.restarts: Counter[str] = Counter()
        self.errors: list[str] = []
        server.after_answer.append(self._count)

    def failed(self, what: str) -> None:
        """Note that a program met an exception."""
        if len(self.errors) < _ERRORS:
            self.errors.append(what)

    def numbers(self) -> ControlNumbers:
        """The numbers of the run."""
        return ControlNumbers(
            created=_latency(self.created_s),
            ran=_latency(self.ran_s),
            writes=_sorted(self._writes),
            reads=dict(sorted(self._reads.items())),
            conflicts=_sorted(self._conflicts),
            restarts=dict(self.restarts),
            errors=self.errors,
        )

    def _count(self, request: Request, status: int) -> None:
        program, what = request.client.rpartition("-")[0], f"{request.verb} {request.resource}"
        if not request.is_write:
            self._reads[program] += 1
        else:
            self._writes.setdefault(program, Counter())[what] += 1
            if status in _CONFLICTS:
                self._conflicts.setdefault(program, Counter())[what] += 1
        if len(self._server.requests) > _REQUESTS:
            self._server.requests.clear()
        if len(self._server.storage.history) > _COMPACT:
            self._server.compact()


def _latency(seconds: "array[float]") -> Latency:
    return Latency(
        count=len(seconds),
        mean_s=mean(seconds),
        p50_s=percentile(seconds, 50),
        p99_s=percentile(seconds, 99),
        max_s=max(seconds, default=0.0),
    )


def _sorted(counts: dict[str, Counter[str]]) -> dict[str, dict[str, int]]:
    return {program: dict(counted.most_common()) for program, counted in sorted(counts.items())}

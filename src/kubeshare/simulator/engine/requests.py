"""Requests of an inference job: random arrivals, served in order."""

from collections.abc import Callable
from random import Random

from kubeshare.core.units import MICROS
from kubeshare.simulator.jobs import Job


class RequestQueue:
    """The requests of a job while it runs; exact for speeds that change in steps.

    Requests arrive by a Poisson process for as long as the job's work takes at full speed, so
    that their service is that work. They are served in order, each by the GPU time that it needs
    over the share that the job could have at that time.

    Args:
        job: an inference job.
        now: when it starts.
        random: draws the times between requests.
        served: called with the seconds from the arrival of a request to its end.
    """

    def __init__(
        self, job: Job, now: float, random: Random, served: Callable[[float], None]
    ) -> None:
        self._rate = job.need_micros / MICROS / job.service_s
        self._service_s, self._until = job.service_s, now + job.work_s
        self._random, self._served = random, served
        self._now = now
        self._capacity = 0.0  # the share that it can have
        self._arrival = now + random.expovariate(self._rate)  # of the first that is not served
        self._left_s = job.service_s  # the GPU time that this one still needs

    def advance(self, now: float, capacity: float) -> None:
        """Serve until now; from now on with a share of so many GPUs."""
        if self._capacity > 0:
            self._serve(now)
        self._now, self._capacity = now, capacity

    def end(self) -> None:
        """Serve what has arrived: the job has done its work."""
        if self._capacity > 0:
            self._serve(float("inf"))

    def _serve(self, now: float) -> None:
        while self._arrival < self._until:
            begin = max(self._now, self._arrival)
            end = begin + self._left_s / self._capacity
            if end > now:
                self._left_s -= max(0.0, now - begin) * self._capacity
                return
            self._served(end - self._arrival)
            self._now, self._left_s = end, self._service_s
            self._arrival += self._random.expovariate(self._rate)

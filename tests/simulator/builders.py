"""Small clusters and jobs, whose pods start at once."""

from collections.abc import Iterable, Mapping
from typing import Any

from kubeshare.core.demand import Demand
from kubeshare.core.gang import Gang
from kubeshare.core.ledger.device import FreeGpu
from kubeshare.core.units import GI, MICROS, Memory
from kubeshare.simulator.cluster import build_cluster, equal_nodes
from kubeshare.simulator.engine.host_room import HostCapacity
from kubeshare.simulator.engine.progress import Slowdowns
from kubeshare.simulator.engine.simulation import Ended, Settings, Simulation, StartTimes
from kubeshare.simulator.jobs import NO_HOST_REQUEST, HostRequest, Job
from kubeshare.simulator.systems import Setting, System, system

AT_ONCE = StartTimes(native=0, existing=0, new=0)
GPU = FreeGpu("V100", 16 * GI)


def job(
    name: str,
    arrival: float = 0,
    work: float = 10,
    request: float = 0.5,
    *,
    limit: float = 1,
    need: float | None = None,
    gpus: int = 1,
    priority: int = 0,
    preemptible: bool = False,
    gang: Gang | None = None,
    kind: str = "",
    host: HostRequest = NO_HOST_REQUEST,
    labels: Mapping[str, str] | None = None,
) -> Job:
    """A job that asks for the same share of memory as of compute; `gpus` 0 asks for no GPU."""
    micros = round(request * MICROS)
    demand: dict[str, Any] = {
        "uid": name,
        "name": name,
        "request_micros": micros,
        "limit_micros": round(limit * MICROS),
        "memory": Memory(micros=micros),
        "count": gpus,
        **(labels or {}),
    }
    return Job(
        uid=name,
        name=name,
        arrival_s=arrival,
        work_s=work,
        demand=Demand(**demand) if gpus else None,
        need_micros=round((request if need is None else need) * MICROS),
        priority=priority,
        preemptible=preemptible,
        gang=gang,
        kind=kind,
        host=host,
    )


class Played:
    """A simulation that has run, and the jobs that finished, by name."""

    def __init__(
        self,
        jobs: Iterable[Job],
        policy: str | System = "locality",
        *,
        nodes: int = 1,
        gpus: int = 1,
        host: HostCapacity | None = None,
        owned: bool = False,
        keep_s: float = 0,
        slowdowns: Slowdowns | None = None,
        start: StartTimes = AT_ONCE,
    ) -> None:
        self.ended: dict[str, Ended] = {}
        jobs, equal = list(jobs), equal_nodes(nodes, gpus, GPU, host)
        setting = Setting(0, equal, lambda _: jobs)
        chosen = system(policy, setting) if isinstance(policy, str) else policy
        self.cluster = build_cluster(equal, owned=owned or chosen.owned)
        self.gpus = nodes * gpus
        settings = Settings(start=start, keep_s=keep_s, slowdowns=slowdowns or {})
        self.simulation = Simulation(self.cluster, chosen, settings, self._end)
        for _ in self.simulation.run(jobs):
            pass
        self.measured = self.simulation.measured

    @property
    def finished_at(self) -> dict[str, float]:
        """Name of each job that finished → when."""
        return {name: each.finished_s for name, each in self.ended.items()}

    @property
    def placed_at(self) -> dict[str, float]:
        """Name of each job that finished → when it was placed last."""
        return {name: each.placed_s for name, each in self.ended.items()}

    def _end(self, ended: Ended) -> None:
        self.ended[ended.job.name] = ended

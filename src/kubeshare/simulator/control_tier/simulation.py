"""Runs jobs as SharePods through the real scheduler and device manager.

A job's work begins when its pod runs, and goes on at the speed of its share, as in the core tier.
"""

import asyncio
import math
from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import count
from typing import Any, Final

import msgspec
import yaml

from kubeshare.api.holder_codec import decode_all
from kubeshare.api.types import v1
from kubeshare.api.types.constants import CONDITION_SCHEDULED, NAMESPACE
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import SHAREPODS, VGPUS
from kubeshare.core.ledger.holder import Holder
from kubeshare.core.policies import policy
from kubeshare.core.units import MICROS
from kubeshare.device_manager.program import device_manager_program
from kubeshare.kube.resources import CONFIG_MAPS, NAMESPACES, PODS
from kubeshare.scheduler.program import scheduler_program
from kubeshare.simulator.cluster import SimulatedNode
from kubeshare.simulator.control import FakeApiServer, ObjectPath
from kubeshare.simulator.control.storage import BEGINNING
from kubeshare.simulator.control_tier.kubernetes import Kubernetes
from kubeshare.simulator.control_tier.measurements import ControlMeasurements
from kubeshare.simulator.control_tier.objects import sharepod_of
from kubeshare.simulator.control_tier.programs import RESTART, Programs
from kubeshare.simulator.control_tier.settings import ControlSettings
from kubeshare.simulator.control_tier.stored import ENDED, Raw, holders, owners
from kubeshare.simulator.engine.progress import Running
from kubeshare.simulator.engine.sharing import Sharing
from kubeshare.simulator.engine.simulation import Ended, OnEnd, Settings
from kubeshare.simulator.errors import PolicyError, SimulationError
from kubeshare.simulator.experiment import Progress
from kubeshare.simulator.jobs import Job
from kubeshare.simulator.measurements import Measurements

SCHEDULER: Final = "scheduler"
DEVICE_MANAGER: Final = "device-manager"
PROGRAMS: Final = (SCHEDULER, DEVICE_MANAGER)

_WARM_UP: Final = 5.0
"""Seconds that the programs run before the first job can arrive."""
_QUIET: Final = 120.0
"""A job that is not placed for so long while none ends is never placed."""
_NEVER: Final = frozenset({Reason.NEVER_FITS, Reason.INVALID})


class ControlSimulation:
    """One run.

    Args:
        nodes: the cluster.
        policy_name: of the scheduler's placement policy.
        settings: as in the core tier.
        control: the rest.
        seed: of uids and jitter.
        on_end: called for each job that finishes.

    Attributes:
        measured: as in the core tier.
        control: what only this tier measures.
    """

    def __init__(  # noqa: PLR0913 - what is simulated, and how
        self,
        nodes: Iterable[SimulatedNode],
        policy_name: str,
        settings: Settings,
        control: ControlSettings,
        *,
        seed: int,
        on_end: OnEnd,
    ) -> None:
        self._policy_name, self._settings, self._on_end = policy_name, control, on_end
        self._server = FakeApiServer(seed, seconds=control.request_s)
        self._server.seed(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        self._server.seed(CONFIG_MAPS, _configuration(settings.keep_s))
        self._kubernetes = Kubernetes(self._server, list(nodes), settings.start, self._on_running)
        self._programs = Programs(self._server, self._run_program, self._on_program_end)
        self._sharing = Sharing(self._holders_of, settings.slowdowns, self._speed_changed)
        self._jobs: dict[str, Job] = {}  # uid -> those that have not finished
        self._placed: dict[str, float] = {}  # uid -> when it got its first holder
        self._running: dict[str, Running] = {}
        self._pods: dict[str, ObjectPath] = {}  # uid of a job -> its pod
        self._ends: dict[str, asyncio.TimerHandle] = {}
        self._active: dict[str, int] = {}  # vGPU with holders -> micros reserved
        self._reserved_micros = 0
        self._changed_s = 0.0  # when a job was last placed or ended
        self._versions = count()
        self._beside: set[asyncio.Task[None]] = set()
        self._policy_failure = ""
        self.measured = Measurements()
        self.control = ControlMeasurements(self._server)
        self._server.storage.after_change.append(self._note)

    async def run(self, jobs: Iterable[Job], progress: Progress) -> None:
        """Run jobs, in the order of their arrival, to their end.

        Raises:
            SimulationError: a job asks for what only the core tier simulates, or an earlier one
                arrives after it.
            PolicyError: the policy raised an error, or chose what does not fit.
        """
        for name in PROGRAMS:
            self._programs.start(name)
        for name, at in self._settings.restarts:
            self._do_beside(self._restart(name, at))
        await asyncio.sleep(_WARM_UP)
        latest = 0.0
        try:
            for number, job in enumerate(jobs):
                if job.arrival_s < latest:
                    raise SimulationError(f"job {job.name} arrives before the one that precedes it")
                latest = job.arrival_s
                await self._sleep_until(job.arrival_s)
                self._arrive(job, number)
                progress(1)
            while self._ends or self._now() < self._changed_s + _QUIET:
                left = self._changed_s + _QUIET - self._now()
                await asyncio.sleep(max(1.0, left))
                if self._policy_failure:
                    raise PolicyError(self._policy_failure)
        finally:
            for task in tuple(self._beside):
                task.cancel()
            await self._programs.kill()

    @property
    def running(self) -> int:
        """How many jobs are placed and have not finished."""
        return len(self._placed)

    @property
    def waiting(self) -> int:
        """How many jobs are not placed."""
        return len(self._jobs) - len(self._placed)

    # Programs.

    async def _run_program(self, name: str, client_name: str) -> None:
        client = self._server.client(client_name)
        chosen = policy(self._policy_name)
        if name == SCHEDULER:
            program = scheduler_program(client, chosen, instance=name, wall_clock=_wall_clock)
        else:
            program = device_manager_program(
                client, chosen, placeholder_image="pause", instance=name, wall_clock=_wall_clock
            )
        await program.run()

    def _on_program_end(self, name: str, error: BaseException) -> None:
        self.control.failed(f"{name} ended: {error!r}")
        self._do_beside(self._start_again(name))

    async def _restart(self, name: str, at: float) -> None:
        await asyncio.sleep(_WARM_UP + at)
        await self._programs.kill(name)
        self.control.restarts[name] += 1
        await self._start_again(name)

    async def _start_again(self, name: str) -> None:
        await asyncio.sleep(RESTART)
        self._programs.start(name)

    def _do_beside(self, doing: Any) -> None:
        task = asyncio.create_task(doing)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    # Jobs.

    def _arrive(self, job: Job, number: int) -> None:
        self._advance()
        sharepod = sharepod_of(job, number)
        self.measured.arrive(self._now())
        self._jobs[job.uid] = job
        self._changed_s = self._now()
        self._server.seed(SHAREPODS, sharepod)

    def _note(self, path: ObjectPath, new: Raw | None) -> None:
        """Follow the jobs by the objects of the API server."""
        if path.plural == VGPUS.plural:
            self._follow(path.name, new)
        elif path.plural == PODS.plural and new is not None:
            self._on_pod(path, new)
        elif path.plural == SHAREPODS.plural and new is not None:
            self._on_sharepod(path, new)

    def _follow(self, name: str, vgpu: Raw | None) -> None:
        """Account for what the holders of a vGPU reserve, and for new ones."""
        self._advance()
        self._reserved_micros -= self._active.pop(name, 0)
        found = holders(vgpu) if vgpu is not None else []
        if found:
            self._active[name] = sum(each["requestMicros"] for each in found)
            self._reserved_micros += self._active[name]
        for uid in {each["demand"] for each in found} & self._jobs.keys() - self._placed.keys():
            self._placed[uid] = self._changed_s = self._now()
            self.measured.waits_s.append(self._now() - self._jobs[uid].arrival_s)

    def _on_pod(self, path: ObjectPath, pod: Raw) -> None:
        for uid in owners(pod):
            if uid in self._placed and uid not in self._pods:
                self._pods[uid] = path
                self.control.created_s.append(self._now() - self._placed[uid])

    def _on_running(self, pod: Raw) -> None:
        for uid in owners(pod):
            job = self._jobs.get(uid)
            if job is None or uid not in self._placed or uid in self._running:
                continue
            self._advance()
            self.control.ran_s.append(self._now() - self._placed[uid])
            self._running[uid] = Running(
                job=job,
                node=pod["spec"]["nodeName"],
                devices=tuple(sorted(self._kubernetes.held[uid])),
                placed_s=self._placed[uid],
                left_s=job.work_s,
                version=next(self._versions),
            )
            self._sharing.start(self._running[uid], self._now())

    def _on_sharepod(self, path: ObjectPath, sharepod: Raw) -> None:
        """Delete the SharePod of a job that has ended, or can never be placed, as its user does."""
        uid, status = sharepod["metadata"]["uid"], sharepod.get("status", {})
        if sharepod["metadata"].get("deletionTimestamp"):
            return
        conditions = {each["type"]: each for each in status.get("conditions", ())}
        scheduled: Raw = conditions.get(CONDITION_SCHEDULED, {})
        if scheduled.get("reason") == Reason.POLICY_FAILED:
            self._policy_failure = f"{scheduled['message']}; it was asked about {path.name}"
        if scheduled.get("status") == "False" and scheduled["reason"] in _NEVER:
            self._jobs.pop(uid, None)
            self.measured.refuse(scheduled["message"])
        elif status.get("phase") not in ENDED:
            return
        asyncio.get_running_loop().call_soon(
            self._server.delete, SHAREPODS, path.name, path.namespace
        )

    def _speed_changed(self, running: Running) -> None:
        """Expect the end of a job anew; none while its limit is 0."""
        uid = running.job.uid
        if handle := self._ends.pop(uid, None):
            handle.cancel()
        if running.speed > 0 and running.left_s < math.inf:
            loop = asyncio.get_running_loop()
            self._ends[uid] = loop.call_later(running.left_s / running.speed, self._finish, running)

    def _finish(self, running: Running) -> None:
        job, now = running.job, self._now()
        self._advance()
        del self._ends[job.uid], self._running[job.uid], self._jobs[job.uid]
        del self._placed[job.uid]
        self.measured.finish(job.arrival_s, now)
        self._changed_s = now
        self._on_end(
            Ended(
                job=job,
                node=running.node,
                devices=running.devices,
                placed_s=running.placed_s,
                finished_s=now,
            )
        )
        self._kubernetes.end(self._server.storage.objects[self._pods.pop(job.uid)])
        self._sharing.leave([running], now)

    def _holders_of(self, name: str) -> tuple[Holder, ...]:
        vgpu = self._server.find(VGPUS, name)
        found = holders(vgpu) if vgpu is not None else []
        return decode_all(msgspec.convert(found, tuple[v1.Holder, ...]))

    # Time.

    def _now(self) -> float:
        return asyncio.get_running_loop().time() - _WARM_UP

    async def _sleep_until(self, at: float) -> None:
        await asyncio.sleep(max(0.0, at - self._now()))

    def _advance(self) -> None:
        gauges = (
            self._sharing.used_micros / MICROS,
            self._reserved_micros / MICROS,
            float(len(self._active)),
            float(self.waiting),
        )
        self.measured.series.advance(self._now(), gauges)


def _wall_clock() -> datetime:
    return BEGINNING + timedelta(seconds=asyncio.get_running_loop().time())


def _configuration(keep_s: float) -> Raw:
    """The configuration of a pool that keeps idle vGPUs for so long."""
    pool: Raw = {"policy": "onDemand"}
    if keep_s:
        pool = {"policy": "hybrid", "idleSeconds": keep_s}
    metadata = {"name": "kubeshare", "namespace": NAMESPACE}
    return {"metadata": metadata, "data": {"config.yaml": yaml.safe_dump({"pool": pool})}}

"""Runs jobs: a heap of events over the production core.

Where a job is placed, what waits and what is retried is decided by
:class:`kubeshare.core.simulation.PlacementQueue`, as in ``kubeshare plan``. This module adds
time: jobs arrive, start, progress at the speed of their shares, end, and are evicted.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from random import Random
from typing import TypeAlias

import msgspec

from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis.feasibility import infeasible
from kubeshare.core.errors import InvalidValueError, LedgerError
from kubeshare.core.ledger.device import Device
from kubeshare.core.policies import Policy
from kubeshare.core.preemption import cheapest_preemption
from kubeshare.core.simulation import Bound, PlacementQueue
from kubeshare.core.units import MICROS
from kubeshare.simulator.cluster import Cluster
from kubeshare.simulator.engine.events import Event, Events
from kubeshare.simulator.engine.fragments import FragmentMeter
from kubeshare.simulator.engine.pools import Pools
from kubeshare.simulator.engine.progress import Running, Slowdowns
from kubeshare.simulator.engine.requests import RequestQueue
from kubeshare.simulator.engine.sharing import Sharing
from kubeshare.simulator.errors import PolicyError, SimulationError
from kubeshare.simulator.jobs import NO_HOST_REQUEST, HostRequest, Job
from kubeshare.simulator.measurements import Measurements
from kubeshare.simulator.systems import System, checked


class StartTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds from the decision about a pod until it runs.

    Attributes:
        native: of a pod that gets whole GPUs from Kubernetes.
        existing: of a pod on a vGPU that exists.
        new: of a pod whose vGPU is made first.
    """

    # Medians of the lab: bench/results/2026-11-22-lab-two-cores.txt, the second run.
    native: float = 0.21
    existing: float = 0.25
    new: float = 0.32


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What is simulated beside jobs, cluster and system.

    Attributes:
        start: how long pods take to start.
        keep_s: for how long an idle vGPU is kept.
        slowdowns: between kinds of jobs.
        pack_hosts: whether kube-scheduler places jobs that ask for no GPU where least is left
            (its strategy MostAllocated), and not where most is (LeastAllocated).
    """

    start: StartTimes = StartTimes()
    keep_s: float = 0.0
    slowdowns: Slowdowns = msgspec.field(default_factory=dict)
    pack_hosts: bool = False


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """A job that has finished; times in seconds since the start."""

    job: Job
    node: str
    devices: tuple[str, ...]
    placed_s: float
    finished_s: float


OnEnd: TypeAlias = Callable[[Ended], None]

Following: TypeAlias = Callable[[float], Job | None]
"""The job that is submitted because another one has ended, or was refused, at a time."""

_FINISH, _START, _POOL, _ARRIVAL = range(4)


class Simulation:
    """One run.

    Args:
        cluster: empty; it is changed.
        system: places the jobs.
        settings: the rest.
        on_end: called for each job that finishes.
        seed: draws the requests of inference jobs.

    Attributes:
        measured: what has been measured so far.
        fragments: the fragmentation while no job has ended.
    """

    def __init__(
        self,
        cluster: Cluster,
        system: System,
        settings: Settings,
        on_end: OnEnd = lambda _: None,
        seed: int = 0,
    ) -> None:
        self._seed = seed
        self._following: Following = _none_follows
        self._to_come: dict[str, Job] = {}  # uid -> what is submitted later
        self._ledger, self._room = cluster.ledger, cluster.room
        self._system, self._settings, self._on_end = system, settings, on_end
        system.attach(self._ledger, self._room)
        self._policy: Policy = checked(system, self._room)
        self._queue = PlacementQueue(self._ledger, self._policy)
        owned = bool(self._ledger.devices)
        self._pools = None if owned else Pools(self._ledger, settings.keep_s)
        self._jobs: dict[str, Job] = {}  # uid -> what waits or runs
        self._running: dict[str, Running] = {}
        self._waiting_hosts: dict[str, Job] = {}  # those that ask for no GPU
        self._preemptible: dict[str, int] = {}  # uid -> priority
        self._events = Events(self._is_valid)
        self._sharing = Sharing(
            lambda device_id: self._ledger.devices[device_id].holders,
            settings.slowdowns,
            self._speed_changed,
        )
        self._review_at: dict[str, float] = {}  # node -> when its pool is reviewed next
        self._versions = count()
        self._now = 0.0
        self._reserved_micros = 0
        self._active: dict[str, int] = {}  # micros reserved of the devices with holders
        self.measured = Measurements()
        self.fragments = FragmentMeter(self._ledger, self._cpu_left)

    def run(self, jobs: Iterable[Job], following: Following | None = None) -> Iterator[int]:
        """Run jobs, in the order of their arrival, to their end.

        Args:
            jobs: them.
            following: called for each job that has ended, or was refused; None if none follows.

        Yields:
            how many jobs have arrived, after each arrival.

        Raises:
            SimulationError: the jobs are not in order, or the policy failed.
        """
        self._following = following or _none_follows
        for job in jobs:
            if job.arrival_s < self._now:
                raise SimulationError(f"job {job.name} arrives before the one that precedes it")
            yield from self._play(until=job.arrival_s)
            if self.measured.interrupted:
                return
            self._advance(job.arrival_s)
            self._arrive(job)
            yield self.measured.arrived
        self.fragments.last_arrived()
        yield from self._play(until=math.inf)

    def stop(self) -> None:
        """End the run after the present event; it is marked as interrupted."""
        self.measured.interrupted = True

    @property
    def running(self) -> int:
        """How many jobs are placed and have not finished."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """How many jobs are not placed."""
        return len(self._jobs) - len(self._running)

    def _play(self, until: float) -> Iterator[int]:
        """Handle the events before a time; to the end only as long as a job runs to its own.

        Yields:
            how many jobs have arrived, after each one that follows another.
        """
        while not self.measured.interrupted and (event := self._events.pop(until)):
            over = until == math.inf and not self._running and not self._to_come
            if event.kind == _POOL and over:
                return
            self._advance(event.time)
            if event.kind == _POOL:
                self._review(event.key)
            elif event.kind == _START:
                self._start(self._running[event.key])
            elif event.kind == _ARRIVAL:
                self._arrive(self._to_come.pop(event.key))
                yield self.measured.arrived
            else:
                self._finish(self._running[event.key])

    def _advance(self, now: float) -> None:
        gauges = (
            self._sharing.used_micros / MICROS,
            self._reserved_micros / MICROS,
            float(len(self._active)),
            float(self.waiting),
        )
        self.measured.series.advance(now, gauges)
        self._now = now

    def _is_valid(self, event: Event) -> bool:
        """Whether an event is not outdated by a later one."""
        if event.kind == _POOL:
            return self._review_at.get(event.key) == event.time
        if event.kind == _ARRIVAL:
            return True
        running = self._running.get(event.key)
        return running is not None and running.version == event.version

    def _cpu_left(self, node: str) -> int | None:
        return self._room.left(node)[0] if self._room and node in self._room.capacity else None

    def _arrive(self, job: Job) -> None:
        self.measured.arrive(self._now)
        self.fragments.arrive(job)
        if job.host != NO_HOST_REQUEST and not self._is_known_host(job):
            self._refuse(f"no node has {job.host.key}")
            return
        if job.demand is None:
            self._jobs[job.uid] = self._waiting_hosts[job.uid] = job
            self._place_on_hosts()
            return
        job = self._adapted(job)
        self._jobs[job.uid] = job
        self._submit(job)

    def _is_known_host(self, job: Job) -> bool:
        """Whether a job's CPU and memory fit an empty node; if so, the room counts them.

        Raises:
            SimulationError: the simulation knows no CPU and memory of nodes.
        """
        if self._room is None:
            words = "the CPU and memory of the nodes are not given"
            raise SimulationError(f"job {job.name} requests {job.host.key}, and {words}")
        self._room.requests.setdefault(job.host.key, job.host)
        return self._room.ever_fits(job.host)

    def _adapted(self, job: Job) -> Job:
        assert job.demand is not None
        demand = self._system.adapt(job.demand)
        if self._room is not None:
            demand = msgspec.structs.replace(demand, service=job.host.key)
        return msgspec.structs.replace(job, demand=demand)

    def _submit(self, job: Job) -> None:
        demand = job.demand
        assert demand is not None
        bound: Iterable[Bound] = ()
        try:
            if job.gang is None:
                decision = self._queue.submit(demand, job.priority)
            else:
                decision, bound = self._queue.join(demand, job.gang, job.priority)
        except LedgerError as error:
            raise self._misplaced(job.name, error) from error
        except InvalidValueError as error:
            raise SimulationError(f"job {job.name}: {error}") from error
        if decision.outcome == "bound":
            self._place(demand.uid, decision)
        elif decision.outcome == "rejected":
            del self._jobs[demand.uid]
            self._refuse(self._why(demand, decision))
        elif self._preemptible and job.gang is None:
            self._preempt(job)
        for other, decided in bound:
            self._place(other.uid, decided)

    def _refuse(self, why: str) -> None:
        self.measured.refuse(why)
        self._follow_up()

    def _follow_up(self) -> None:
        """Let a job come that follows one that has left."""
        job = self._following(self._now)
        if job is not None:
            self._to_come[job.uid] = job
            self._events.push(job.arrival_s, _ARRIVAL, job.uid)

    def _why(self, demand: Demand, decision: Decision) -> str:
        """Why a demand is rejected."""
        # The reasons of a decision go through all GPUs, so they are the second choice.
        found = infeasible(self._ledger, demand)
        field = str(decision.field)
        return found[1] if found else decision.reasons.get(field, f"the policy refuses {field}")

    def _place(self, uid: str, decision: Decision) -> None:
        """Follow a decision that the queue has recorded in the ledger."""
        assert decision.node is not None
        new = bool(decision.new)
        self._run(uid, decision.node, tuple(sorted(set(decision.devices))), new=new)
        for device_id in decision.devices:
            self._follow(self._ledger.devices[device_id])

    def _run(self, uid: str, node: str, devices: tuple[str, ...], *, new: bool = False) -> None:
        job, start = self._jobs[uid], self._settings.start
        running = Running(
            job=job,
            node=node,
            devices=devices,
            placed_s=self._now,
            left_s=job.work_s,
            version=next(self._versions),
        )
        self._running[uid] = running
        self.measured.waits_s.append(self._now - job.arrival_s)
        if job.preemptible and devices:
            self._preemptible[uid] = job.priority
        shared = start.new if new else start.existing
        delay = start.native if self._system.native or not devices else shared
        self._events.push(self._now + delay, _START, uid, running.version)

    def _follow(self, device: Device) -> None:
        """Account for what the holders of a device reserve."""
        self._reserved_micros -= self._active.pop(device.id, 0)
        if not device.idle:
            reserved = device.totals.request_micros
            self._active[device.id] = reserved
            self._reserved_micros += reserved

    def _start(self, running: Running) -> None:
        job = running.job
        if job.service_s and running.devices:
            random = Random(f"{self._seed}/{job.uid}")  # noqa: S311 - repeatable on purpose
            running.requests = RequestQueue(job, self._now, random, self.measured.latencies.add)
        self._sharing.start(running, self._now)

    def _speed_changed(self, running: Running) -> None:
        """Expect the end of a job anew; none while its limit is 0."""
        running.version = next(self._versions)
        if running.speed > 0 and running.left_s < math.inf:
            end = self._now + running.left_s / running.speed
            self._events.push(end, _FINISH, running.job.uid, running.version)

    def _finish(self, running: Running) -> None:
        job = running.job
        self.measured.finish(job.arrival_s, self._now)
        if running.requests is not None:
            running.requests.end()
        self.fragments.stop()
        self._on_end(
            Ended(
                job=job,
                node=running.node,
                devices=running.devices,
                placed_s=running.placed_s,
                finished_s=self._now,
            )
        )
        self._leave([running])
        self._follow_up()

    def _leave(self, leaving: Sequence[Running]) -> None:
        """Release jobs, all before anything else is placed, and place what fits then."""
        for running in leaving:
            uid = running.job.uid
            del self._running[uid], self._jobs[uid]
            self._preemptible.pop(uid, None)
            if running.devices:
                self._ledger.release(uid)
            elif self._room is not None:
                self._room.give_back(running.node, running.job.host)
        bound = self._retried(leaving)
        for device_id in (each for running in leaving for each in running.devices):
            self._follow(self._ledger.devices[device_id])
        self._sharing.leave(leaving, self._now)
        for demand, decision in bound:
            self._place(demand.uid, decision)
        self._place_on_hosts()
        for node in dict.fromkeys(running.node for running in leaving if running.devices):
            self._review(node)

    def _retried(self, left: Sequence[Running]) -> list[Bound]:
        """What waited and is placed now that jobs have left."""
        try:
            return [bound for each in left for bound in self._queue.release(each.job.uid)]
        except LedgerError as error:
            names = ", ".join(running.job.name for running in left)
            raise self._misplaced(f"a job after the end of {names}", error) from error

    def _review(self, node: str) -> None:
        if self._pools is None:
            return
        again = self._pools.review(node, self._now)
        if again is None:
            self._review_at.pop(node, None)
            return
        time = self._now + again
        if self._review_at.get(node) != time:
            self._review_at[node] = time
            self._events.push(time, _POOL, node)

    def _preempt(self, job: Job) -> None:
        """Evict jobs of lower priority for one that does not fit; they begin anew."""
        assert job.demand is not None
        lower = {uid: has for uid, has in self._preemptible.items() if has < job.priority}
        if not lower:
            return
        found = cheapest_preemption(
            self._policy,
            self._ledger,
            job.demand,
            priority=job.priority,
            preemptible=lower,
        )
        victims = [self._running[uid] for uid in found.leave] if found else []
        self.measured.evicted += len(victims)
        self._leave(victims)
        for victim in victims:
            self._jobs[victim.job.uid] = victim.job
            self._submit(victim.job)

    def _place_on_hosts(self) -> None:
        """Place jobs that ask for no GPU."""
        full: set[HostRequest] = set()
        for uid, job in list(self._waiting_hosts.items()):
            if job.host in full:
                continue
            node = self._node_for(job.host)
            if node is None:
                full.add(job.host)
                continue
            del self._waiting_hosts[uid]
            if self._room is not None:
                self._room.take(node, job.host)
            self._run(uid, node, ())

    def _node_for(self, host: HostRequest) -> str | None:
        if self._room is None:
            return ""
        pack = self._settings.pack_hosts
        kubernetes = self._room.fullest if pack else self._room.emptiest
        return (self._system.node_for or kubernetes)(host)

    def _misplaced(self, name: str, error: LedgerError) -> PolicyError:
        return PolicyError(
            f"policy {self._system.name} placed {name} where it does not fit: {error}"
        )


def _none_follows(ended_s: float) -> None:
    """The answer where all jobs are given from the beginning."""
    del ended_s

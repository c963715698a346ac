"""The same jobs through the lab and through both tiers of the simulator.

``python -m bench.lab.tiers`` (root; 10 minutes). SharePods arrive in the lab as the jobs of a
workload do, and sleep for as long as each job takes. The tiers simulate the same jobs on the same
nodes; a start takes what it took in the lab, by the median.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

import msgspec

from bench.lab.pods import NAMESPACE, Bench
from bench.report import NO_GOAL, Met, at_most, median, print_machine, report, summarize
from kubeshare.api.types.v1 import GPUNODES, SHAREPODS, VGPU
from kubeshare.core.ledger.device import FreeGpu
from kubeshare.install import manifests, rollout
from kubeshare.kube.client.client import Client
from kubeshare.lab.cluster import Lab, Shape
from kubeshare.lab.progress import Progress
from kubeshare.simulator.cluster import SimulatedNode
from kubeshare.simulator.control_tier.objects import sharepod_of
from kubeshare.simulator.control_tier.run import run_control
from kubeshare.simulator.control_tier.settings import ControlSettings
from kubeshare.simulator.engine.simulation import Ended, Settings, StartTimes
from kubeshare.simulator.experiment import Experiment, run
from kubeshare.simulator.jobs import Job
from kubeshare.simulator.workloads.poisson import PoissonJobs

_SHAPE: Final = Shape(nodes=2, gpus="V100x2")
_JOBS: Final = 40
_INTERARRIVAL_S: Final = 4.0
_SHORTEST_S, _LONGEST_S = 15, 45
_ROLLOUT_SECONDS: Final = 180.0


class Place(msgspec.Struct, frozen=True):
    """Where and when a job was; times in seconds since the first could arrive."""

    node: str
    vgpu: str
    placed_s: float
    ran_s: float
    finished_s: float
    released_s: float


class Jobs:
    """Random jobs of different lengths, which need no more than they ask for."""

    count = _JOBS

    def draw(self, seed: int) -> Iterator[Job]:
        """The jobs of a seed."""
        random = Random(seed)
        drawn = PoissonJobs(
            count=_JOBS,
            interarrival_s=_INTERARRIVAL_S,
            duration_s=1,
            demand_mean=0.3,
            demand_deviation=0.1,
        )
        for job in drawn.draw(seed):
            yield msgspec.structs.replace(job, work_s=random.uniform(_SHORTEST_S, _LONGEST_S))


class Watched:
    """Follows the jobs of the lab by their objects."""

    def __init__(self, bench: Bench) -> None:
        self.origin = asyncio.get_running_loop().time()
        self.placed: dict[str, tuple[float, VGPU]] = {}
        self.ran: dict[str, float] = {}
        self.finished: dict[str, float] = {}
        self.released: dict[str, float] = {}
        bench.vgpus.subscribe(lambda change: self._on_vgpu(change.object))
        bench.pods.subscribe(lambda change: self._on_pod(change.object))

    def now(self) -> float:
        """Seconds since the first job could arrive."""
        return asyncio.get_running_loop().time() - self.origin

    def _on_vgpu(self, vgpu: VGPU) -> None:
        now = {holder.name for holder in vgpu.status.holders}
        for name in now - self.placed.keys():
            self.placed[name] = self.now(), vgpu
        for name, (_, before) in self.placed.items():
            if before.metadata.name == vgpu.metadata.name and name not in now:
                self.released.setdefault(name, self.now())

    def _on_pod(self, pod: Any) -> None:
        if pod.status.phase in ("Running", "Succeeded"):
            self.ran.setdefault(pod.metadata.name, self.now())
        if pod.status.phase == "Succeeded":
            self.finished.setdefault(pod.metadata.name, self.now())


def main() -> int:
    """Boot a lab, run the jobs, take it down, and compare."""
    parser = argparse.ArgumentParser(prog="bench.lab.tiers", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed
    lab = Lab("tiers")
    lab.down()
    try:
        lab.up(_SHAPE)
        print_machine()
        nodes, jobs = asyncio.run(_in_lab(lab, seed))
    finally:
        lab.down()
    return summarize(_compare(nodes, jobs, seed))


async def _in_lab(lab: Lab, seed: int) -> tuple[list[SimulatedNode], dict[str, Place]]:
    async with Client.connect(lab.kubeconfig) as client:
        ours = manifests.load(manifests.Options())
        await rollout.install(client, ours, deadline=_ROLLOUT_SECONDS, say=Progress().say)
        bench = Bench(client)
        async with bench.watching():
            await bench.sharing()  # warms up caches
            nodes = [_node(found) for found in (await client.list(GPUNODES)).items]
            watched = Watched(bench)
            await _apply(bench, client, watched, seed)
        return nodes, {
            name: Place(
                node=vgpu.spec.node_name,
                vgpu=vgpu.metadata.name,
                placed_s=placed,
                ran_s=watched.ran[name],
                finished_s=watched.finished[name],
                released_s=watched.released[name],
            )
            for name, (placed, vgpu) in watched.placed.items()
        }


def _node(found: Mapping[str, Any]) -> SimulatedNode:
    devices = found["spec"]["devices"]
    kind = FreeGpu(devices[0]["model"], devices[0]["memoryBytes"])
    return SimulatedNode(name=found["metadata"]["name"], gpus=len(devices), kind=kind)


async def _apply(bench: Bench, client: Client, watched: Watched, seed: int) -> None:
    names = []
    for number, job in enumerate(Jobs().draw(seed)):
        await asyncio.sleep(max(0.0, job.arrival_s - watched.now()))
        made = sharepod_of(job, number)
        container = {
            "name": "main",
            "image": "kubeshare:dev",
            "imagePullPolicy": "IfNotPresent",
            "command": ["sleep", f"{job.work_s:.3f}"],
        }
        more = {"restartPolicy": "Never", "automountServiceAccountToken": False}
        names.append(made["metadata"]["name"])
        await bench.create(SHAREPODS, names[-1], made["spec"] | {"containers": [container]} | more)
    await bench.until(lambda: watched.released.keys() >= set(names), "all jobs to end")
    for name in names:
        await client.delete(SHAREPODS, name, NAMESPACE)


def _compare(nodes: Sequence[SimulatedNode], lab: dict[str, Place], seed: int) -> list[Met]:
    uses = sorted(lab.items(), key=lambda item: item[1].placed_s)
    first = {place.vgpu: name for name, place in reversed(uses)}
    new = [place.ran_s - place.placed_s for name, place in uses if first[place.vgpu] == name]
    old = [place.ran_s - place.placed_s for name, place in uses if first[place.vgpu] != name]
    start = StartTimes(existing=median(old), new=max(median(new), median(old)))
    experiment = Experiment(nodes=nodes, workload=Jobs(), settings=Settings(start=start))
    found: dict[str, dict[str, Place]] = {"core": {}, "control": {}}
    names = {job.uid: f"job-{number:07}" for number, job in enumerate(Jobs().draw(seed))}

    def keep(tier: str, ended: Ended) -> None:
        placed, finished = ended.placed_s, ended.finished_s
        [vgpu] = ended.devices
        found[tier][names[ended.job.uid]] = Place(
            ended.node, vgpu, placed, placed, finished, finished
        )

    run(experiment, "locality", seed, lambda ended: keep("core", ended))
    settings = ControlSettings()
    run_control(settings, experiment, "locality", seed, lambda ended: keep("control", ended))
    results = [
        report(
            f"{len(lab)} jobs in the lab: from the first holder until the pod runs, s",
            NO_GOAL,
            median(old),
            on_a_new_vgpu_s=round(median(new), 3),
        ),
        report(
            f"{len(lab)} jobs in the lab: from the end of the pod until its share is free, s",
            NO_GOAL,
            median([place.released_s - place.finished_s for place in lab.values()]),
        ),
    ]
    for tier, simulated in found.items():
        results += _beside_lab(tier, simulated, lab)
    return results


def _beside_lab(tier: str, simulated: dict[str, Place], lab: dict[str, Place]) -> list[Met]:
    in_order = sorted(lab, key=lambda name: lab[name].placed_s)
    alike = [_where(simulated, name) == _where(lab, name) for name in in_order]
    until = alike.index(False) if False in alike else len(alike)
    if until < len(alike):
        name = in_order[until]
        print(f"{tier}: {name}: {lab[name]}, simulated {simulated[name]}", file=sys.stderr)
    same_node = sum(simulated[name].node == place.node for name, place in lab.items())
    late = sorted(place.placed_s - simulated[name].placed_s for name, place in lab.items())
    return [
        report(
            f"{tier} tier: jobs on the node of the lab, of all",
            NO_GOAL,
            same_node / len(lab),
            node_and_neighbours_alike=round(sum(alike) / len(lab), 3),
            first_that_differs=until,
        ),
        report(
            f"{tier} tier: makespan of the lab, by the simulated one",
            at_most(1.1),
            _makespan(lab) / _makespan(simulated),
        ),
        report(
            f"{tier} tier: jobs are placed later in the lab, median, s",
            NO_GOAL,
            median(late),
            earliest_s=round(late[0], 3),
            latest_s=round(late[-1], 3),
        ),
    ]


def _where(places: Mapping[str, Place], name: str) -> tuple[str, set[str]]:
    """A job's node, and the jobs that had a share of its vGPU when it was placed."""
    own = places[name]
    return own.node, {
        other
        for other, each in places.items()
        if each.vgpu == own.vgpu and each.placed_s < own.placed_s < each.released_s
    }


def _makespan(places: Mapping[str, Place]) -> float:
    return max(place.finished_s for place in places.values())


if __name__ == "__main__":
    sys.exit(main())

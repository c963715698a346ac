"""A machine whose containers are bound to CPUs, by default two sockets of 14 cores of two threads.

Each look is by another start of the agent.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry

from fakes.node import NODE, Running
from fakes.node.cgroups import FakeCgroups, container_id
from kubeshare.api.configuration import CpuCores
from kubeshare.kube.controller.controller import RequeueAfter
from kubeshare.kube.resources import EVENTS, PODS
from kubeshare.node.agent import Agent
from kubeshare.node.cpu.binder import CpuBinder
from kubeshare.node.cpu.cpusets import Cpusets
from kubeshare.node.gpus.pod_resources import PodResourcesError
from kubeshare.node.paths import NodePaths
from kubeshare.simulator.control import FakeApiServer, run_virtual
from kubeshare.tokens.files.grants import (
    GRANT_VERSION,
    Grant,
    GrantedPod,
    GrantedShare,
    remove_grant,
    write_grant,
)
from kubeshare.tokens.files.run_folder import Paths

CORES = [frozenset([core, core + 28]) for core in range(28)]


class Machine:
    """The node, its containers and their cgroups.

    Attributes:
        default: how many cores the configuration says.
        exclusive: the CPUs that the kubelet assigns; None: it does not answer.
        mounted: pid → the names of the grants that the process has mounted.
        metrics: those of the last look.
    """

    def __init__(self, server: FakeApiServer, paths: NodePaths, agent: Running) -> None:
        self.server, self._paths, self._agent = server, Paths(paths.run_folder), agent
        self._cgroups_root = paths.cgroups
        self.cgroups = FakeCgroups(paths.cgroups, 2)
        self.cores = CORES
        self.default: CpuCores = "all"
        self.exclusive: set[int] | None = set()
        self.mounted: dict[int, tuple[str, ...]] = {}
        self.metrics: dict[str, float] = {}
        self._folders: dict[str, Path] = {}

    def use_version_1(self, cpus: str = "0-55") -> None:
        """Let the machine have cgroups of version 1."""
        (self._cgroups_root / "cgroup.controllers").unlink()
        self.cgroups = FakeCgroups(self._cgroups_root, 1, cpus)

    def add(
        self,
        pod: str,
        gpus: Mapping[str, Sequence[str]],
        *,
        cores: str = "",
        cpu: str = "0",
        runs: bool = True,
    ) -> None:
        """Add a pod; ``gpus``: container → its GPUs, by a grant of its own."""
        number = len(self.server.all(PODS)) + 1
        uid = f"00000000-0000-0000-0000-{number:012x}"
        statuses = []
        for place, (name, uuids) in enumerate(gpus.items()):
            identity = container_id(100 * number + place)
            statuses.append({"name": name, "containerID": f"containerd://{identity}"})
            if runs:
                pid = 1000 * number + place
                self._folders[f"{pod}/{name}"] = self.cgroups.add(uid, identity, pid)
                self.mounted[pid] = (f"{pod}.{name}",) if uuids else ()
            if uuids:
                self._grant(pod, uid, name, uuids)
        containers = [{"name": name, "resources": {"requests": {"cpu": cpu}}} for name in gpus]
        self.server.seed(
            PODS,
            {
                "metadata": {"name": pod, "namespace": "default", "uid": uid,
                             "annotations": {"kubeshare.nthu/cpuCores": cores} if cores else {}},
                "spec": {"nodeName": NODE, "containers": containers},
                "status": {"phase": "Running", "containerStatuses": statuses},
            },
        )  # fmt: skip

    def _grant(self, pod: str, uid: str, name: str, uuids: Sequence[str]) -> None:
        shares = [
            GrantedShare(uuid=uuid, memory_total_bytes=1, request_micros=1, limit_micros=1,
                         memory_bytes=1)
            for uuid in uuids
        ]  # fmt: skip
        holder = GrantedPod(namespace="default", name=pod, uid=uid)
        write_grant(self._paths, Grant(
            version=GRANT_VERSION, claim=f"{pod}.{name}", gpus=tuple(shares), pod=holder,
        ))  # fmt: skip

    def end(self, container: str) -> None:
        """Let a container end; its grant stays until the kubelet unprepares the claim."""
        folder = self._folders.pop(container)
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()

    def revoke(self, grant: str) -> None:
        remove_grant(self._paths, grant)

    def folder(self, container: str) -> Path:
        return self._folders[container]

    def annotate(self, pod: str, cores: str) -> None:
        self.server.change(
            PODS, pod, "default",
            lambda found: found["metadata"].update(annotations={"kubeshare.nthu/cpuCores": cores}),
        )  # fmt: skip

    def look(self, times: int = 1) -> RequeueAfter | None:
        """Start the agent and let it look so often."""
        answers = []

        async def act(agent: Agent, binder: CpuBinder) -> None:
            answers.extend([await binder.reconcile(NODE) for _ in range(times)])

        self.run(act)
        return answers[-1]

    def run(self, act: Callable[[Agent, CpuBinder], Awaitable[None]]) -> None:
        async def main() -> None:
            async with self._agent() as agent:
                agent.inventory.first_reading.set()
                binder = CpuBinder(
                    agent.view,
                    agent.grants,
                    agent.inventory,
                    cpusets=Cpusets(self.cgroups.root),
                    cores=lambda: self.cores,
                    default=lambda: self.default,
                    exclusive_cpus=self._exclusive,
                    grants_of=self._mounted_by,
                    events=agent.events,
                )
                await act(agent, binder)
                await agent.events.flush()
                self.metrics = _collected(binder)

        run_virtual(main())

    async def _exclusive(self) -> set[int]:
        if self.exclusive is None:
            raise PodResourcesError("the kubelet does not answer")
        return self.exclusive

    def _mounted_by(self, pid: int) -> tuple[str, ...]:
        if pid not in self.mounted:
            raise ProcessLookupError(pid)
        return self.mounted[pid]

    def cpus(self) -> dict[str, str]:
        """Container → the CPUs that it is bound to."""
        return {name: self.cgroups.cpus_of(folder) for name, folder in self._folders.items()}

    def events(self) -> list[tuple[str, str]]:
        """The object and the text of each event."""
        return [(event["regarding"]["name"], event["note"]) for event in self.server.all(EVENTS)]


def _collected(binder: CpuBinder) -> dict[str, float]:
    registry = CollectorRegistry()
    binder.metrics.register(registry)
    return {
        "{namespace}/{pod}/{container} {cpus}".format_map(sample.labels): sample.value
        for metric in registry.collect()
        for sample in metric.samples
    }

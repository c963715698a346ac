"""The fake cluster of a test: its machines and the programs under test."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from prometheus_client import generate_latest

from fakes.cluster.cluster_objects import ClusterObjects
from fakes.cluster.invariants import Invariants
from fakes.cluster.machines import InlineExecutor, Machine
from fakes.cluster.storage import Storage
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.api.types.v1 import GPUNODES, VGPUS
from kubeshare.core.policies import policy
from kubeshare.device_manager.program import device_manager_program
from kubeshare.extender.program import extender_program
from kubeshare.extender.service import ExtenderService
from kubeshare.install import manifests as installed
from kubeshare.kube.controller.leader_election import LeadershipLostError
from kubeshare.kube.controller.runtime import Program
from kubeshare.kube.resources import NAMESPACES, NODES
from kubeshare.scheduler.program import scheduler_program
from kubeshare.simulator.control import Authorizer, FakeApiServer, until
from kubeshare.simulator.control_tier.programs import RESTART, Programs
from kubeshare.simulator.control_tier.stored import overcommitted

Raw = dict[str, Any]

BORN = datetime(2026, 1, 1, tzinfo=UTC)
"""The wall clock at the start of virtual time."""

MEMORY = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
"""Where the disks of nodes are: in memory, for speed."""

ACCOUNTS = {
    "scheduler": "kubeshare-scheduler",
    "devices": "kubeshare-device-manager",
    "agent": "kubeshare-node-agent",
    "extender": "kubeshare-extender",
}
"""Program -> its ServiceAccount."""


class FakeCluster(ClusterObjects):
    """A cluster of nodes with GPUs.

    Args:
        seed: of jitter and uids; a scenario takes the same course with the same seed.
        gpus: node -> its number of GPUs of 16 GiB.

    Attributes:
        policy: the name of the scheduler's placement policy.
        elect: whether the programs elect leaders.
        invariants: checks what must always hold.
        rights: program -> its rights from ``manifests/rbac``; other requests are refused.
        clocks: program -> the number of seconds by which its clock is fast.
        storage: volumes and claims.
        deadline: virtual seconds that :meth:`until` and expectations wait by default.
        agents: whether the real node agent runs on every node, as ``agent/NODE``.
        machines: the nodes with a real agent, by name.
        extenders: replica of the extender -> the service that kube-scheduler calls.
    """

    def __init__(self, seed: int = 0, /, **gpus: int) -> None:
        super().__init__(FakeApiServer(seed))
        self.policy = "locality"
        self.elect = False
        self.clocks: dict[str, float] = {}
        self.agents = False
        self.deadline = 60.0
        self._seed = seed
        self.storage = Storage(self.server)
        self.rights = {name: Authorizer(_roles(), account) for name, account in ACCOUNTS.items()}
        self.extenders: dict[str, ExtenderService] = {}
        self._tasks = Programs(self.server, self._program, self._ended)
        self._programs: dict[str, Program] = {}
        self._beside: set[asyncio.Task[None]] = set()
        self._disks = Path()
        self.server.add_rule(VGPUS, overcommitted)
        self.server.seed(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        self.invariants = Invariants(self.server, self.actors)
        for name, count in gpus.items():
            self.add_node(name, count)

    # Machines.

    @property
    def machines(self) -> dict[str, Machine]:
        return self.actors.machines

    def lose_node(self, name: str) -> None:
        """Removes a machine and its Node object."""
        if name in self.machines:
            self.machines[name].lose()
            self._tasks.end(f"agent/{name}")
        self.server.remove(NODES, name)

    def fail_gpus(self, node: str, message: str) -> None:
        """Makes all GPUs of a node unhealthy, with this message of the driver."""
        if node in self.machines:
            self.machines[node].fail(message)
            return

        def fail(obj: Raw) -> None:
            for gpu in obj["spec"]["devices"]:
                gpu |= {"healthy": False, "message": message}

        self.server.change(GPUNODES, node, "", fail)

    # The programs under test.

    def start(self, *names: str) -> None:
        """Starts ``scheduler``, ``devices``, ``extender``, or replicas: ``scheduler/second``, ….

        By default starts the two, and the real agents of the nodes.
        """
        agents = [f"agent/{node}" for node in self.machines]
        for name in names or ("scheduler", "devices", *agents):
            if name in agents and self.machines[name.partition("/")[2]].lost:
                continue
            self._tasks.start(name)

    async def kill(self, *names: str) -> None:
        """Ends programs as ``kill -9`` does; by default all."""
        await self._tasks.kill(*names)

    def _ended(self, name: str, error: BaseException) -> None:
        """Restarts a program that has ended by itself; only a lost Lease is no violation."""
        if not isinstance(error, ExceptionGroup) or error.split(LeadershipLostError)[1]:
            self.invariants.violations.append(f"{name} ended: {error!r}")
        self.beside(self._again(name))

    async def _again(self, name: str) -> None:
        await asyncio.sleep(RESTART)
        self.start(name)

    @property
    def programs(self) -> list[str]:
        """The names of the programs that run."""
        return self._tasks.names

    @property
    def clients(self) -> set[str]:
        """The names of the clients of the programs that run."""
        return self._tasks.clients

    def reconciles(self, name: str) -> Counter[str]:
        """The number of reconciles of each controller of a program."""
        return self._counted(name, "kube_runtime_reconciles", "controller")

    def queued(self, name: str) -> Counter[str]:
        """How many keys each controller of a program has queued."""
        return self._counted(name, "workqueue_adds", "name")

    def scraped(self, name: str) -> bytes:
        """The text of a program's metrics."""
        return generate_latest(self._programs[name].registry)

    def decisions(self) -> Counter[str]:
        """The number of the scheduler's decisions by their outcome."""
        return self._counted("scheduler", "kubeshare_scheduler_decisions", "outcome")

    def _counted(self, program: str, metric: str, label: str) -> Counter[str]:
        collected = self._programs[program].registry.collect()
        [found] = [each for each in collected if each.name == metric]
        counts: Counter[str] = Counter()
        for sample in found.samples:
            if sample.name == f"{metric}_total":
                counts[sample.labels[label]] += int(sample.value)
        return +counts

    def beside(self, doing: Coroutine[Any, Any, None]) -> None:
        """Runs a coroutine beside the scenario, at most until that ends."""
        task = asyncio.create_task(doing)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    def cut_off(self, name: str) -> None:
        """Cuts a running program off from the API server."""
        self._tasks.cut_off(name)

    def reconnect(self, name: str) -> None:
        """Connects a program to the API server again."""
        self._tasks.reconnect(name)

    async def run(self, name: str, request: object = "0.3", **more: Any) -> Raw:
        """Creates a SharePod as :meth:`share` does, and waits until its pod runs."""
        made = self.share(name, request, **more)
        await self.until(lambda: self.running(name))
        return made

    async def until(self, condition: Callable[[], object], seconds: float | None = None) -> None:
        """Waits until a condition holds, at most ``seconds``, by default ``deadline``."""
        await until(condition, seconds=self.deadline if seconds is None else seconds)

    async def quiet(self, seconds: float = 10.0) -> None:
        """Lets virtual time pass, to show what does not happen."""
        await asyncio.sleep(seconds)

    async def play(self, scenario: Callable[["FakeCluster"], Awaitable[None]]) -> None:
        random.seed(self._seed)
        with ExitStack() as stack:
            stack.enter_context(self.invariants.no_bugs())
            if self.agents:
                self._make_machines(
                    Path(
                        stack.enter_context(
                            TemporaryDirectory(prefix="kubeshare-cluster-", dir=MEMORY)
                        )
                    )
                )
            await self._play(scenario)

    def _make_machines(self, disks: Path) -> None:
        asyncio.get_running_loop().set_default_executor(InlineExecutor())
        self._disks = disks
        for found in self.server.all(GPUNODES):
            self.add_machine(found["metadata"]["name"])

    def add_machine(self, name: str) -> None:
        """Adds the real agent and a kubelet to a node."""
        found = self.server.stored(GPUNODES, name)
        assert found is not None
        gpus = [device["uuid"] for device in found["spec"]["devices"]]
        disk = self._disks / f"{name}-{found['metadata']['uid']}"
        self.machines[name] = Machine(self.server, name, gpus, disk)

    async def _play(self, scenario: Callable[["FakeCluster"], Awaitable[None]]) -> None:
        actors = asyncio.create_task(self.actors.run())
        try:
            await scenario(self)
        finally:
            for task in tuple(self._beside):
                task.cancel()
            await self.kill()
            actors.cancel()
            for machine in self.machines.values():
                self.invariants.violations += machine.violations()
                machine.stop()
            # Checked first, since other failures may follow from a refused request.
            refused = sorted(set(self.server.refused))
            assert not refused, f"{'; '.join(refused)} (see manifests/rbac)"
        self.invariants.violations += self.invariants.unsigned()
        assert not self.invariants.violations, self.invariants.violations

    async def _program(self, name: str, user_agent: str) -> None:
        client = self.server.client(user_agent)
        self.server.authorizers[user_agent] = self.rights[name.partition("/")[0]]
        if name.startswith("agent/"):
            program = self.machines[name.partition("/")[2]].program(user_agent)
        elif name.startswith("extender"):
            extender = extender_program(
                client,
                instance=name,
                wall_clock=partial(self._now, name),
            )
            self.extenders[name] = extender.service
            program = extender.program
        elif name.startswith("scheduler"):
            program = scheduler_program(
                client,
                policy(self.policy),
                instance=name,
                elect=self.elect,
                wall_clock=partial(self._now, name),
            )
        else:
            program = device_manager_program(
                client,
                policy(self.policy),
                placeholder_image="pause:1",
                instance=name,
                elect=self.elect,
                wall_clock=partial(self._now, name),
            )
        self._programs[name] = program
        await program.run()

    def _now(self, name: str) -> datetime:
        """The wall clock of a program."""
        elapsed = asyncio.get_running_loop().time() + self.clocks.get(name, 0.0)
        return BORN + timedelta(seconds=elapsed)


@cache
def _roles() -> tuple[Raw, ...]:
    kinds = ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
    return tuple(
        each for each in installed.load(installed.Options(extender=True)) if each["kind"] in kinds
    )

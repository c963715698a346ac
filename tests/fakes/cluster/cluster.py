"""The fake cluster of a test: API server, actors, programs under test."""

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
from uuid import NAMESPACE_OID, uuid5

import yaml

from fakes import manifests
from fakes.cluster.actors import GARBAGE_COLLECTED, Actors
from fakes.cluster.invariants import Invariants, overcommitted
from fakes.cluster.machines import InlineExecutor, Machine
from fakes.cluster.pods import holders
from fakes.cluster.storage import Storage
from kubeshare.api.types.constants import (
    CONDITION_POD_SCHEDULED,
    GATE,
    LABEL_ROLE,
    NAMESPACE,
    ROLE_POD,
    VGPU_RESOURCE,
    WHOLE_GPU_RESOURCE,
)
from kubeshare.api.types.v1 import GPUNODES, SHAREPODS, VGPUS
from kubeshare.core.policies import policy
from kubeshare.device_manager.program import device_manager_program
from kubeshare.extender.program import extender_program
from kubeshare.extender.service import ExtenderService
from kubeshare.install import manifests as installed
from kubeshare.kube.controller.leader_election import LeadershipLostError
from kubeshare.kube.controller.runtime import Program
from kubeshare.kube.resources import (
    CONFIG_MAPS,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
)
from kubeshare.scheduler.program import scheduler_program
from kubeshare.simulator.control import Authorizer, FakeApiServer, until

Raw = dict[str, Any]

GIB = 1 << 30
BORN = datetime(2026, 1, 1, tzinfo=UTC)
"""The wall clock at the start of virtual time."""

RESTART = 1.0
"""Seconds until the kubelet restarts a program that has ended."""

MEMORY = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
"""Where the disks of nodes are: in memory, for speed."""

ACCOUNTS = {
    "scheduler": "kubeshare-scheduler",
    "devices": "kubeshare-device-manager",
    "agent": "kubeshare-node-agent",
    "extender": "kubeshare-extender",
}
"""Program -> its ServiceAccount."""


class FakeCluster:
    """A cluster of nodes with GPUs.

    Args:
        seed: of jitter and uids; a scenario takes the same course with the same seed.
        gpus: node -> its number of GPUs of 16 GiB.

    Attributes:
        policy: the name of the scheduler's placement policy.
        elect: whether the programs elect leaders.
        invariants: checks what must always hold.
        rights: program -> its rights from ``deploy/rbac``; other requests are refused.
        clocks: program -> the number of seconds by which its clock is fast.
        storage: volumes and claims.
        deadline: virtual seconds that :meth:`until` and expectations wait by default.
        agents: whether the real node agent runs on every node, as ``agent/NODE``.
        machines: the nodes with a real agent, by name.
        extenders: replica of the extender -> the service that kube-scheduler calls.
    """

    def __init__(self, seed: int = 0, /, **gpus: int) -> None:
        self.policy = "locality"
        self.elect = False
        self.clocks: dict[str, float] = {}
        self.agents = False
        self.deadline = 60.0
        self.server = FakeApiServer(seed)
        self._seed = seed
        self.storage = Storage(self.server)
        self.actors = Actors(self.server)
        self.rights = {name: Authorizer(_roles(), account) for name, account in ACCOUNTS.items()}
        self.extenders: dict[str, ExtenderService] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._programs: dict[str, Program] = {}
        self._started = 0
        self._beside: set[asyncio.Task[None]] = set()
        self._created = 0
        self._disks = Path()
        self.server.add_rule(VGPUS, overcommitted)
        self.server.seed(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        self.invariants = Invariants(self.server, self.actors)
        for name, count in gpus.items():
            self.add_node(name, count)

    # The cluster.

    def add_node(self, name: str, gpus: int, first: int = 0, **spec: Any) -> None:
        """Adds a node; the UUIDs of its GPUs count from ``first``."""
        self.actors.devices[name] = [
            {
                "uuid": gpu_uuid(name, i),
                "index": i - first,
                "minor": i - first,
                "model": "V100",
                "memoryBytes": 16 * GIB,
            }
            for i in range(first, first + gpus)
        ]
        ready = [{"type": "Ready", "status": "True"}]
        status = {"allocatable": {WHOLE_GPU_RESOURCE: str(gpus)}, "conditions": ready}
        metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
        self.server.seed(NODES, {"metadata": metadata, "spec": spec, "status": status})
        self.actors.publish()

    def configure(self, **said: Any) -> None:
        """Writes the configuration with these keys; replaces the former one."""
        metadata = {"name": "kubeshare", "namespace": NAMESPACE}
        data = {"config.yaml": yaml.safe_dump(said)}
        self.server.seed(CONFIG_MAPS, {"metadata": metadata, "data": data})

    @property
    def machines(self) -> dict[str, Machine]:
        return self.actors.machines

    def offer(self, node: str, gpus: int) -> None:
        """Sets the number of allocatable GPUs of a node."""
        offered = {"allocatable": {WHOLE_GPU_RESOURCE: str(gpus)}}
        self.server.change(NODES, node, "", lambda obj: obj["status"].update(offered))

    def lose_node(self, name: str) -> None:
        """Removes a machine and its Node object."""
        if name in self.machines:
            self.machines[name].lose()
            self._end(f"agent/{name}")
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

    def lose_placeholders(self) -> None:
        """Removes all placeholders by force, so that nothing reserves the GPUs of vGPUs."""
        for placeholder in self.placeholders():
            self.server.remove(PODS, placeholder, NAMESPACE)

    def link(self, node: str, **links: str) -> None:
        """Sets the links between a node's GPUs: ``gpu_0_2="NV2"``; other pairs are ``SYS``."""
        found = [
            {"a": int(a), "b": int(b), "link": link}
            for a, b, link in ((*pair.split("_")[1:], link) for pair, link in links.items())
        ]
        self.server.change(GPUNODES, node, "", lambda obj: obj["spec"].update(links=found))

    def reserve(self, node: str, *gpuids: str) -> None:
        """Adds vGPUs to a node, and configures a pool that keeps idle vGPUs."""
        self.configure(pool={"policy": "reservation"})
        for gpuid in gpuids:
            self.server.seed(VGPUS, manifests.vgpu(gpuid, node, pool="reserved"))

    def share(self, name: str, request: object = "0.3", **more: Any) -> Raw:
        """Creates a SharePod; ``more`` are ``spec``, ``annotations``, ``labels`` and fields of
        ``spec.gpu``, whose ``memory`` is 1Gi by default, or ``gpu``, all these fields.
        """
        annotations, spec = more.pop("annotations", {}), more.pop("spec", {})
        labels, gpu = more.pop("labels", {}), more.pop("gpu", None)
        if gpu is None and request is not None:
            gpu = {"request": request, "memory": "1Gi", **more}
        self._created += 1
        metadata = {
            "namespace": "default",
            "annotations": annotations,
            "labels": labels,
            "creationTimestamp": f"2026-01-01T00:00:{self._created:02}Z",
        }
        made = manifests.sharepod(name, gpu, metadata=metadata, **spec)
        return self.server.seed(SHAREPODS, made)

    def native_pod(self, name: str, gpus: int = 1, **spec: Any) -> None:
        """Creates a pod that requests whole GPUs."""
        limits = {WHOLE_GPU_RESOURCE: str(gpus)}
        pod = manifests.pod(name, limits, metadata={"namespace": "default"}, **spec)
        self.server.seed(PODS, pod | {"status": {"phase": "Pending"}})

    def plain(self, name: str, request: str = "0.3", **more: Any) -> Raw:
        """Creates a plain pod that requests a share, as the admission policy mutates it.

        ``annotations``, ``spec`` and ``owner``, the uid of its controller, where given.
        """
        asked = {"kubeshare.nthu/request": request, "kubeshare.nthu/memory": "1Gi"}
        self._created += 1
        metadata: Raw = {
            "namespace": "default",
            "annotations": asked | more.pop("annotations", {}),
            "labels": {LABEL_ROLE: ROLE_POD} | more.pop("labels", {}),
            "creationTimestamp": f"2026-01-01T00:00:{self._created % 60:02}Z",
        }
        if owner := more.pop("owner", ""):
            controller = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r"}
            metadata["ownerReferences"] = [{**controller, "uid": owner, "controller": True}]
        spec = {"schedulingGates": [{"name": GATE}]} | more.pop("spec", {})
        pod = manifests.pod(name, {VGPU_RESOURCE: "1"}, metadata=metadata, **spec)
        return self.server.seed(PODS, pod | {"status": {"phase": "Pending"}})

    def replicas(self, name: str, count: int, request: str = "0.3") -> None:
        """Starts a controller that keeps this number of plain pods."""

        def make() -> None:
            self.plain(f"{name}-{self._created}", request, owner=name)

        self.actors.controllers[name] = (make, count)
        self.actors.reconcile()

    def clear(self) -> None:
        """Deletes all SharePods and plain pods."""
        for sharepod in self.server.all(SHAREPODS):
            self.delete(sharepod["metadata"]["name"])
        self.actors.controllers.clear()
        for pod in self.plain_pods():
            self.actors.delete(pod)

    def plain_pods(self) -> list[Raw]:
        """The plain pods."""
        return self.server.all(PODS, "default", labels=f"{LABEL_ROLE}={ROLE_POD}")

    def pod_condition(self, name: str) -> Raw:
        """The scheduler's condition of a plain pod; empty before its first decision."""
        pod = self.pod(name)
        conditions = pod["status"].get("conditions", []) if pod else []
        return next((each for each in conditions if each["type"] == CONDITION_POD_SCHEDULED), {})

    def delete(self, name: str, propagation: str = "Background") -> None:
        """Deletes a SharePod as ``kubectl`` does; its finalizers delay the deletion."""
        if propagation in GARBAGE_COLLECTED:
            more = [GARBAGE_COLLECTED[propagation]]

            def keep(obj: Raw) -> None:
                obj["metadata"]["finalizers"] = obj["metadata"].get("finalizers", []) + more

            self.server.change(SHAREPODS, name, "default", keep)
        self.server.delete(SHAREPODS, name, "default")

    def end(self, name: str, phase: str = "Succeeded") -> None:
        """Ends the containers of a pod, one after the other."""
        containers = [
            {"name": name, "state": {"terminated": {"finishedAt": f"2026-01-01T00:0{minute}:00Z"}}}
            for name, minute in (("main", 9), ("other", 5))
        ]
        ended = {"phase": phase, "containerStatuses": containers}
        self.server.change(PODS, name, "default", lambda pod: pod["status"].update(ended))

    # Current objects.

    def sharepod(self, name: str) -> Raw:
        found = self.server.stored(SHAREPODS, name, "default")
        assert found is not None, f"there is no SharePod {name}"
        return found

    def condition(self, name: str, kind: str) -> Raw:
        """A condition of a SharePod; empty if it has none of this type."""
        conditions = self.sharepod(name).get("status", {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == kind), {})

    def ready(self, name: str) -> bool:
        return bool(self.condition(name, "Ready").get("status") == "True")

    def pod_uids(self) -> dict[str, str]:
        """The name of each holder -> its ``podUid``."""
        found = [each for vgpu in self.server.all(VGPUS) for each in holders(vgpu)]
        return {each["name"]: each["podUid"] for each in found}

    def vgpu(self, gpuid: str) -> Raw:
        found = self.server.stored(VGPUS, gpuid)
        assert found is not None, f"there is no vGPU {gpuid}"
        return found

    def pod(self, name: str, namespace: str = "default") -> Raw | None:
        return self.server.stored(PODS, name, namespace)

    def running(self, *names: str) -> bool:
        pods = [self.pod(name) for name in names]
        return all(pod is not None and pod["status"]["phase"] == "Running" for pod in pods)

    def vgpus(self) -> dict[str, list[str]]:
        """GPUID -> the names of its holders."""
        return {
            vgpu["metadata"]["name"]: [each["name"] for each in holders(vgpu)]
            for vgpu in self.server.all(VGPUS)
        }

    def shares_gpu(self, *names: str) -> bool:
        """Whether exactly these are the holders of one vGPU."""
        return sorted(names) in [sorted(found) for found in self.vgpus().values()]

    def placeholders(self) -> list[str]:
        pods = self.server.all(PODS, "kubeshare-system")
        return [pod["metadata"]["name"] for pod in pods]

    def events(self, name: str) -> list[str]:
        """``reason: note`` of each event about an object."""
        found = self.server.all(EVENTS)
        return [
            f"{each['reason']}: {each['note']}"
            for each in found
            if each["regarding"]["name"] == name
        ]

    # The programs under test.

    def start(self, *names: str) -> None:
        """Starts ``scheduler``, ``devices``, ``extender``, or replicas: ``scheduler/second``, ….

        By default starts the two, and the real agents of the nodes.
        """
        agents = [f"agent/{node}" for node in self.machines]
        for name in names or ("scheduler", "devices", *agents):
            if name in agents and self.machines[name.partition("/")[2]].lost:
                continue
            self._started += 1
            user_agent = f"{name}-{self._started}"
            task = asyncio.create_task(self._program(name, user_agent), name=user_agent)
            task.add_done_callback(partial(self._ended, name))
            self._tasks[name] = task

    async def kill(self, *names: str) -> None:
        """Ends programs as ``kill -9`` does; by default all."""
        ended = [self._end(name) for name in names or tuple(self._tasks)]
        if tasks := [task for task in ended if task is not None]:
            await asyncio.wait(tasks)

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        """Restarts a program that has ended by itself; only a lost Lease is no violation."""
        error = None if task.cancelled() else task.exception()
        if error is None or self._tasks.get(name) is not task:
            return
        if not isinstance(error, ExceptionGroup) or error.split(LeadershipLostError)[1]:
            self.invariants.violations.append(f"{name} ended: {error!r}")
        self._end(name)
        self.beside(self._again(name))

    async def _again(self, name: str) -> None:
        await asyncio.sleep(RESTART)
        self.start(name)

    def _end(self, name: str) -> asyncio.Task[None] | None:
        task = self._tasks.pop(name, None)
        if task is not None:
            self.server.dead.add(task.get_name())
            task.cancel()
        return task

    @property
    def programs(self) -> list[str]:
        """The names of the programs that run."""
        return list(self._tasks)

    def reconciles(self, name: str) -> Counter[str]:
        """The number of reconciles of each controller of a program."""
        collected = self._programs[name].registry.collect()
        found = [each for each in collected if each.name == "kube_runtime_reconciles"]
        counts: Counter[str] = Counter()
        for sample in found[0].samples:
            counts[sample.labels["controller"]] += int(sample.value)
        return counts

    def beside(self, doing: Coroutine[Any, Any, None]) -> None:
        """Runs a coroutine beside the scenario, at most until that ends."""
        task = asyncio.create_task(doing)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    def cut_off(self, name: str) -> None:
        """Cuts a running program off from the API server."""
        self.server.dead.add(self._tasks[name].get_name())
        self.server.reset_watches()

    def reconnect(self, name: str) -> None:
        """Connects a program to the API server again."""
        self.server.dead.discard(self._tasks[name].get_name())

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
            assert not refused, f"{'; '.join(refused)} (see deploy/rbac)"
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
                policy("locality"),
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


def gpu_uuid(node: str, index: int) -> str:
    """The UUID of a GPU of a node."""
    return f"GPU-{uuid5(NAMESPACE_OID, f'{node}/{index}')}"


@cache
def _roles() -> tuple[Raw, ...]:
    kinds = ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
    return tuple(
        each for each in installed.load(installed.Options(extender=True)) if each["kind"] in kinds
    )

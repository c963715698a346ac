"""The world of a test: a server, actors, and the programs under test."""

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
"""When the world begins."""

RESTART = 1.0
"""Seconds until the kubelet has started again what has ended."""

MEMORY = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
"""Where the disks of nodes are: what is written there is not waited for."""

ACCOUNTS = {
    "scheduler": "kubeshare-scheduler",
    "devices": "kubeshare-device-manager",
    "agent": "kubeshare-node-agent",
}
"""Program -> the ServiceAccount whose rights it has."""


class World:
    """A cluster of nodes with GPUs.

    Args:
        seed: of all that is random in it, jitter and uids; the same story goes the same way.
        gpus: node -> how many GPUs of 16 GiB it has.

    Attributes:
        policy: by which the scheduler places.
        elect: whether programs work only while they hold their Lease.
        invariants: what must hold at every moment.
        rights: program -> what ``deploy/rbac`` allows it; it is refused all else.
        clocks: program -> seconds by which its clock is fast.
        storage: volumes and claims.
        deadline: virtual seconds that :meth:`until` and expectations wait by default.
        agents: whether the real node agent runs on every node, as ``agent/NODE``.
        machines: those nodes.
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
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._programs: dict[str, Program] = {}
        self._started = 0
        self._beside: set[asyncio.Task[None]] = set()
        self._born = 0
        self._disks = Path()
        self.server.add_rule(VGPUS, overcommitted)
        self.server.seed(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        self.invariants = Invariants(self.server, self.actors)
        for name, count in gpus.items():
            self.add_node(name, count)

    # The cluster.

    def add_node(self, name: str, gpus: int, first: int = 0, **spec: Any) -> None:
        """Add a node with so many GPUs, of which ``first`` is the first one's number."""
        self.actors.devices[name] = [
            {
                "uuid": gpu_uuid(name, i),
                "index": i - first,
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
        """Write the configuration, from its keys; again, it takes the former one's place."""
        metadata = {"name": "kubeshare", "namespace": NAMESPACE}
        data = {"config.yaml": yaml.safe_dump(said)}
        self.server.seed(CONFIG_MAPS, {"metadata": metadata, "data": data})

    @property
    def machines(self) -> dict[str, Machine]:
        return self.actors.machines

    def offer(self, node: str, gpus: int) -> None:
        """A node's kubelet has so many GPUs for pods from now on."""
        offered = {"allocatable": {WHOLE_GPU_RESOURCE: str(gpus)}}
        self.server.change(NODES, node, "", lambda obj: obj["status"].update(offered))

    def lose_node(self, name: str) -> None:
        """The machine is gone for good, and somebody has deleted its Node object."""
        if name in self.machines:
            self.machines[name].lose()
            self._end(f"agent/{name}")
        self.server.remove(NODES, name)

    def fail_gpus(self, node: str, message: str) -> None:
        """The driver of a node says of its GPUs that they are of no use."""
        if node in self.machines:
            self.machines[node].fail(message)
            return

        def fail(obj: Raw) -> None:
            for gpu in obj["spec"]["devices"]:
                gpu |= {"healthy": False, "message": message}

        self.server.change(GPUNODES, node, "", fail)

    def lose_placeholders(self) -> None:
        """Somebody has forced them out, so that nothing keeps the GPUs of vGPUs."""
        for placeholder in self.placeholders():
            self.server.remove(PODS, placeholder, NAMESPACE)

    def link(self, node: str, **links: str) -> None:
        """Say how a node's GPUs are linked: ``gpu_0_2="NV2"``; pairs not named are ``SYS``."""
        found = [
            {"a": int(a), "b": int(b), "link": link}
            for a, b, link in ((*pair.split("_")[1:], link) for pair, link in links.items())
        ]
        self.server.change(GPUNODES, node, "", lambda obj: obj["spec"].update(links=found))

    def reserve(self, node: str, *gpuids: str) -> None:
        """Have vGPUs on a node, and a pool that keeps them when they are idle."""
        self.configure(pool={"policy": "reservation"})
        for gpuid in gpuids:
            self.server.seed(VGPUS, manifests.vgpu(gpuid, node, pool="reserved"))

    def share(self, name: str, request: object = "0.3", **more: Any) -> Raw:
        """Apply a SharePod; ``memory`` 1Gi, ``spec``, ``annotations``, ``labels`` where given."""
        annotations, spec = more.pop("annotations", {}), more.pop("spec", {})
        labels = more.pop("labels", {})
        gpu = {"request": request, "memory": "1Gi", **more} if request is not None else None
        self._born += 1
        metadata = {
            "namespace": "default",
            "annotations": annotations,
            "labels": labels,
            "creationTimestamp": f"2026-01-01T00:00:{self._born:02}Z",
        }
        made = manifests.sharepod(name, gpu, metadata=metadata, **spec)
        return self.server.seed(SHAREPODS, made)

    def native_pod(self, name: str, gpus: int = 1, **spec: Any) -> None:
        """A pod of somebody who wants whole GPUs."""
        limits = {WHOLE_GPU_RESOURCE: str(gpus)}
        pod = manifests.pod(name, limits, metadata={"namespace": "default"}, **spec)
        self.server.seed(PODS, pod | {"status": {"phase": "Pending"}})

    def plain(self, name: str, request: str = "0.3", **more: Any) -> Raw:
        """Make a pod that asks for a share itself, as the API server's policy leaves it.

        ``annotations``, ``spec`` and ``owner``, the uid of its controller, where given.
        """
        asked = {"kubeshare.nthu/request": request, "kubeshare.nthu/memory": "1Gi"}
        self._born += 1
        metadata: Raw = {
            "namespace": "default",
            "annotations": asked | more.pop("annotations", {}),
            "labels": {LABEL_ROLE: ROLE_POD} | more.pop("labels", {}),
            "creationTimestamp": f"2026-01-01T00:00:{self._born % 60:02}Z",
        }
        if owner := more.pop("owner", ""):
            controller = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r"}
            metadata["ownerReferences"] = [{**controller, "uid": owner, "controller": True}]
        spec = {"schedulingGates": [{"name": GATE}]} | more.pop("spec", {})
        pod = manifests.pod(name, {VGPU_RESOURCE: "1"}, metadata=metadata, **spec)
        return self.server.seed(PODS, pod | {"status": {"phase": "Pending"}})

    def replicas(self, name: str, count: int, request: str = "0.3") -> None:
        """Have a controller that keeps so many plain pods."""

        def make() -> None:
            self.plain(f"{name}-{self._born}", request, owner=name)

        self.actors.controllers[name] = (make, count)
        self.actors.look()

    def clear(self) -> None:
        """Delete everything that asks for a share."""
        for sharepod in self.server.all(SHAREPODS):
            self.delete(sharepod["metadata"]["name"])
        self.actors.controllers.clear()
        for pod in self.plain_pods():
            self.actors.delete(pod)

    def plain_pods(self) -> list[Raw]:
        """The pods that ask for a share themselves."""
        return self.server.all(PODS, "default", labels=f"{LABEL_ROLE}={ROLE_POD}")

    def pod_condition(self, name: str) -> Raw:
        """What Sched says of a plain pod; empty where it has said nothing."""
        pod = self.pod(name)
        told = pod["status"].get("conditions", []) if pod else []
        return next((each for each in told if each["type"] == CONDITION_POD_SCHEDULED), {})

    def delete(self, name: str, propagation: str = "Background") -> None:
        """Delete a SharePod as ``kubectl`` does; it goes when its finalizers have."""
        if propagation in GARBAGE_COLLECTED:
            more = [GARBAGE_COLLECTED[propagation]]

            def keep(obj: Raw) -> None:
                obj["metadata"]["finalizers"] = obj["metadata"].get("finalizers", []) + more

            self.server.change(SHAREPODS, name, "default", keep)
        self.server.delete(SHAREPODS, name, "default")

    def end(self, name: str, phase: str = "Succeeded") -> None:
        """The pod's containers end by themselves, one after the other."""
        containers = [
            {"name": name, "state": {"terminated": {"finishedAt": f"2026-01-01T00:0{minute}:00Z"}}}
            for name, minute in (("main", 9), ("other", 5))
        ]
        ended = {"phase": phase, "containerStatuses": containers}
        self.server.change(PODS, name, "default", lambda pod: pod["status"].update(ended))

    # What there is.

    def sharepod(self, name: str) -> Raw:
        found = self.server.stored(SHAREPODS, name, "default")
        assert found is not None, f"there is no SharePod {name}"
        return found

    def condition(self, name: str, kind: str) -> Raw:
        """A condition of a SharePod; empty where it has none of that type."""
        conditions = self.sharepod(name).get("status", {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == kind), {})

    def ready(self, name: str) -> bool:
        return bool(self.condition(name, "Ready").get("status") == "True")

    def pod_uids(self) -> dict[str, str]:
        """The name of each holder -> the uid of the pod that it names."""
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
        """Exactly these hold parts of one vGPU."""
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
        """Start ``scheduler``, ``devices``, or further replicas: ``scheduler/second``, ….

        By default the two, and the agents of the nodes where they are real.
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
        """End programs as ``kill -9`` does."""
        ended = [self._end(name) for name in names or tuple(self._tasks)]
        if tasks := [task for task in ended if task is not None]:
            await asyncio.wait(tasks)

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        """Start one again that has ended by itself, for which only a lost Lease is a reason."""
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
        """The names of those that run."""
        return list(self._tasks)

    def looks(self, name: str) -> Counter[str]:
        """How often each controller of a program has looked at anything so far."""
        collected = self._programs[name].registry.collect()
        found = [each for each in collected if each.name == "kube_runtime_reconciles"]
        looks: Counter[str] = Counter()
        for sample in found[0].samples:
            looks[sample.labels["controller"]] += int(sample.value)
        return looks

    def beside(self, doing: Coroutine[Any, Any, None]) -> None:
        """Let something happen while the story goes on, until it ends."""
        task = asyncio.create_task(doing)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    def cut_off(self, name: str) -> None:
        """Let a program reach the API server no more, though it runs on."""
        self.server.dead.add(self._tasks[name].get_name())
        self.server.reset_watches()

    def reconnect(self, name: str) -> None:
        """Let it reach the API server again."""
        self.server.dead.discard(self._tasks[name].get_name())

    async def run(self, name: str, request: object = "0.3", **more: Any) -> Raw:
        """Apply a SharePod as :meth:`share` does, and wait until its pod runs."""
        made = self.share(name, request, **more)
        await self.until(lambda: self.running(name))
        return made

    async def until(self, condition: Callable[[], object], seconds: float | None = None) -> None:
        """Wait until a condition holds, at most ``seconds``, by default ``deadline``."""
        await until(condition, seconds=self.deadline if seconds is None else seconds)

    async def quiet(self, seconds: float = 10.0) -> None:
        """Let virtual time pass, for what should not happen."""
        await asyncio.sleep(seconds)

    async def play(self, scenario: Callable[["World"], Awaitable[None]]) -> None:
        random.seed(self._seed)
        with ExitStack() as stack:
            if self.agents:
                self._make_machines(
                    Path(
                        stack.enter_context(
                            TemporaryDirectory(prefix="kubeshare-world-", dir=MEMORY)
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
        """Have the real agent on a node, with a kubelet of its own."""
        found = self.server.stored(GPUNODES, name)
        assert found is not None
        gpus = [device["uuid"] for device in found["spec"]["devices"]]
        disk = self._disks / f"{name}-{found['metadata']['uid']}"
        self.machines[name] = Machine(self.server, name, gpus, disk)

    async def _play(self, scenario: Callable[["World"], Awaitable[None]]) -> None:
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
            # First of all, since what else went wrong may well follow from it.
            refused = sorted(set(self.server.refused))
            assert not refused, f"{'; '.join(refused)} (see deploy/rbac)"
        assert not self.invariants.violations, self.invariants.violations

    async def _program(self, name: str, user_agent: str) -> None:
        client = self.server.client(user_agent)
        self.server.authorizers[user_agent] = self.rights[name.partition("/")[0]]
        if name.startswith("agent/"):
            program = self.machines[name.partition("/")[2]].program(user_agent)
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
        """What a program's clock on the wall says."""
        elapsed = asyncio.get_running_loop().time() + self.clocks.get(name, 0.0)
        return BORN + timedelta(seconds=elapsed)


def gpu_uuid(node: str, index: int) -> str:
    """The UUID of a node's GPU."""
    return f"GPU-{uuid5(NAMESPACE_OID, f'{node}/{index}')}"


@cache
def _roles() -> tuple[Raw, ...]:
    kinds = ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
    return tuple(each for each in installed.load(installed.Options()) if each["kind"] in kinds)

"""Fakes the nodes of real agents: kubelet, device plugin, token daemon, containers.

The agent does not serve its sockets: this kubelet calls it directly, so that everything
happens in virtual time. The files that the agent writes outlive it.
"""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self, TypeVar, cast

import msgspec

from fakes.cluster.claims import selected_gpus
from kubeshare.api.types.constants import (
    DRA_DRIVER,
    FILLER_PREFIX,
    NAMESPACE,
    PLACEHOLDER_PREFIX,
    VGPU_RESOURCE,
    WHOLE_GPU_RESOURCE,
)
from kubeshare.api.types.v1 import GPUDevice, GPUNodeSpec
from kubeshare.kube.controller.runtime import Program
from kubeshare.kube.resources import PODS, RESOURCE_CLAIMS
from kubeshare.node.agent import Agent
from kubeshare.node.dra import cdi
from kubeshare.node.dra.driver import ClaimReference, ClaimRefusedError, Driver
from kubeshare.node.escapes.watcher import EscapeWatch
from kubeshare.node.library import InstalledLibrary
from kubeshare.node.paths import NodePaths
from kubeshare.node.usage.accounts import NodeClock
from kubeshare.simulator.control import FakeApiServer
from kubeshare.simulator.control.storage import BEGINNING
from kubeshare.simulator.control_tier.stored import (
    Raw,
    being_deleted,
    ended,
    requested,
    set_running,
)
from kubeshare.tokens.files.grants import Grant, read_grant
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.files.statuses import Status, read_status, write_status

T = TypeVar("T")

RETRY_SECONDS = 12.0
"""Virtual time until the kubelet retries a claim that was refused."""
RECONNECT_SECONDS = 2.0
"""Virtual time until the kubelet calls an unreachable agent again."""


def elapsed_ns() -> int:
    """The virtual time in ns since the boot of all machines."""
    return int(asyncio.get_running_loop().time() * 1e9)


def wall_ns() -> int:
    """The virtual time in ns since 1970."""
    return int(BEGINNING.timestamp()) * 10**9 + elapsed_ns()


class Machine:
    """One node.

    Args:
        server: the API server of the cluster.
        name: the name of the node.
        gpus: the UUIDs of its GPUs.
        folder: its disk.

    Attributes:
        paths: the folders of the agent.
        containers: uids of the pods that have containers running on a GPU.
        stopping: seconds that containers take to stop.
        forced: seconds that the containers of a force-deleted pod go on running.
        lost: whether the machine is gone.
        knows_gpus: False while the restarted kubelet has no registration of its device plugin.
    """

    def __init__(self, server: FakeApiServer, name: str, gpus: list[str], folder: Path) -> None:
        self.name = name
        self.paths = NodePaths(folder)
        self.containers: set[str] = set()
        self.stopping = 0.1
        self.forced = 2.0
        self.lost = False
        self.knows_gpus = True
        self._server = server
        self._gpus = gpus
        self._faults: dict[str, str] = {}  # UUID of a failed GPU -> the driver's message
        self._agent: Agent | None = None
        self._pod_tasks: dict[str, asyncio.Task[None]] = {}  # uid of a pod -> the task that runs it
        self._calls: set[asyncio.Task[Any]] = set()  # calls to the agent
        self._changed = asyncio.Event()
        self._given: dict[tuple[str, str], str] = {}  # namespace and name of a pod -> its whole GPU
        self._daemon = TokenDaemon(Paths(self.paths.run_folder))
        self.paths.static_cdi_folder.mkdir(parents=True)
        spec = {"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu"}
        devices = [{"name": uuid, "containerEdits": {}} for uuid in gpus]
        file = self.paths.static_cdi_folder / "nvidia.yaml"
        file.write_text(json.dumps(spec | {"devices": devices}))

    # The agent.

    def program(self, user_agent: str) -> Program:
        """A new agent."""
        client = self._server.client(user_agent)
        agent = _Agent(self, client, self._gpus, self._faults)
        program = Program("kubeshare-node-agent", client, recorder=agent.events)
        agent.add_to(program)
        return program

    def attach(self, agent: Agent | None) -> None:
        """Sets the agent that the kubelet calls; None while it is down."""
        self._agent = agent
        if agent is None:
            for call in tuple(self._calls):
                call.cancel()

    async def given(self, namespace: str, name: str) -> list[str]:
        """The whole GPUs of a pod, as the kubelet's PodResources API lists them."""
        uuid = self._given.get((namespace, name))
        return [uuid] if uuid and self.knows_gpus else []

    async def in_use(self) -> dict[str, str]:
        """The whole GPUs of pods but placeholders -> the name of a filler, as from the kubelet."""
        return {
            uuid: name if name.startswith(FILLER_PREFIX) else ""
            for (namespace, name), uuid in self._given.items()
            if not (namespace == NAMESPACE and name.startswith(PLACEHOLDER_PREFIX))
        }

    # The kubelet.

    def reconcile(self) -> None:
        """Acts as the kubelet on the current pods of this node."""
        pods = [pod for pod in self._server.view(PODS) if pod["spec"].get("nodeName") == self.name]
        self._changed.set()
        self._changed = asyncio.Event()
        if self.lost:
            return
        there = {_namespace_and_name(pod) for pod in pods if not ended(pod)}
        self._given = {place: uuid for place, uuid in self._given.items() if place in there}
        for pod in pods:
            if requested(pod, VGPU_RESOURCE):
                self._start_shared(pod)
            elif being_deleted(pod):
                self._server.remove(PODS, *_namespace_and_name(pod)[::-1])
            elif pod["status"]["phase"] == "Pending":
                self._start_plain(pod)

    def fail(self, message: str) -> None:
        """Lets all GPUs fail; the driver reports this message."""
        self._faults |= dict.fromkeys(self._gpus, message)

    def lose(self) -> None:
        """Removes the machine and all that runs on it."""
        self.lost = True
        self.containers.clear()
        self._given.clear()
        self.attach(None)
        self.stop()
        # As the garbage collector does once their pods are gone.
        for claim in self._server.view(RESOURCE_CLAIMS):
            devices = claim.get("status", {}).get("allocation", {}).get("devices", {})
            if any(result["pool"] == self.name for result in devices.get("results", ())):
                metadata = claim["metadata"]
                self._server.remove(RESOURCE_CLAIMS, metadata["name"], metadata["namespace"])

    def forget(self) -> None:
        """Replaces the kubelet by one without a record of pods; all containers have ended."""
        self.containers.clear()
        self.stop()

    def stop(self) -> None:
        """Cancels the tasks of the kubelet."""
        for task in self._pod_tasks.values():
            task.cancel()

    def left(self) -> list[str]:
        """The grants, CDI specs and containers of pods that are left."""
        if self.lost:
            return []
        grants = [f"grant {grant.claim}" for grant in self._daemon.grants()]
        specs = [f"CDI spec {claim}" for claim in cdi.claims(self.paths.dynamic_cdi_folder)]
        return [f"{self.name}: {each}" for each in (*grants, *specs, *sorted(self.containers))]

    def violations(self) -> list[str]:
        """The violations that its token daemon has seen."""
        return [f"{self.name}: {wrong}" for wrong in self._daemon.violations]

    def _start_plain(self, pod: Raw) -> None:
        if requested(pod, WHOLE_GPU_RESOURCE):
            free = [uuid for uuid in self._gpus if uuid not in self._given.values()]
            if not free:
                return
            self._given[_namespace_and_name(pod)] = free[0]
        elif selected := selected_gpus(self._server, pod):
            self._given[_namespace_and_name(pod)] = selected[0]
        self._change(pod, set_running)

    def _start_shared(self, pod: Raw) -> None:
        uid = pod["metadata"]["uid"]
        if uid not in self._pod_tasks and pod["status"]["phase"] == "Pending":
            self._pod_tasks[uid] = asyncio.create_task(self._run_pod(pod))

    async def _run_pod(self, pod: Raw) -> None:
        """Takes a pod through its phases: claim, prepare, run, stop, unprepare."""
        uid = pod["metadata"]["uid"]
        claim = self._claim(pod)
        asked = False
        while self._should_run(pod) and not asked:
            asked = await self._call(lambda agent: agent.prepare(claim))
        if asked and self._should_run(pod):
            self.containers.add(uid)
            self._change(pod, set_running)
            await self._until_stopped(pod)
            gone = self._present(pod) is None
            await asyncio.sleep(self.forced if gone else self.stopping)
            self.containers.discard(uid)
        # The kubelet calls this whether or not the claim was prepared.
        while not await self._call(lambda agent: agent.unprepare(claim)):
            pass
        if self._server.find(RESOURCE_CLAIMS, claim.name, claim.namespace) is not None:
            self._server.remove(RESOURCE_CLAIMS, claim.name, claim.namespace)
        present = self._present(pod)
        if present is not None and being_deleted(present):
            self._server.remove(PODS, *_namespace_and_name(pod)[::-1])

    async def _until_stopped(self, pod: Raw) -> None:
        while True:
            changed = self._changed
            if not self._should_run(pod):
                return
            await changed.wait()

    async def _call(self, ask: Callable[[Agent], Awaitable[object]]) -> bool:
        """Calls the agent; returns False, after a pause, if it refuses or is down."""
        if self._agent is None:
            await asyncio.sleep(RECONNECT_SECONDS)
            return False
        call = asyncio.ensure_future(_started(ask(self._agent)))
        self._calls.add(call)
        pause = 0.002
        while not call.done():
            await asyncio.wait([call], timeout=pause)
            self._daemon.reconcile()
            pause = min(0.5, pause * 1.5)
        self._calls.discard(call)
        self._daemon.reconcile()
        if call.cancelled():
            return False
        if isinstance(call.exception(), ClaimRefusedError):
            await asyncio.sleep(RETRY_SECONDS)
            return False
        call.result()
        return True

    def _claim(self, pod: Raw) -> ClaimReference:
        """Creates the allocated claim of a pod, as kube-scheduler does."""
        namespace, name = _namespace_and_name(pod)
        user = {"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}
        asking = [each["name"] for each in _containers(pod) if VGPU_RESOURCE in _limits(each)]
        requests = {f"container-{at}-request-0": container for at, container in enumerate(asking)}
        result = {"driver": DRA_DRIVER, "pool": self.name, "device": "slots"}
        results = [result | {"request": request} for request in requests]
        status = {"reservedFor": [user], "allocation": {"devices": {"results": results}}}
        # The claim of a former pod of the same name may still exist.
        metadata = {"name": f"{name}-{pod['metadata']['uid']}", "namespace": namespace}
        made = self._server.seed(RESOURCE_CLAIMS, {"metadata": metadata, "status": status})
        mappings = [
            {"containerName": container, "requestName": request, "resourceName": VGPU_RESOURCE}
            for request, container in requests.items()
        ]
        named = {"resourceClaimName": metadata["name"], "requestMappings": mappings}
        if self._present(pod) is not None:
            self._change(pod, lambda obj: obj["status"].update(extendedResourceClaimStatus=named))
        return ClaimReference(namespace, made["metadata"]["name"], made["metadata"]["uid"])

    def _present(self, pod: Raw) -> Raw | None:
        """The current state of the pod with the same uid."""
        found = self._server.find(PODS, *_namespace_and_name(pod)[::-1])
        same = found is not None and found["metadata"]["uid"] == pod["metadata"]["uid"]
        return found if same else None

    def _should_run(self, pod: Raw) -> bool:
        present = self._present(pod)
        return present is not None and not being_deleted(present) and not ended(present)

    def _change(self, pod: Raw, mutate: Callable[[Raw], object]) -> None:
        self._server.change(PODS, *_namespace_and_name(pod)[::-1], mutate)


class TokenDaemon:
    """Activates every grant, and records grants that do not fit on a GPU."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self.violations: list[str] = []

    def grants(self) -> list[Grant]:
        """The grants in the run folder."""
        return [read_grant(file) for file in sorted(self._paths.grants.glob("*.json"))]

    def reconcile(self) -> None:
        """Writes the status of new grants and removes that of deleted ones."""
        grants = self.grants()
        claims = {grant.claim for grant in grants}
        for file in self._paths.statuses.glob("*.json"):
            if file.stem not in claims:
                file.unlink()
        for grant in grants:
            if read_status(self._paths, grant.claim) is None:
                # An account has its name by when its grant was written.
                os.utime(self._paths.grant(grant.claim), ns=(wall_ns(), wall_ns()))
                write_status(self._paths, Status(claim=grant.claim, state="ACTIVE"))
        shares = [share for grant in grants for share in grant.gpus]
        for uuid in {share.uuid for share in shares}:
            asked = sum(share.request_micros for share in shares if share.uuid == uuid)
            if asked > 1_000_000:
                self.violations.append(f"{asked} micros of {uuid} are granted")


class _Agent(Agent):
    """The real agent, called by the fake kubelet."""

    def __init__(
        self, machine: Machine, client: Any, uuids: list[str], faults: dict[str, str]
    ) -> None:
        devices = tuple(
            GPUDevice(uuid=uuid, index=index, minor=index, model="V100", memory_bytes=16 << 30)
            for index, uuid in enumerate(uuids)
        )
        folder = machine.paths.root
        library = InstalledLibrary(folder / "lib.so", folder / "preload")
        super().__init__(
            client,
            machine.name,
            machine.paths,
            _Gpus(devices, faults),
            library,
            allocated=machine.given,
            in_use=machine.in_use,
            # Each pod here uses its own claim only.
            claim_in_use=lambda _claim: False,
            has_processes=machine.containers.__contains__,
            clock=NodeClock(wall_ns, elapsed_ns),
        )
        self.driver = cast("Driver", _FakeSockets(machine, self))
        self.escapes = cast("EscapeWatch", _IdleEscapeWatch())


class _Gpus:
    def __init__(self, devices: tuple[GPUDevice, ...], faults: dict[str, str]) -> None:
        self._devices = devices
        self._faults = faults

    def read(self) -> GPUNodeSpec:
        devices = tuple(
            msgspec.structs.replace(
                each, healthy=each.uuid not in self._faults, message=self._faults.get(each.uuid, "")
            )
            for each in self._devices
        )
        return GPUNodeSpec(
            driver_version="550.1",
            agent_version="test",
            supports_owned=True,
            supports_shares=True,
            devices=devices,
        )

    def processes(self) -> list[Any]:
        return []

    def utilization(self) -> dict[str, float]:
        return {}

    def addresses(self) -> dict[str, str]:
        return {}


class _FakeSockets:
    """Stands in for the sockets of the DRA driver."""

    def __init__(self, machine: Machine, agent: Agent) -> None:
        self._machine = machine
        self._agent = agent
        self.registered = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._machine.attach(self._agent)
        self.registered.set()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._machine.attach(None)


class _IdleEscapeWatch:
    """Stands in for the escape watch: no process runs on the GPUs."""

    async def run(self) -> None:
        await asyncio.Event().wait()

    def register_metrics(self, _registry: object) -> None:
        pass


class InlineExecutor(ThreadPoolExecutor):
    """Runs the work of threads at once, since virtual time does not wait for threads."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - it is the caller's
            future.set_exception(error)
        return future


async def _started(awaitable: Awaitable[object]) -> object:
    return await awaitable


def _containers(pod: Raw) -> list[Raw]:
    return [*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())]


def _limits(container: Raw) -> Raw:
    found: Raw = container.get("resources", {}).get("limits", {})
    return found


def _namespace_and_name(pod: Raw) -> tuple[str, str]:
    return pod["metadata"]["namespace"], pod["metadata"]["name"]

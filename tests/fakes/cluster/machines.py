"""Nodes on which the real agent runs: their kubelet, device plugin, token daemon and containers.

The agent's own sockets are not served: the kubelet here calls it directly, so that all
of it goes by in virtual time. What it writes to the node's disk outlives it.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self, TypeVar, cast

import msgspec

from fakes.cluster.pods import Raw, asks, being_deleted, ended, run
from kubeshare.api.types.constants import DRA_DRIVER, VGPU_RESOURCE, WHOLE_GPU_RESOURCE
from kubeshare.api.types.v1 import GPUDevice, GPUNodeSpec
from kubeshare.kube.controller.runtime import Program
from kubeshare.kube.resources import PODS, RESOURCE_CLAIMS
from kubeshare.node.agent import Agent
from kubeshare.node.dra import cdi
from kubeshare.node.dra.driver import ClaimReference, ClaimRefusedError, Driver
from kubeshare.node.escapes.watcher import EscapeWatch
from kubeshare.node.library import InstalledLibrary
from kubeshare.node.paths import NodePaths
from kubeshare.simulator.control import FakeApiServer
from kubeshare.tokens.files.grants import Grant, read_grant
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.files.statuses import Status, read_status, write_status

T = TypeVar("T")

AGAIN = 12.0
"""Seconds until the kubelet asks again for a claim that was refused."""
UNREACHED = 2.0
"""Seconds until it calls an agent again that is not there."""


class Machine:
    """One node.

    Args:
        server: the cluster.
        name: the node's.
        gpus: their UUIDs.
        folder: its disk.

    Attributes:
        paths: its places.
        containers: uids of the pods of which containers run on a GPU.
        stopping: seconds that containers take to stop.
        forced: seconds that they go on of a pod that was removed by force.
        lost: the machine is no more.
        knows_gpus: False while the kubelet has not heard of its device plugin, after a restart.
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
        self._faults: dict[str, str] = {}  # UUID of a GPU that has failed -> the driver's words
        self._agent: Agent | None = None
        self._lives: dict[str, asyncio.Task[None]] = {}  # uid of a pod -> what is done for it
        self._calls: set[asyncio.Task[Any]] = set()  # to the agent
        self._changed = asyncio.Event()
        self._given: dict[tuple[str, str], str] = {}  # a pod -> its whole GPU
        self._daemon = TokenDaemon(Paths(self.paths.run_folder))
        self.paths.static_cdi_folder.mkdir(parents=True)
        spec = {"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu"}
        devices = [{"name": uuid, "containerEdits": {}} for uuid in gpus]
        file = self.paths.static_cdi_folder / "nvidia.yaml"
        file.write_text(json.dumps(spec | {"devices": devices}))

    # The agent.

    def program(self, user_agent: str) -> Program:
        """The agent, ready to run."""
        client = self._server.client(user_agent)
        agent = _Agent(self, client, self._gpus, self._faults)
        program = Program("kubeshare-node-agent", client, recorder=agent.events)
        agent.add_to(program)
        return program

    def attach(self, agent: Agent | None) -> None:
        """The agent is there for the kubelet, or no more."""
        self._agent = agent
        if agent is None:
            for call in tuple(self._calls):
                call.cancel()

    async def given(self, namespace: str, name: str) -> list[str]:
        """The kubelet's answer about a pod's whole GPUs."""
        uuid = self._given.get((namespace, name))
        return [uuid] if uuid and self.knows_gpus else []

    # The kubelet.

    def look(self) -> None:
        """The kubelet does what is to be done now."""
        pods = [pod for pod in self._server.all(PODS) if pod["spec"].get("nodeName") == self.name]
        self._changed.set()
        self._changed = asyncio.Event()
        if self.lost:
            return
        there = {_place(pod) for pod in pods if not ended(pod)}
        self._given = {place: uuid for place, uuid in self._given.items() if place in there}
        for pod in pods:
            if asks(pod, VGPU_RESOURCE):
                self._begin(pod)
            elif being_deleted(pod):
                self._server.remove(PODS, *_place(pod)[::-1])
            elif pod["status"]["phase"] == "Pending":
                self._start_plain(pod)

    def fail(self, message: str) -> None:
        """The driver says this of all its GPUs, which are of no use from now on."""
        self._faults |= dict.fromkeys(self._gpus, message)

    def lose(self) -> None:
        """The machine is gone, with all that ran on it."""
        self.lost = True
        self.containers.clear()
        self._given.clear()
        self.attach(None)
        self.stop()

    def forget(self) -> None:
        """The kubelet is new: it knows of no pod, and what ran has ended."""
        self.containers.clear()
        self.stop()

    def stop(self) -> None:
        """End all that the kubelet does."""
        for life in self._lives.values():
            life.cancel()

    def left(self) -> list[str]:
        """What lies on its disk, or runs, for pods."""
        if self.lost:
            return []
        grants = [f"grant {grant.claim}" for grant in self._daemon.grants()]
        specs = [f"CDI spec {claim}" for claim in cdi.claims(self.paths.dynamic_cdi_folder)]
        return [f"{self.name}: {each}" for each in (*grants, *specs, *sorted(self.containers))]

    def violations(self) -> list[str]:
        """What must never be."""
        return [f"{self.name}: {wrong}" for wrong in self._daemon.violations]

    def _start_plain(self, pod: Raw) -> None:
        if asks(pod, WHOLE_GPU_RESOURCE):
            free = [uuid for uuid in self._gpus if uuid not in self._given.values()]
            if not free:
                return
            self._given[_place(pod)] = free[0]
        self._change(pod, run)

    def _begin(self, pod: Raw) -> None:
        uid = pod["metadata"]["uid"]
        if uid not in self._lives and pod["status"]["phase"] == "Pending":
            self._lives[uid] = asyncio.create_task(self._live(pod))

    async def _live(self, pod: Raw) -> None:
        """A pod's life on this node: claim, prepare, run, stop, unprepare."""
        uid = pod["metadata"]["uid"]
        claim = self._claim(pod)
        asked = False
        while self._goes_on(pod) and not asked:
            asked = await self._call(lambda agent: agent.prepare(claim))
        if asked and self._goes_on(pod):
            self.containers.add(uid)
            self._change(pod, run)
            await self._until_over(pod)
            gone = self._present(pod) is None
            await asyncio.sleep(self.forced if gone else self.stopping)
            self.containers.discard(uid)
        # Asked whether or not it was prepared, as the kubelet does.
        while not await self._call(lambda agent: agent.unprepare(claim)):
            pass
        self._server.remove(RESOURCE_CLAIMS, claim.name, claim.namespace)
        present = self._present(pod)
        if present is not None and being_deleted(present):
            self._server.remove(PODS, *_place(pod)[::-1])

    async def _until_over(self, pod: Raw) -> None:
        while True:
            changed = self._changed
            if not self._goes_on(pod):
                return
            await changed.wait()

    async def _call(self, ask: Callable[[Agent], Awaitable[object]]) -> bool:
        """Call the agent; False, after a while, when it refuses or is not there."""
        if self._agent is None:
            await asyncio.sleep(UNREACHED)
            return False
        call = asyncio.ensure_future(_started(ask(self._agent)))
        self._calls.add(call)
        pause = 0.002
        while not call.done():
            await asyncio.wait([call], timeout=pause)
            self._daemon.look()
            pause = min(0.5, pause * 1.5)
        self._calls.discard(call)
        self._daemon.look()
        if call.cancelled():
            return False
        if isinstance(call.exception(), ClaimRefusedError):
            await asyncio.sleep(AGAIN)
            return False
        call.result()
        return True

    def _claim(self, pod: Raw) -> ClaimReference:
        """Make the claim of a pod, allocated, as kube-scheduler does."""
        namespace, name = _place(pod)
        user = {"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}
        result = {"request": "container-0-request-0", "driver": DRA_DRIVER, "pool": self.name}
        results = [result | {"device": "slots"}]
        status = {"reservedFor": [user], "allocation": {"devices": {"results": results}}}
        # Not the pod's name alone: the claim of its predecessor may still be there.
        metadata = {"name": f"{name}-{pod['metadata']['uid']}", "namespace": namespace}
        made = self._server.seed(RESOURCE_CLAIMS, {"metadata": metadata, "status": status})
        return ClaimReference(namespace, made["metadata"]["name"], made["metadata"]["uid"])

    def _present(self, pod: Raw) -> Raw | None:
        """That very pod as it is now."""
        found = self._server.stored(PODS, *_place(pod)[::-1])
        same = found is not None and found["metadata"]["uid"] == pod["metadata"]["uid"]
        return found if same else None

    def _goes_on(self, pod: Raw) -> bool:
        present = self._present(pod)
        return present is not None and not being_deleted(present) and not ended(present)

    def _change(self, pod: Raw, mutate: Callable[[Raw], object]) -> None:
        self._server.change(PODS, *_place(pod)[::-1], mutate)


class TokenDaemon:
    """Activates every grant that it finds, and remembers when they did not fit.

    Args:
        paths: the run folder.
    """

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self.violations: list[str] = []

    def grants(self) -> list[Grant]:
        """Those that are there."""
        return [read_grant(file) for file in sorted(self._paths.grants.glob("*.json"))]

    def look(self) -> None:
        """Answer to what has changed."""
        grants = self.grants()
        claims = {grant.claim for grant in grants}
        for file in self._paths.statuses.glob("*.json"):
            if file.stem not in claims:
                file.unlink()
        for grant in grants:
            if read_status(self._paths, grant.claim) is None:
                write_status(self._paths, Status(claim=grant.claim, state="ACTIVE"))
        parts = [part for grant in grants for part in grant.gpus]
        for uuid in {part.uuid for part in parts}:
            asked = sum(part.request_micros for part in parts if part.uuid == uuid)
            if asked > 1_000_000:
                self.violations.append(f"{asked} micros of {uuid} are granted")


class _Agent(Agent):
    """The real one, called by the kubelet of the tests."""

    def __init__(
        self, machine: Machine, client: Any, uuids: list[str], faults: dict[str, str]
    ) -> None:
        devices = tuple(
            GPUDevice(uuid=uuid, index=index, model="V100", memory_bytes=16 << 30)
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
            has_processes=machine.containers.__contains__,
        )
        self.driver = cast("Driver", _Door(machine, self))
        self.escapes = cast("EscapeWatch", _NoWatch())


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
        return GPUNodeSpec(driver_version="550.1", agent_version="test", devices=devices)

    def processes(self) -> list[Any]:
        return []


class _Door:
    """In the place of the driver's sockets."""

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


class _NoWatch:
    """In the place of the watch of what runs on the GPUs: nothing does."""

    async def run(self) -> None:
        await asyncio.Event().wait()

    def register_metrics(self, _registry: object) -> None:
        pass


class InlineExecutor(ThreadPoolExecutor):
    """Does at once what is meant for a thread: virtual time waits for none."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - it is the caller's
            future.set_exception(error)
        return future


async def _started(awaitable: Awaitable[object]) -> object:
    return await awaitable


def _place(pod: Raw) -> tuple[str, str]:
    return pod["metadata"]["namespace"], pod["metadata"]["name"]

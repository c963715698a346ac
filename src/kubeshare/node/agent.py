"""Assembles the node agent from its parts."""

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import structlog

from kubeshare.kube.cache.store import Change
from kubeshare.kube.client.client import Client
from kubeshare.kube.controller.events import EventRecorder
from kubeshare.kube.controller.resync import add_resync
from kubeshare.kube.controller.runtime import Program
from kubeshare.node import boot, run_mount
from kubeshare.node.claim_mounts import ClaimMounts
from kubeshare.node.cpu.binder import CpuBinder
from kubeshare.node.cpu.cores import read_cores
from kubeshare.node.cpu.cpusets import Cpusets
from kubeshare.node.degraded_gpus import DegradedGpus
from kubeshare.node.device_plugin.gpushare import GpushareResources
from kubeshare.node.device_plugin.vcuda import VcudaResources
from kubeshare.node.display.pages import Display
from kubeshare.node.dra.claim_users import ClaimInUse, ClaimUsers, UsersOfClaims
from kubeshare.node.dra.driver import ClaimReference, Driver, PreparedDevice
from kubeshare.node.dra.grants import Grants
from kubeshare.node.dra.prepare import Preparer
from kubeshare.node.dra.release import Releaser
from kubeshare.node.dra.resource_slice import SlicePublisher
from kubeshare.node.dra.unreadable_grants import UnreadableGrants
from kubeshare.node.dra.unrecorded_grants import UnrecordedGrants
from kubeshare.node.escapes.policy import EscapePolicy, NodeEscapePolicy
from kubeshare.node.escapes.sampling import Sampler
from kubeshare.node.escapes.watcher import EscapeWatch
from kubeshare.node.gpus.discovery import GpuProcess, NvmlGpus
from kubeshare.node.gpus.dra_gpus import DraGpus
from kubeshare.node.gpus.inventory import Gpus, GpusInUse, Inventory
from kubeshare.node.gpus.metrics import GpuMetrics
from kubeshare.node.gpus.oversubscription import MemoryOversubscription
from kubeshare.node.gpus.placeholder_gpu import AllocatedGpus, PlaceholderGpus
from kubeshare.node.gpus.pod_resources import (
    allocated_gpus,
    exclusive_cpus,
    gpus_in_use,
    gpus_of_others,
)
from kubeshare.node.library import InstalledLibrary
from kubeshare.node.node_view import NodePod, NodeView
from kubeshare.node.paths import NodePaths
from kubeshare.node.processes import HasProcesses, has_processes
from kubeshare.node.reconcile import Reconciler
from kubeshare.node.run_mount import Mounter
from kubeshare.node.time_quota import TimeQuotas
from kubeshare.node.usage.accounts import NodeClock, UsageAccounts
from kubeshare.node.usage.publisher import UsagePublisher
from kubeshare.node.usage.records import RecordFolder
from kubeshare.tokens.client import ask_snapshot
from kubeshare.tokens.files.run_folder import Paths

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Settings:
    """The command line's options, the installed device library, and who mounts on the node."""

    node: str
    paths: NodePaths
    driver_root: Path
    library: InstalledLibrary
    escapes: EscapePolicy = "report"
    kubeconfig: str | None = None
    port: int | None = None
    mounter: Mounter | None = None


class NodeGpus(Gpus, Protocol):
    """Reads a node's GPUs and the processes on them; blocks."""

    def processes(self) -> list[GpuProcess]:
        """The processes on all GPUs, with the pids of this machine.

        Raises:
            DiscoveryError: it cannot be read now.
        """
        ...

    def addresses(self) -> dict[str, str]:
        """UUID of each GPU → its PCI address.

        Raises:
            DiscoveryError: it cannot be read now.
        """
        ...


class Agent:
    """All parts of one node's agent.

    Args:
        client: the API server.
        node: this node's name.
        paths: the node's folders and sockets.
        gpus: reads its GPUs.
        library: the installed device library.
        escapes: what to do, besides reporting, about processes that bypass the library, where no
            label of the node says it.
        allocated: which GPUs a pod was allocated; asks the kubelet by default.
        in_use: which GPUs pods use as whole GPUs; asks the kubelet by default.
        claim_in_use: whether a claim has a user here; asks kubelet and kernel by default.
        users_of_claims: who uses which claim here; asks kubelet and kernel by default.
        has_processes: whether a pod has a process here; asks the kernel by default.
        clock: of this node.

    Attributes:
        events: the recorder, which the program runs.
    """

    def __init__(  # noqa: PLR0913 - its parts
        self,
        client: Client,
        node: str,
        paths: NodePaths,
        gpus: NodeGpus,
        library: InstalledLibrary,
        *,
        escapes: EscapePolicy = "report",
        allocated: AllocatedGpus | None = None,
        in_use: GpusInUse | None = None,
        claim_in_use: ClaimInUse | None = None,
        users_of_claims: UsersOfClaims | None = None,
        has_processes: HasProcesses = has_processes,
        clock: NodeClock | None = None,
    ) -> None:
        self.view = NodeView(client, node)
        self.dra_gpus = DraGpus(client, node)
        self.grants = Grants(paths.run_folder)
        self.events = EventRecorder(client, "kubeshare.nthu/node-agent", node)
        self.unrecorded = UnrecordedGrants(
            self.grants,
            self.events,
            lambda: self.gpushare.nodes.store.get(node),
            self._unrecorded_changed,
        )
        self.oversubscription = MemoryOversubscription(self.events)
        socket, uuid_of = paths.pod_resources_socket, self.dra_gpus.uuid
        self.inventory = Inventory(
            client,
            node,
            gpus,
            self.view.promised,
            drivers=self.dra_gpus.drivers,
            in_use=in_use or (None if allocated else partial(gpus_in_use, socket, uuid_of)),
            unrecorded=self.unrecorded.report,
            memory_factor=self.oversubscription.micros,
        )
        self.view.pods.subscribe(self._pod_changed)
        self.dra_gpus.reflector.subscribe(lambda _: self.inventory.refresh_soon())
        self._run_folder = paths.run_folder
        self.degraded_gpus = DegradedGpus(self.view, Paths(paths.run_folder))
        self.gpushare = GpushareResources(client, node, paths, self.inventory, self.events)
        self.oversubscription.follow(self.gpushare.nodes, self.inventory.refresh_soon)
        self.vcuda = VcudaResources(node, paths, self.gpushare.nodes, self.inventory)
        self.time_quotas = TimeQuotas(self.view.pods, self.grants, self.events)
        self.usage = UsageAccounts(
            self.view,
            self.grants,
            RecordFolder(paths.usage_folder),
            lambda: self.gpushare.configuration.now().usage,
            clock or NodeClock(),
        )
        self.usage_publisher = UsagePublisher(client, self.usage)
        self.preparer = Preparer(
            client,
            self.view,
            self.inventory,
            self.grants,
            library=library,
            cdi_folders=[paths.static_cdi_folder, paths.dynamic_cdi_folder],
            gpus_of_others=None if allocated else partial(self._gpus_of_others, socket),
            gpushare=self.gpushare.settings,
            time_quota=self.time_quotas.of_pod,
            on_started=self.usage.start,
        )
        self.releaser = Releaser(
            client, self.view, self.grants, paths.dynamic_cdi_folder, self.usage.end
        )
        self.placeholders = PlaceholderGpus(
            client,
            self.view,
            self.inventory,
            self.events,
            allocated or partial(allocated_gpus, socket, uuid_of),
        )
        self.slices = SlicePublisher(client, node)
        mounts = ClaimMounts(Paths(paths.run_folder).claims)
        users = ClaimUsers(paths.pod_resources_socket, mounts)
        self.unreadable = UnreadableGrants(
            self.grants, self.view, self.unrecorded, users_of_claims or users.of_all
        )
        self.reconciler = Reconciler(
            client,
            self.view,
            self.inventory,
            self.grants,
            events=self.events,
            placeholders=self.placeholders,
            preparer=self.preparer,
            releaser=self.releaser,
            unrecorded=self.unrecorded,
            unreadable=self.unreadable,
            claim_in_use=claim_in_use or users.in_use,
            has_processes=has_processes,
        )
        self.escape_policy = NodeEscapePolicy(escapes, self.events)
        self.escape_policy.follow(self.gpushare.nodes)
        self.escapes = EscapeWatch(
            Sampler(Paths(paths.run_folder), gpus.processes, claims=mounts.of_process),
            self.view.containers,
            self.events,
            policy=self.escape_policy.now,
        )
        self.cpu_binder = CpuBinder(
            self.view,
            self.grants,
            self.inventory,
            cpusets=Cpusets(paths.cgroups),
            cores=partial(read_cores, paths.cpus),
            default=lambda: self.gpushare.configuration.now().cpu_cores,
            exclusive_cpus=partial(exclusive_cpus, socket),
            grants_of=mounts.of_process,
            events=self.events,
        )
        self.gpushare.configuration.subscribe(self._bind_cpus)
        self.display = Display(
            self.view,
            self.inventory,
            sample=lambda: self.escapes.sample,
            snapshot=partial(ask_snapshot, Paths(paths.run_folder)),
            addresses=gpus.addresses,
        )
        self.driver = Driver(self, paths.plugin_socket, paths.registration_socket)

    async def prepare(self, claim: ClaimReference) -> list[PreparedDevice]:
        """See ``Preparer.prepare``."""
        return await self.preparer.prepare(claim)

    async def unprepare(self, claim: ClaimReference) -> None:
        """See ``Releaser.unprepare``."""
        await self.releaser.unprepare(claim)

    async def _gpus_of_others(self, socket: Path) -> set[str]:
        return {*self.dra_gpus.drivers(), *await gpus_of_others(socket, self.dra_gpus.uuid)}

    def _pod_changed(self, change: Change[NodePod]) -> None:
        if change.object.uses_whole_gpus:
            self.inventory.refresh_soon()

    def _unrecorded_changed(self) -> None:
        self.inventory.refresh_soon()

    def _bind_cpus(self) -> None:
        self.cpu_binder.controller.queue.add(self.view.node)

    def void_former_boot(self, now: str) -> None:
        """Remove the grants of an earlier boot than `now`: their pods ended with it.

        An agent that ends before it has removed all of them begins again.
        """
        if boot.is_another(self._run_folder, now):
            for claim in self.grants.claims():
                try:
                    self.releaser.detach(claim)
                except ValueError as error:  # of a file that no agent wrote
                    log.warning("grant of a former boot stays", claim=claim, error=str(error))
        boot.save(self._run_folder, now)

    async def serve(self) -> None:
        """Serve the kubelet until cancelled, once the caches and the first reading are there."""
        await self.view.wait_for_sync()
        await self.dra_gpus.reflector.wait_for_sync()
        await self.gpushare.nodes.wait_for_sync()
        await self.gpushare.configmaps.wait_for_sync()
        self.degraded_gpus.follow()
        self.time_quotas.follow(self.gpushare.nodes, self.gpushare.configuration)
        await self.reconciler.find_unrecorded()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.inventory.run())
            group.create_task(self.escapes.run())
            await self.inventory.first_reading.wait()
            self.void_former_boot(boot.current())
            self.usage.recover()
            group.create_task(self.usage.run())
            self.reconciler.start()
            self._bind_cpus()
            async with self.driver:
                await asyncio.Event().wait()

    def add_to(self, program: Program) -> None:
        """Add the agent's reflectors, controllers, tasks and checks to a program."""
        program.add_reflector(self.view.vgpus)
        program.add_reflector(self.view.pods)
        program.add_reflector(self.slices.reflector)
        program.add_reflector(self.dra_gpus.reflector)
        program.add_reflector(self.inventory.reflector)
        self.reconciler.add_to(program)
        program.add_controller(self.cpu_binder.controller)
        add_resync(program, self.cpu_binder.controller, lambda: (self.view.node,))
        program.add_controller(self.slices.controller)
        program.add_controller(self.usage_publisher.controller)
        program.add_controller(self.time_quotas.controller)
        program.add_reflector(self.gpushare.nodes)
        program.add_reflector(self.gpushare.configmaps)
        program.add_controller(self.gpushare.controller)
        program.add_task(self.gpushare.plugin.run)
        program.add_controller(self.vcuda.controller)
        for plugin in self.vcuda.plugins:
            program.add_task(plugin.run)
        program.add_task(self.serve)
        self.display.add_to(program)
        GpuMetrics(self.inventory).register(program.registry)
        self.escapes.register_metrics(program.registry)
        self.unrecorded.register(program.registry)
        self.usage.register(program.registry)
        self.cpu_binder.metrics.register(program.registry)
        program.add_check(
            lambda: None if self.driver.registered.is_set() else "not registered with the kubelet"
        )


async def build(settings: Settings) -> Program:
    """Build the agent's program; the caller holds the agent's lock of this node.

    Raises:
        ConfigError: no API server is configured.
    """
    # Before anything is in that folder.
    is_bounded = await asyncio.to_thread(_bound_run_folder, settings)
    client = Client.connect(settings.kubeconfig)
    gpus = NvmlGpus(settings.driver_root)
    agent = Agent(
        client,
        settings.node,
        settings.paths,
        gpus,
        settings.library,
        escapes=settings.escapes,
    )
    program = Program("kubeshare-node-agent", client, recorder=agent.events, port=settings.port)
    agent.add_to(program)
    run_mount.register(program.registry, is_bounded=is_bounded)
    return program


def _bound_run_folder(settings: Settings) -> bool:
    """Give the run folder a file system of its own; returns whether it has one."""
    mounter = settings.mounter
    return mounter is not None and not run_mount.provide(settings.paths.run_folder, mounter)

"""The informers that the programs of the control plane need."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from kubeshare.api.configuration import ConfigMap, DynamicConfiguration, watch_configuration
from kubeshare.api.quotas.gpu_quotas import GPUQuotas
from kubeshare.api.quotas.policy import Quotas
from kubeshare.api.quotas.resource_quotas import (
    QUOTAS,
    ResourceQuota,
    ResourceQuotas,
    limits_gpus,
)
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.state.ledger_cache import Upkeep
from kubeshare.api.state.stripping import strip, strip_pod
from kubeshare.api.types import core_v1
from kubeshare.api.types.gpu_quota import GPUQUOTAS, GPUQuota
from kubeshare.api.types.v1 import GPUNODES, SHAREPODS, VGPU, VGPUS, GPUNode
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.quota.charge import ExclusiveDevices
from kubeshare.core.quota.index import QuotaIndex
from kubeshare.core.quota.namespace import HeldIndex
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import Store
from kubeshare.kube.client.client import Client
from kubeshare.kube.controller.events import EventRecorder
from kubeshare.kube.controller.runtime import Program
from kubeshare.kube.resources import Raw


@dataclass(frozen=True)
class ClusterInformers:
    """The reflectors of a program that places pods, and the state that they fill."""

    vgpus: Reflector[VGPU]
    gpunodes: Reflector[GPUNode]
    nodes: Reflector[core_v1.Node]
    pods: Reflector[core_v1.Pod]
    cluster_state: ClusterState
    configuration: DynamicConfiguration
    configmaps: Reflector[ConfigMap]
    resourcequotas: Reflector[ResourceQuota]
    gpuquotas: Reflector[GPUQuota]
    quotas: Quotas

    def keep_ledger(self, program: Program, upkeep: Upkeep) -> None:
        """Let a program build the ledger before its controllers run, and keep it up to date.

        Args:
            program: waits for it whenever it begins to lead.
            upkeep: the indexes that it needs.
        """

        def attach_all(ledger: Ledger) -> None:
            upkeep.attach(ledger)
            if len(self.gpuquotas.store):
                ledger.index(QuotaIndex)
                ledger.index(ExclusiveDevices)
            if any(map(limits_gpus, self.resourcequotas.store.snapshot().values())):
                ledger.index(HeldIndex)
                ledger.index(ExclusiveDevices)

        all_indexes = upkeep._replace(attach=attach_all)

        async def prepare() -> None:
            needed = (self.vgpus, self.gpunodes, self.nodes, self.pods)
            for reflector in (*needed, self.configmaps, self.gpuquotas, self.resourcequotas):
                await reflector.wait_for_sync()
            await self.cluster_state.prepare_ledger(all_indexes)

        program.add_preparation(prepare)
        program.add_task(partial(self.cluster_state.keep_ledger_up, all_indexes), leading=True)


@dataclass(frozen=True)
class Informers(ClusterInformers):
    """The same and the SharePods, for Sched and the device manager."""

    sharepods: Reflector[Raw]


def start_informers(
    program: Program,
    client: Client,
    manager: str,
    recorder: EventRecorder,
    built: Callable[[], None],
) -> Informers:
    """Add the informers to a program, with SharePods.

    The arguments are those of :func:`start_cluster_informers`.
    """
    # SharePods and pods grow with the number of users; they are looked up by key, so they are
    # packed.
    sharepods: Reflector[Raw] = program.add_reflector(
        Reflector(client, SHAREPODS, store=Store(encode_as=dict), transform=strip)
    )
    cluster = start_cluster_informers(program, client, manager, recorder, built)
    return Informers(**vars(cluster), sharepods=sharepods)


def start_cluster_informers(
    program: Program,
    client: Client,
    manager: str,
    recorder: EventRecorder,
    built: Callable[[], None],
) -> ClusterInformers:
    """Add the informers to a program.

    Args:
        program: runs them.
        client: the API server.
        manager: the field manager for patches of vGPUs.
        recorder: emits events about an invalid configuration.
        built: called after the whole ledger has been built.
    """
    pods: Reflector[core_v1.Pod] = program.add_reflector(
        Reflector(client, core_v1.PODS, store=Store(encode_as=core_v1.Pod), transform=strip_pod)
    )
    vgpus: Reflector[VGPU] = program.add_reflector(Reflector(client, VGPUS.into(VGPU)))
    gpunodes: Reflector[GPUNode] = program.add_reflector(Reflector(client, GPUNODES.into(GPUNode)))
    nodes: Reflector[core_v1.Node] = program.add_reflector(Reflector(client, core_v1.NODES))
    resourcequotas: Reflector[ResourceQuota] = program.add_reflector(Reflector(client, QUOTAS))
    gpuquotas: Reflector[GPUQuota] = program.add_reflector(Reflector(client, GPUQUOTAS))
    configmaps = program.add_reflector(watch_configuration(client))
    configuration = DynamicConfiguration(configmaps, recorder)
    quotas = Quotas(ResourceQuotas(resourcequotas).of, GPUQuotas(gpuquotas).of)
    cluster_state = ClusterState(
        client,
        manager,
        vgpus=vgpus,
        gpunodes=gpunodes,
        nodes=nodes,
        pods=pods,
        quotas=quotas,
        label_scope=lambda: configuration.now().label_scope,
        domain_label=lambda: configuration.now().gang_domain_label,
        built=built,
    )
    return ClusterInformers(
        vgpus=vgpus,
        gpunodes=gpunodes,
        nodes=nodes,
        pods=pods,
        cluster_state=cluster_state,
        configuration=configuration,
        configmaps=configmaps,
        resourcequotas=resourcequotas,
        gpuquotas=gpuquotas,
        quotas=quotas,
    )

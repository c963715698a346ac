"""What Sched and DevMgr both watch: SharePods, GPUs, nodes and pods, and their configuration."""

from collections.abc import Callable
from dataclasses import dataclass

from kubeshare.api import cluster
from kubeshare.api.configuration import ConfigMap, Configured, watch_configuration
from kubeshare.api.inventory import Inventory
from kubeshare.api.quotas import QUOTAS, Quotas, ResourceQuota
from kubeshare.api.v1 import GPUNODES, SHAREPODS, VGPU, VGPUS, GPUNode
from kubeshare.kube.api import Api
from kubeshare.kube.events import EventRecorder
from kubeshare.kube.reflector import Reflector
from kubeshare.kube.resources import Raw
from kubeshare.kube.runtime import Program
from kubeshare.kube.store import Store


@dataclass(frozen=True)
class Watched:
    """The watches of a program, and the inventory that they fill."""

    sharepods: Reflector[Raw]
    vgpus: Reflector[VGPU]
    gpunodes: Reflector[GPUNode]
    nodes: Reflector[cluster.Node]
    pods: Reflector[cluster.Pod]
    inventory: Inventory
    configuration: Configured
    configmaps: Reflector[ConfigMap]
    resourcequotas: Reflector[ResourceQuota]
    quotas: Quotas


def watch(
    program: Program,
    api: Api,
    manager: str,
    recorder: EventRecorder,
    built: Callable[[], None],
) -> Watched:
    """Have a program watch the cluster.

    Args:
        program: runs the watches.
        api: the cluster.
        manager: recorded as who changed a vGPU.
        recorder: tells people of a configuration that cannot be read.
        built: called after the ledger has been made whole.
    """
    # There are as many of these two as there are users, and they are looked up, not gone through.
    sharepods: Reflector[Raw] = program.add_reflector(
        Reflector(api, SHAREPODS, store=Store(packed=dict))
    )
    pods: Reflector[cluster.Pod] = program.add_reflector(
        Reflector(api, cluster.PODS, store=Store(packed=cluster.Pod))
    )
    vgpus: Reflector[VGPU] = program.add_reflector(Reflector(api, VGPUS.into(VGPU)))
    gpunodes: Reflector[GPUNode] = program.add_reflector(Reflector(api, GPUNODES.into(GPUNode)))
    nodes: Reflector[cluster.Node] = program.add_reflector(Reflector(api, cluster.NODES))
    resourcequotas: Reflector[ResourceQuota] = program.add_reflector(Reflector(api, QUOTAS))
    configmaps = program.add_reflector(watch_configuration(api))
    inventory = Inventory(
        api, manager, vgpus=vgpus, gpunodes=gpunodes, nodes=nodes, pods=pods, built=built
    )
    configuration = Configured(configmaps, recorder)
    return Watched(
        sharepods=sharepods,
        vgpus=vgpus,
        gpunodes=gpunodes,
        nodes=nodes,
        pods=pods,
        inventory=inventory,
        configuration=configuration,
        configmaps=configmaps,
        resourcequotas=resourcequotas,
        quotas=Quotas(resourcequotas),
    )

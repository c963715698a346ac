"""Puts the device manager together: the context and the controllers."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from kubeshare.api.state.informers import start_informers
from kubeshare.api.state.ledger_cache import Upkeep
from kubeshare.api.types.constants import DEVICE_MANAGER, MANAGER_DEVICES, SCHEDULER
from kubeshare.api.upgrades import leader_elector, watch_leader
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import DEFAULT, Policy
from kubeshare.core.policies import policy as named_policy
from kubeshare.core.policies.by_family import by_family
from kubeshare.core.policies.gpuid_scope import within_gpuid_scope
from kubeshare.core.policies.indexes import attach_indexes
from kubeshare.device_manager.autoscaling.placeholder_pods import AutoscalerPods
from kubeshare.device_manager.context import Context
from kubeshare.device_manager.events import Events
from kubeshare.device_manager.gang.controller import GangController
from kubeshare.device_manager.metrics import Metrics
from kubeshare.device_manager.owned.controller import OwnedNodes
from kubeshare.device_manager.owned.static_vgpus import StaticVGPUs
from kubeshare.device_manager.placeholder.claims import Claims
from kubeshare.device_manager.placeholder.fillers import Fillers
from kubeshare.device_manager.placeholder.gpu_selector import GpuSelector
from kubeshare.device_manager.placeholder.pods import Placeholders
from kubeshare.device_manager.pod.controller import PodController
from kubeshare.device_manager.pool.controller import PoolController
from kubeshare.device_manager.pool.idle_times import IdleTimes
from kubeshare.device_manager.pool.reclaim import Reclaimer
from kubeshare.device_manager.pool.state import NodePools
from kubeshare.device_manager.quota.controller import GPUQuotaController
from kubeshare.device_manager.quota.gaia import GaiaQuotaController
from kubeshare.device_manager.refused_starts import RefusedStarts
from kubeshare.device_manager.sharepod.controller import SharePodController
from kubeshare.device_manager.sharepod.event_handlers import index_by_vgpu
from kubeshare.device_manager.usage.retention import UsageRetention
from kubeshare.device_manager.vgpu.controller import VGPUController
from kubeshare.kube.client.client import Client
from kubeshare.kube.clock import utc_now
from kubeshare.kube.controller.events import EventRecorder
from kubeshare.kube.controller.runtime import Program

NAME: Final = DEVICE_MANAGER
"""The name of the program, and of the Lease that its leader holds."""


def device_manager_program(  # noqa: PLR0913 - the command's options
    client: Client,
    policy: Policy,
    *,
    placeholder_image: str,
    instance: str,
    port: int | None = None,
    elect: bool = False,
    wall_clock: Callable[[], datetime] = utc_now,
    built: Callable[[], None] = lambda: None,
) -> Program:
    """KubeShare-DevMgr, ready to run.

    Args:
        client: the API server.
        policy: the scheduler's: whether a demand would fit.
        placeholder_image: an image with ``sh`` and ``sleep``.
        instance: the name of this replica, for events and for the Lease.
        port: the port of probes and metrics; None for no server.
        elect: whether it works only while it holds the Lease of its name.
        wall_clock: the current time in objects, timezone-aware.
        built: called after the ledger of the cluster has been built.
    """
    recorder = EventRecorder(
        client, "kubeshare.nthu/device-manager", instance, wall_clock=wall_clock
    )
    elector = leader_elector(client, NAME, instance, wall_clock) if elect else None
    program = Program(NAME, client, elector=elector, recorder=recorder, port=port)
    informers = start_informers(program, client, MANAGER_DEVICES, recorder, built)
    index_by_vgpu(informers.sharepods.store)
    cluster_state = informers.cluster_state
    events, metrics = Events(recorder), Metrics(program.registry, cluster_state.pool.all)
    claims = Claims(client)
    program.add_reflector(claims.reflector)
    refused_starts = RefusedStarts(client)
    refused_starts.register(program)

    def in_cluster(policy: Policy) -> Policy:
        return within_gpuid_scope(
            informers.quotas.within(by_family(policy)),
            lambda: informers.configuration.now().gpuid_scope,
        )

    context = Context(
        client=client,
        informers=informers,
        schedulers=program.add_reflector(watch_leader(client, SCHEDULER)),
        policy=in_cluster(policy),
        on_given_gpu=in_cluster(named_policy(DEFAULT)),
        placeholders=Placeholders(
            client, cluster_state, placeholder_image, events, metrics, claims=claims
        ),
        claims=claims,
        idle_times=IdleTimes(cluster_state.pool),
        refused_starts=refused_starts,
        events=events,
        metrics=metrics,
        wall_clock=wall_clock,
    )

    def attach(ledger: Ledger) -> None:
        attach_indexes(context.policy, ledger)
        attach_indexes(context.on_given_gpu, ledger)

    informers.keep_ledger(program, Upkeep(attach))
    pools = NodePools(cluster_state, context.placeholders, context.idle_times)
    reclaimer = Reclaimer(context, pools)
    PoolController(context, pools, reclaimer).register(program)
    reclaimer.register(program)
    AutoscalerPods(context, placeholder_image).register(program)
    fillers = Fillers(client, cluster_state, informers.pods.store, placeholder_image)
    GpuSelector(context, fillers).register(program)
    static = StaticVGPUs(context)
    OwnedNodes(context, static).register(program)
    VGPUController(context, static).register(program)
    PodController(context).register(program)
    SharePodController(context).register(program)
    GangController(context).register(program)
    GPUQuotaController(context).register(program)
    GaiaQuotaController(context).register(program)
    UsageRetention(context).register(program)
    return program

"""Constructs the extender: its informers, its service and its server."""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from kubeshare.api.state.informers import ClusterInformers, start_cluster_informers
from kubeshare.api.state.ledger_cache import Upkeep
from kubeshare.api.types.constants import MANAGER_EXTENDER
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.dialects.families import GPUSHARE, VCUDA, Family
from kubeshare.extender.binding import Binder
from kubeshare.extender.http.access import TokenFile
from kubeshare.extender.http.messages import Limits
from kubeshare.extender.http.server import HttpServer
from kubeshare.extender.inspection import Inspection
from kubeshare.extender.metrics import Metrics
from kubeshare.extender.nodes import FamilyNodes
from kubeshare.extender.placement import Placement
from kubeshare.extender.pod_lookup import PodLookup
from kubeshare.extender.predicates import Predicates
from kubeshare.extender.service import ExtenderService
from kubeshare.kube.client.client import Client
from kubeshare.kube.clock import utc_now
from kubeshare.kube.controller.events import EventRecorder
from kubeshare.kube.controller.runtime import Program

NAME: Final = "kubeshare-extender"
"""The name of the program."""
LAG_SECONDS: Final = 1.0
"""Seconds between two updates of the ledger while nobody calls."""


class Serving(NamedTuple):
    """Where the extender serves kube-scheduler; port 0 is a free one on the loopback."""

    port: int
    tls: ssl.SSLContext | None = None
    token: TokenFile | None = None
    limits: Limits = Limits()


class Extender(NamedTuple):
    """The program, and the service and server in it."""

    program: Program
    service: ExtenderService
    server: HttpServer | None


def extender_program(  # noqa: PLR0913 - its options
    client: Client,
    *,
    instance: str,
    port: int | None = None,
    serving: Serving | None = None,
    wall_clock: Callable[[], datetime] = utc_now,
    built: Callable[[], None] = lambda: None,
) -> Extender:
    """The extender, ready to run; every replica works.

    Args:
        client: the API server.
        instance: the name of this replica, for events.
        port: serves probes and metrics; None for no server.
        serving: where kube-scheduler is served; None if the service is called directly.
        wall_clock: gives the times in events and annotations.
        built: called after the cluster's ledger has been built.
    """
    recorder = EventRecorder(client, "kubeshare.nthu/extender", instance, wall_clock=wall_clock)
    program = Program(NAME, client, recorder=recorder, port=port)
    informers = start_cluster_informers(program, client, MANAGER_EXTENDER, recorder, built)
    cluster_state, configuration = informers.cluster_state, informers.configuration
    nodes = FamilyNodes(GPUSHARE.name, informers.nodes, informers.gpunodes)
    metrics = Metrics(program.registry)

    def placement_of(family: Family, dedicated: FamilyNodes) -> Placement:
        return Placement(
            family,
            cluster_state,
            dedicated,
            configuration,
            informers.quotas,
            on_failure=metrics.policy_failures.inc,
        )

    placement = placement_of(GPUSHARE, nodes)
    vcuda_nodes = FamilyNodes(VCUDA.name, informers.nodes, informers.gpunodes)
    vcuda = placement_of(VCUDA, vcuda_nodes)
    service = ExtenderService(
        placement,
        Binder(client, cluster_state, placement, nodes, wall_clock),
        Inspection(cluster_state.pool, nodes, configuration),
        Predicates(cluster_state.pool, PodLookup(client, cluster_state), vcuda, vcuda_nodes),
        recorder=recorder,
        metrics=metrics,
        not_ready=program.not_ready,
        token=serving.token if serving else None,
    )
    server = None
    if serving is not None:
        server = HttpServer(serving.port, service, tls=serving.tls, limits=serving.limits)
        program.add_task(server.run)
    _keep_ledger(program, informers, (placement, vcuda))
    return Extender(program, service, server)


def _keep_ledger(
    program: Program, informers: ClusterInformers, placements: Sequence[Placement]
) -> None:
    """Let no call build the ledger, which takes a second for 5000 nodes, or catch up for long."""

    def attach(ledger: Ledger) -> None:
        for placement in placements:
            placement.attach_indexes(ledger)

    def refresh(ledger: Ledger) -> None:
        for placement in placements:
            placement.refresh_indexes(ledger)

    async def note() -> None:
        built.set()

    built = asyncio.Event()
    informers.keep_ledger(program, Upkeep(attach, refresh, LAG_SECONDS))
    program.add_preparation(note)
    program.add_check(lambda: None if built.is_set() else "the ledger is not built yet")

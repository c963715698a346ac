"""Keeps new forms of demands from programs of earlier versions.

During an upgrade, programs of two versions run beside each other. A demand of several shares, or
with a limit while alone, is placed only where all that carry it out know it: scheduler and device
manager, which say so in their Leases, and the node agent, which says so in its GPUNode. Each of the
two programs reads the Lease of the other. No mark outlives a rollback: the one on a Lease names the
leader that wrote it, and an earlier agent writes the spec of its GPUNode without the other.
"""

from collections.abc import Callable
from datetime import datetime

from msgspec import structs

from kubeshare.api.predicates.eligibility import Eligible
from kubeshare.api.types.constants import (
    ANNOTATION_LEADER,
    ANNOTATION_SUPPORTS,
    DEVICE_MANAGER,
    NAMESPACE,
    SCHEDULER,
    SUPPORTS_SHARES,
)
from kubeshare.api.types.v1 import GPUNode
from kubeshare.core.demand import Demand
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import Change, Store
from kubeshare.kube.client.client import Client
from kubeshare.kube.controller.leader_election import TYPED_LEASES, LeaderElector, Lease
from kubeshare.kube.meta import Key

_DEVICE_MANAGER = Key(NAMESPACE, DEVICE_MANAGER)
_SCHEDULER = Key(NAMESPACE, SCHEDULER)


def leader_elector(
    client: Client, program: str, instance: str, wall_clock: Callable[[], datetime]
) -> LeaderElector:
    """A candidate for the Lease of a program; as the leader it writes there what it supports.

    Args:
        client: writes the Lease.
        program: the name of the program and of its Lease.
        instance: the name of the replica, which is the holder of the Lease.
        wall_clock: the current time, timezone-aware.
    """
    return LeaderElector(
        client,
        NAMESPACE,
        program,
        instance,
        annotations={ANNOTATION_LEADER: instance, ANNOTATION_SUPPORTS: SUPPORTS_SHARES},
        wall_clock=wall_clock,
    )


def watch_leader(client: Client, program: str) -> Reflector[Lease]:
    """A reflector of the Lease of one program alone."""
    return Reflector(client, TYPED_LEASES, namespace=NAMESPACE, fields=f"metadata.name={program}")


def is_new_form(demand: Demand) -> bool:
    """Whether programs of earlier versions cannot carry a demand out."""
    alone = demand.limit_alone_micros
    return bool(demand.shares) or alone not in (None, demand.limit_micros)


def leader_changed(change: Change[Lease]) -> bool:
    """Whether a Lease has another holder or other annotations, and was not only renewed."""
    old, new = change.old, change.object
    return old is None or (old.spec.holder_identity, old.metadata.annotations) != (
        new.spec.holder_identity,
        new.metadata.annotations,
    )


def outdated_scheduler(demand: Demand, leases: Store[Lease]) -> str:
    """Why a decision about a demand may be by rules of an earlier version; ``""`` if it cannot.

    Without a leader no scheduler of KubeShare decides, as where it was replaced by another one.

    Args:
        demand: the demand.
        leases: has the Lease of the scheduler.
    """
    lease = leases.by_key(_SCHEDULER)
    if lease is None or not lease.spec.holder_identity or not is_new_form(demand):
        return ""
    return _outdated_leader("the scheduler", lease)


def outdated_agent(found: GPUNode | None) -> str:
    """Why the agent of a node cannot attach a new form of demand; ``""`` if it can.

    A node without a GPUNode has no GPUs, so there is nothing to refuse.
    """
    if found is None or found.spec.supports_shares:
        return ""
    version = f" {found.spec.agent_version}" if found.spec.agent_version else ""
    return (
        f"its node agent{version} is of an earlier version, which can attach neither several "
        "shares nor a limit while alone"
    )


def without_outdated_agents(
    demand: Demand, eligible: Eligible, gpunode: Callable[[str], GPUNode | None]
) -> Eligible:
    """The eligible nodes whose agent can attach a demand.

    Args:
        demand: the demand.
        eligible: the nodes that accept its pod.
        gpunode: what the agent of a node reports; None if there is none.
    """
    if not is_new_form(demand):
        return eligible
    return _refuse(eligible, lambda name: outdated_agent(gpunode(name)))


class Upgrades:
    """What is of an earlier version now.

    Args:
        leases: has the Lease of the device manager.
        gpunodes: what the node agents report.
    """

    def __init__(self, leases: Store[Lease], gpunodes: Store[GPUNode]) -> None:
        self._leases = leases
        self._gpunodes = gpunodes

    def outdated_program(self, demand: Demand) -> str:
        """Why no decision about a demand could be carried out; ``""`` if it could.

        Without a Lease no device manager runs, so none of an earlier version does.
        """
        lease = self._leases.by_key(_DEVICE_MANAGER)
        if lease is None or not is_new_form(demand):
            return ""
        return _outdated_leader("the device manager", lease)

    def device_manager_leads(self) -> bool:
        """Whether a device manager holds the Lease, or has not released it."""
        lease = self._leases.by_key(_DEVICE_MANAGER)
        return lease is not None and bool(lease.spec.holder_identity)

    def filter(self, demand: Demand, eligible: Eligible) -> Eligible:
        """The eligible nodes that can carry a demand out."""
        if program := self.outdated_program(demand):
            return _refuse(eligible, lambda _: program)
        return without_outdated_agents(
            demand, eligible, lambda name: self._gpunodes.by_key(Key("", name))
        )


def _outdated_leader(program: str, lease: Lease) -> str:
    annotations, holder = lease.metadata.annotations, lease.spec.holder_identity
    supported = annotations.get(ANNOTATION_SUPPORTS, "").split(",")
    leader = annotations.get(ANNOTATION_LEADER)
    # A Lease that was released still says which version held it last.
    if SUPPORTS_SHARES in supported and holder in (None, "", leader):
        return ""
    return (
        f"{program} ({holder or 'released'}) is of an earlier version, which knows "
        "neither several shares nor a limit while alone: it is placed after the upgrade"
    )


def _refuse(eligible: Eligible, reason: Callable[[str], str]) -> Eligible:
    refused = {name: why for name in sorted(eligible.nodes) if (why := reason(name))}
    return structs.replace(eligible.excluding(refused), outdated=frozenset(refused))

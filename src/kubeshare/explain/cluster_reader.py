"""Reads once what the scheduler watches, for ``kubeshare explain``."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from kubeshare.api import sharepods
from kubeshare.api.configuration import KEY, NAME, ConfigMap, Configuration, parse
from kubeshare.api.holders import holder_of
from kubeshare.api.predicates import exclusions
from kubeshare.api.predicates.eligibility import Eligible, eligible, without_excluded
from kubeshare.api.quotas.gpu_quotas import rows_of_all
from kubeshare.api.quotas.policy import Quotas
from kubeshare.api.quotas.resource_quotas import QUOTAS, rows
from kubeshare.api.state import ledger_builder
from kubeshare.api.types import core_v1
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.api.types.gpu_quota import GPUQUOTAS
from kubeshare.api.types.v1 import GPUNODES, SHAREPODS, VGPU, VGPUS, GPUNode
from kubeshare.api.upgrades import without_outdated_agents
from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy
from kubeshare.core.policies.by_family import by_family
from kubeshare.core.policies.gpuid_scope import within_gpuid_scope
from kubeshare.dialects import pod, sharepod
from kubeshare.dialects.priority_and_gang import Standing, standing_of
from kubeshare.explain.errors import NotAllowedError, NotInstalledError
from kubeshare.explain.scheduler_policy import SchedulerPolicy, scheduler_policy
from kubeshare.kube.client.errors import ForbiddenError, NotFoundError
from kubeshare.kube.resources import CONFIG_MAPS, Raw, Resource

if TYPE_CHECKING:
    from kubeshare.kube.client.client import Client

T = TypeVar("T")


class Lists(msgspec.Struct, frozen=True, kw_only=True):
    """All objects of the kinds that decide about a placement."""

    vgpus: Sequence[VGPU]
    gpunodes: Sequence[GPUNode]
    nodes: Sequence[core_v1.Node]
    pods: Sequence[core_v1.Pod]


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster at one moment.

    Attributes:
        ledger: its GPUs.
        nodes: its nodes.
        gpunodes: what the node agents report.
        pods: all pods.
        vgpus: its vGPUs.
        policy: places demands, within the quotas of the namespace.
        policy_note: that this policy is assumed, and why; ``""`` if it is known.
        configuration: in force; None where it may not be read.
        now: the moment.
    """

    ledger: Ledger
    nodes: Sequence[core_v1.Node]
    gpunodes: Sequence[GPUNode]
    pods: Sequence[core_v1.Pod]
    vgpus: Sequence[VGPU]
    policy: Policy
    policy_note: str
    configuration: Configuration | None
    now: datetime

    def where(self, resource: Resource[Raw], raw: Mapping[str, Any], demand: Demand) -> Eligible:
        """The nodes and vGPUs that a SharePod or pod with a demand may go to."""
        owned = self.configuration.owned if self.configuration else None
        found = {each.metadata.name: each for each in self.gpunodes}
        may = eligible(self.nodes, raw["spec"], owned, demand.family)
        may = without_outdated_agents(demand, may, found.get)
        if resource is not SHAREPODS:
            return may
        noted = sharepods.view(raw).spec.gpu.set_aside
        return without_excluded(may, exclusions.active(noted, self.now))

    def demand(self, resource: Resource[Raw], raw: Mapping[str, Any]) -> Demand | None:
        """The demand of a SharePod or pod; None if it asks for no GPU.

        Raises:
            InvalidValueError: a value is not acceptable.
        """
        if resource is SHAREPODS:
            return sharepod.demand_of(raw)
        configuration = self.configuration or Configuration()
        return pod.demand_of(raw, unit=configuration.gpushare.unit_bytes)

    def standing(self, raw: Mapping[str, Any]) -> Standing:
        """The priority, the gang and the preemptibility of a SharePod or pod.

        Raises:
            InvalidValueError: a value is not acceptable.
        """
        configuration = self.configuration or Configuration()
        return standing_of(raw, configuration.max_priority.of(raw["metadata"]["namespace"]))

    def held_by(self, uid: str) -> list[VGPU]:
        """The vGPUs of which a demand has a part."""
        return [vgpu for vgpu in self.vgpus if holder_of(vgpu, uid)]


async def read(client: "Client", given: Policy | None, namespace: str, now: datetime) -> Seen:
    """Read a cluster.

    Args:
        client: where it is.
        given: the policy that decides; None for the scheduler's.
        namespace: whose quotas count.
        now: the present, aware.

    Raises:
        NotInstalledError: it has no KubeShare.
        NotAllowedError: some of it may not be read.
        UnknownPolicyError: the scheduler's policy is not installed here.
        ApiError: it cannot be read.
    """
    missing: list[str] = []
    try:
        vgpus = await _all(client, VGPUS.into(VGPU), missing)
        gpunodes = await _all(client, GPUNODES.into(GPUNode), missing)
    except NotFoundError as error:
        raise NotInstalledError from error
    nodes = await _all(client, core_v1.NODES, missing)
    pods = await _all(client, core_v1.PODS, missing)
    if missing:
        raise NotAllowedError(missing)
    chosen = await scheduler_policy(client, given)
    configuration = await read_configuration(client)
    quotas = await _quotas(client, namespace)
    listed = Lists(vgpus=vgpus, gpunodes=gpunodes, nodes=nodes, pods=pods)
    return seen_of(listed, chosen, quotas, configuration, now)


def seen_of(
    listed: Lists,
    chosen: SchedulerPolicy,
    quotas: Quotas,
    configuration: Configuration | None,
    now: datetime,
) -> Seen:
    """A cluster of which all objects are known.

    Args:
        listed: its objects.
        chosen: the policy that decides.
        quotas: at least those of the namespace in question.
        configuration: in force; None where it may not be read.
        now: the present, aware.
    """
    in_force = configuration or Configuration()
    built = ledger_builder.build(
        listed.vgpus,
        listed.gpunodes,
        listed.nodes,
        listed.pods,
        label_scope=in_force.label_scope,
        domain_label=in_force.gang_domain_label,
    )
    return Seen(
        ledger=built,
        nodes=listed.nodes,
        gpunodes=listed.gpunodes,
        pods=listed.pods,
        vgpus=listed.vgpus,
        policy=within_gpuid_scope(
            quotas.within(by_family(chosen.decide)), lambda: in_force.gpuid_scope
        ),
        policy_note=chosen.note,
        configuration=configuration,
        now=now,
    )


async def _all(client: "Client", resource: Resource[T], missing: list[str]) -> Sequence[T]:
    """All objects of a kind; its plural becomes one of ``missing`` if they may not be listed."""
    try:
        return (await client.list(resource)).items
    except ForbiddenError:
        missing.append(resource.plural)
        return ()


async def _quotas(client: "Client", namespace: str) -> Quotas:
    """The quotas of the namespace; an earlier version of KubeShare has no GPUQuotas."""
    of_namespace = rows((await client.list(QUOTAS, namespace)).items)
    try:
        by_model = rows_of_all((await client.list(GPUQUOTAS, namespace)).items)
    except NotFoundError:
        by_model = []
    return Quotas(lambda _: of_namespace, lambda _: by_model)


async def read_configuration(client: "Client") -> Configuration | None:
    """The configuration in force; None where it may not be read or is invalid."""
    try:
        found = await client.get(CONFIG_MAPS.into(ConfigMap), NAME, NAMESPACE)
        return parse(found.data.get(KEY, ""))
    except NotFoundError:
        return Configuration()
    except (ForbiddenError, InvalidValueError):
        return None

"""Decides which nodes fit, and which GPU a pod gets.

For gpushare, kube-scheduler chooses the node and the policy ``binpack`` the GPU of the node; for
Gaia, the policy ``topology`` chooses both. A share that the pod holds from an earlier call counts
as free: the next one takes it back first.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import groupby
from typing import Final

import msgspec

from kubeshare.api import pod_state
from kubeshare.api.configuration import DynamicConfiguration
from kubeshare.api.quotas.policy import Quotas
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.types.constants import LABEL_ROLE, ROLE_SHAREPOD
from kubeshare.api.types.v1 import VGPU
from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis.messages import asked_for, explain, explain_nodes
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import indexes, policy
from kubeshare.core.policies.by_family import FAMILY_POLICIES
from kubeshare.core.policies.guard import GuardedPolicy
from kubeshare.core.policies.scoring import guarded, scorer
from kubeshare.core.quota.model import Restriction
from kubeshare.core.quota.rows import FIELDS
from kubeshare.core.quota.slots import fence_crowded
from kubeshare.core.units import Memory
from kubeshare.dialects import families
from kubeshare.dialects.containers import VGPU_RESOURCE, asks_for_vgpu
from kubeshare.extender.nodes import FamilyNodes
from kubeshare.extender.wire.arguments import Victims
from kubeshare.kube.resources import Raw

NO_ROOM: Final = "Insufficient GPU Memory in one device"
"""Why a node of gpushare does not fit, in the words of gpushare."""
OF_NO_GPUSHARE: Final = "The node {} is not for GPU share, need skip"
"""Why another node does not fit, in the same words."""
CHOSEN_BY_SCHEDULER: Final = "KubeShare's scheduler has chosen node {} for the pod"
NOT_ADMITTED: Final = (
    f"none asks for {VGPU_RESOURCE}, by which the node attaches the share: the pod was created "
    "without KubeShare's admission policy; create it again"
)

_LEAST: Final = Demand(uid="least", name="least", memory=Memory(bytes=1), proportional=True)


class Placement:
    """Answers questions about the cluster as it is now, for pods of one manifest family.

    Args:
        family: the family.
        cluster_state: the vGPUs.
        nodes: which nodes are dedicated to it.
        configuration: the unit of memory, and how nodes are ranked.
        quotas: those of each namespace.
        on_failure: called after each failure of the family's policy.
    """

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        family: families.Family,
        cluster_state: ClusterState,
        nodes: FamilyNodes,
        configuration: DynamicConfiguration,
        quotas: Quotas,
        *,
        on_failure: Callable[[], object],
    ) -> None:
        self._family = family
        self._cluster_state = cluster_state
        self._pool = cluster_state.pool
        self._nodes = nodes
        self._configuration = configuration
        name = FAMILY_POLICIES[family.name]
        self._score, self._unguarded = guarded(name, on_failure), scorer(name)
        self._quotas = quotas
        self._policy = GuardedPolicy(name, "built in", policy(name), on_failure)
        self._decide = quotas.within(self._policy)
        self._gpu_quotas = quotas.bounded(self._policy)

    def demand(self, pod: Raw) -> Demand | None:
        """What a pod asks for; None if it is of another family, or its SharePod has its share.

        Raises:
            InvalidValueError: a value is not acceptable.
        """
        if is_of_sharepod(pod):
            return None
        demand = families.demand_of(pod, self.unit_bytes, self._family)
        if demand is not None and not asks_for_vgpu(pod["spec"]):
            raise InvalidValueError("spec.containers", NOT_ADMITTED)
        return demand

    @property
    def unit_bytes(self) -> int:
        """The bytes of a unit of ``aliyun.com/gpu-mem``."""
        return self._configuration.now().gpushare.unit_bytes

    def decided_by_scheduler(self, pod: Raw, uid: str) -> list[VGPU]:
        """The vGPUs that KubeShare-Sched has chosen for a pod; none if it is not decided.

        Sched reserves the shares first and then names them in the pod.
        """
        held = self._pool.held_by(uid)
        view = pod_state.view(pod) if held else None
        return held if view and all(pod_state.names(view, vgpu) for vgpu in held) else []

    def refusals(self, pod: Raw, demand: Demand, names: Iterable[str]) -> dict[str, str]:
        """Name of each node on which a pod does not fit now → why, in the words of gpushare."""
        decided = self.decided_by_scheduler(pod, demand.uid)
        if decided:
            chosen = decided[0].spec.node_name
            words = CHOSEN_BY_SCHEDULER.format(chosen)
            return {name: words for name in names if name != chosen}
        names = list(names)
        with self._without(demand.uid) as ledger:
            crowded = {
                path.partition("/")[0]: why for path, why in fence_crowded(ledger, demand).items()
            }
            left = self._restrict(ledger, demand, names)
            open_names = [name for name in names if name not in left.excluded]
            fitting = self._fitting(ledger, left.demand, open_names)
            exceeded = left.refusal or self._exceeded_quota(ledger, demand, fitting)
        return {
            name: left.excluded.get(name) or exceeded or crowded.get(name) or self._refusal(name)
            for name in names
            if exceeded or name not in fitting
        }

    def ranking(self, demand: Demand, names: Iterable[str]) -> list[list[str]]:
        """The nodes that fit in groups of equally good ones, the best first."""
        with self._without(demand.uid) as ledger:
            scores = self._score(ledger, demand, self._nodes.among(names))
        # The score of the policy ends with the name of the node, by which it breaks ties; nodes
        # that are equal but for it are equally good here.
        room = {name: score[:2] for name, score in scores.items()}
        best_first = sorted(room, key=lambda name: (room[name], name))
        groups = [list(group) for _, group in groupby(best_first, key=room.__getitem__)]
        return groups[::-1] if self._configuration.now().gpushare.prioritize == "spread" else groups

    def decide(self, demand: Demand, node: str) -> Decision:
        """The GPU of a node for a demand that holds nothing."""
        return self._decide(
            self._cluster_state.ledger(), msgspec.structs.replace(demand, nodes=frozenset([node]))
        )

    def choose(self, demand: Demand, names: Iterable[str]) -> Decision:
        """The node among these and its GPUs for a demand, as if it held nothing."""
        nodes = frozenset(self._nodes.among(names))
        with self._without(demand.uid) as ledger:
            return self._decide(ledger, msgspec.structs.replace(demand, nodes=nodes))

    def explain(self, demand: Demand, decision: Decision) -> str:
        """Why a demand is not placed, for the author of its pod."""
        return explain(self._cluster_state.ledger(), demand, asked_for(decision))

    def explain_nodes(self, demand: Demand, decision: Decision) -> dict[str, str]:
        """Name of each node that was passed over → why, for the author of the pod."""
        return explain_nodes(self._cluster_state.ledger(), demand, decision)

    def helped(self, demand: Demand, victims: Mapping[str, Victims]) -> dict[str, Victims]:
        """The nodes on which a demand fits once their victims have released their shares."""
        return {
            node: each
            for node, each in victims.items()
            if node in self._nodes and self._fits_after(demand, node, each.uids)
        }

    def has_quota(self, namespace: str) -> bool:
        """Whether a namespace has a quota."""
        return self._quotas.limit(namespace)

    def attach_indexes(self, ledger: Ledger) -> None:
        """Build the indexes that calls need, of an empty ledger."""
        indexes.attach_indexes(self._policy.decide, ledger)
        self.refresh_indexes(ledger)

    def refresh_indexes(self, ledger: Ledger) -> None:
        """Bring those up to date that catch up when they are read.

        A failure is none of a decision, and not counted: a call that it concerns says so.
        """
        with suppress(Exception), ledger.what_if():
            self._unguarded(ledger, _LEAST, ())

    def _fits_after(self, demand: Demand, node: str, victims: Iterable[str]) -> bool:
        leaving = set(victims)
        with self._without(demand.uid) as ledger:
            for vgpu in self._pool.on_node(node):
                for holder in vgpu.status.holders:
                    leaves = holder.demand in leaving or holder.pod_uid in leaving
                    if leaves and ledger.held_by(holder.demand):
                        ledger.release(holder.demand)
            fence_crowded(ledger, demand)
            return bool(self._score(ledger, demand, (node,)))

    def _fitting(self, ledger: Ledger, demand: Demand, names: Iterable[str]) -> frozenset[str]:
        return frozenset(self._score(ledger, demand, self._nodes.among(names)))

    def _restrict(self, ledger: Ledger, demand: Demand, names: Iterable[str]) -> Restriction:
        """What GPUQuotas and the model of its group leave of nodes for a demand."""
        if not (demand.group or self._quotas.limit(demand.namespace)):
            return Restriction(demand)
        asked = msgspec.structs.replace(demand, nodes=frozenset(self._nodes.among(names)))
        return self._gpu_quotas.restrict(ledger, asked)

    def _exceeded_quota(self, ledger: Ledger, demand: Demand, fitting: frozenset[str]) -> str:
        """Why a quota of the namespace refuses the demand; ``""`` if none does."""
        if not fitting or not self._quotas.limit(demand.namespace):
            return ""
        decision = self._decide(ledger, msgspec.structs.replace(demand, nodes=fitting))
        return decision.reasons[decision.field] if decision.field in FIELDS else ""

    def _refusal(self, name: str) -> str:
        if name in self._nodes:
            return NO_ROOM
        if self._nodes.exists(name):
            return OF_NO_GPUSHARE.format(name)
        return f'node "{name}" not found'

    @contextmanager
    def _without(self, uid: str) -> Iterator[Ledger]:
        """The ledger as if a demand held nothing."""
        ledger = self._cluster_state.ledger()
        with ledger.what_if():
            if ledger.held_by(uid):
                ledger.release(uid)
            yield ledger


def is_of_sharepod(pod: Raw) -> bool:
    """Whether KubeShare has created a pod for a SharePod; a policy lets nobody else say so."""
    labels = (pod.get("metadata") or {}).get("labels") or {}
    return bool(labels.get(LABEL_ROLE) == ROLE_SHAREPOD)

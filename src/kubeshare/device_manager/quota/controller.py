"""Shows in each GPUQuota what is held, and whether GPUs match.

The status is for people: programs decide from the holders of vGPUs.
"""

from collections import Counter
from collections.abc import Iterator

import msgspec

from kubeshare.api.quotas.gpu_quotas import BY_NAMESPACE, rows_of
from kubeshare.api.types import core_v1
from kubeshare.api.types.constants import LABEL_GPU_MODEL, LABEL_GPU_POOL, MANAGER_DEVICES
from kubeshare.api.types.gpu_quota import (
    CONDITION_MATCHED,
    GPUQUOTAS,
    GPULimit,
    GPUQuota,
    GPUQuotaSummary,
)
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import VGPU
from kubeshare.core.quota.index import QuotaIndex
from kubeshare.core.quota.rows import Place
from kubeshare.core.units import format_share
from kubeshare.device_manager.context import Context
from kubeshare.kube.cache.store import DELETED, Change
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.conditions import set_condition, to_raw
from kubeshare.kube.controller.controller import Controller
from kubeshare.kube.controller.resync import add_resync
from kubeshare.kube.controller.runtime import Program
from kubeshare.kube.meta import Condition, Key


class GPUQuotaController:
    """Writes the status of GPUQuotas.

    Args:
        context: the state and the services that it uses.
    """

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._informers = context.informers
        self._quotas = context.informers.gpuquotas.store
        self._cluster_state = context.cluster_state
        self._wall_clock = context.wall_clock

    def register(self, program: Program) -> None:
        """Run this controller in a program, with the watches that trigger it."""
        informers = self._informers
        controller: Controller[Key] = Controller("gpuquotas", self.reconcile)
        controller.watch(informers.gpuquotas, lambda quota: (quota.metadata.key,))
        controller.watch(informers.vgpus, self._of_holders)
        controller.watch(informers.gpunodes, self._all)
        controller.watch(informers.nodes, self._all, when=_labels_differ)
        program.add_controller(controller)
        add_resync(program, controller, self._quotas.snapshot)

    async def reconcile(self, key: Key) -> None:
        """Write the status of one GPUQuota, if it differs."""
        quota = self._quotas.by_key(key)
        if quota is None:
            return
        index = self._cluster_state.ledger().index(QuotaIndex)
        shown = summary(quota, index.used_by(key.namespace))
        conditions, changed = set_condition(
            quota.status.conditions, _matched(quota, index), self._wall_clock(), message_counts=True
        )
        if shown == quota.status.summary and not changed:
            return
        body = {
            "metadata": {"name": key.name, "uid": quota.metadata.uid},
            "status": {"summary": msgspec.to_builtins(shown), "conditions": to_raw(conditions)},
        }
        try:
            await self._client.apply(
                GPUQUOTAS,
                body,
                key.namespace,
                field_manager=MANAGER_DEVICES,
                force=True,
                subresource="status",
            )
        except NotFoundError:
            return

    def _of_holders(self, vgpu: VGPU) -> Iterator[Key]:
        for namespace in {holder.namespace for holder in vgpu.status.holders}:
            for quota in self._quotas.by_index(BY_NAMESPACE, namespace):
                yield quota.metadata.key

    def _all(self, _: object) -> Iterator[Key]:
        yield from self._quotas.snapshot()


def summary(quota: GPUQuota, held: Counter[Place]) -> GPUQuotaSummary:
    """The limits and what the namespace holds within them, as text for people."""
    limits = list(zip(quota.spec.limits, rows_of(quota), strict=True))
    used = [sum(micros for at, micros in held.items() if row.counts(at)) for _, row in limits]
    return GPUQuotaSummary(
        used=", ".join(
            f"{_title(limit)} {format_share(micros)}"
            for (limit, _), micros in zip(limits, used, strict=True)
        ),
        hard=", ".join(f"{_title(limit)} {format_share(row.micros)}" for limit, row in limits),
    )


def _title(limit: GPULimit) -> str:
    where = f"@{'+'.join(limit.pools)}" if limit.pools else ""
    return f"{f'{limit.group}:' if limit.group else ''}{limit.model or 'GPUs'}{where}"


def _matched(quota: GPUQuota, index: QuotaIndex) -> Condition:
    """Whether the cluster has GPUs for each limit."""
    places = [(kind, gpu.model) for kind in index.node_kinds() for gpu in kind.gpus]
    unmatched = [
        str(row)
        for row in rows_of(quota)
        if not any(row.covers(kind.place(model, row.group)) for kind, model in places)
    ]
    names = sorted({kind.label or model for kind, model in places} - {""})
    message = (
        f"the cluster has no {', no '.join(unmatched)}; it has {', '.join(names) or 'no GPUs'}"
    )
    return Condition(
        type=CONDITION_MATCHED,
        status="False" if unmatched else "True",
        reason=Reason.NO_SUCH_GPU if unmatched else Reason.MATCHED,
        message=message if unmatched else "the cluster has GPUs for each limit",
        observed_generation=quota.metadata.generation,
    )


def _labels_differ(change: Change[core_v1.Node]) -> bool:
    old, new = change.old, change.object
    if old is None or change.type == DELETED:
        return True
    return any(
        old.metadata.labels.get(label) != new.metadata.labels.get(label)
        for label in (LABEL_GPU_POOL, LABEL_GPU_MODEL)
    )

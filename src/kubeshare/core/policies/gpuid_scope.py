"""Limits which vGPUs an author may name by GPUID.

The check wraps any policy.

By default an author may name any vGPU, as in the published versions, and so share a GPU with
another namespace. An administrator may limit that to vGPUs without holders of other namespaces,
or forbid it.
"""

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from kubeshare.core.decision import Decision, LazyReasons
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device
from kubeshare.core.ledger.index.gpuids import GpuidIndex
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy

GpuidScope: TypeAlias = Literal["cluster", "namespace", "none"]

_FORBIDDEN = "GPUIDs cannot be chosen in this cluster (gpuidScope: none): leave it to the scheduler"


def within_gpuid_scope(policy: Policy, scope: Callable[[], GpuidScope]) -> Policy:
    """Wrap a policy with the configured scope of GPUIDs.

    Args:
        policy: decides.
        scope: ``cluster`` for no limit, ``namespace`` for vGPUs that no other namespace holds,
            ``none`` to reject every demand that names a GPUID.
    """

    def decide(ledger: Ledger, demand: Demand) -> Decision:
        limit = scope() if demand.device_id else "cluster"
        if limit == "none":
            return Decision(outcome="rejected", reasons={"id": _FORBIDDEN}, field="id")
        if limit == "cluster":
            return policy(ledger, demand)
        refused: dict[str, str] = {}
        with ledger.what_if():
            for device in ledger.index(GpuidIndex).named(demand):
                others = _others(device, demand.namespace)
                if others and not device.fenced:
                    ledger.mark(device.id, fenced=True)
                    refused[device.path] = f"held by {others}, and gpuidScope: namespace"
            decision = policy(ledger, demand)

        def reasons() -> dict[str, str]:
            return {place: refused.get(place, why) for place, why in decision.reasons.items()}

        return msgspec.structs.replace(decision, reasons=LazyReasons(reasons))

    return decide


def _others(device: Device, namespace: str) -> str:
    """How many other namespaces hold shares of a device, for people; ``""`` if none does."""
    count = len({holder.namespace for holder in device.holders} - {namespace})
    return f"{count} other namespace{'s' if count > 1 else ''}" if count else ""

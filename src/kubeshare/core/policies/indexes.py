"""Attaches the indexes of a policy to an empty ledger.

A ledger keeps its indexes up to date, so those of an empty one grow with it in small steps. An
index of a full ledger is built at once, at the first demand that needs it, which takes a third of a
second for 40 000 GPUs. So those that quotas need are attached too: a namespace may get one later.
"""

from contextlib import suppress
from typing import Final

from kubeshare.core.demand import Demand, Memory
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy
from kubeshare.core.quota.charge import ExclusiveDevices
from kubeshare.core.quota.index import QuotaIndex
from kubeshare.core.quota.namespace import HeldIndex

_ONE: Final = Memory(bytes=1)
_SAMPLES: Final = (
    Demand(uid="sample", name="sample", request_micros=1, memory=_ONE),
    Demand(uid="sample", name="sample", request_micros=1, memory=_ONE, count=2),
    Demand(uid="sample", name="sample", request_micros=1, memory=_ONE, affinity="sample"),
    Demand(uid="sample", name="sample", request_micros=1, memory=_ONE, device_id="sample"),
)
"""Demands that differ in what a policy looks up for them."""
_OF_QUOTAS: Final = (QuotaIndex, HeldIndex, ExclusiveDevices)


def attach_indexes(policy: Policy, ledger: Ledger) -> None:
    """Let a policy decide about some demands, whose answers do not matter, and count for quotas.

    Nor does a failure, such as that of another package's policy at an empty ledger: then its
    indexes are built at the first demand.
    """
    for kind in _OF_QUOTAS:
        ledger.index(kind)
    for demand in _SAMPLES:
        with suppress(Exception):
            policy(ledger, demand)

"""Keeps a policy within the quotas and slots of a namespace."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from kubeshare.core.policies import Policy
from kubeshare.core.quota.model import QuotaPolicy
from kubeshare.core.quota.namespace import NamespaceQuota, within_quotas
from kubeshare.core.quota.rows import Quota
from kubeshare.core.quota.slots import within_slots


def _none(_: str) -> tuple[()]:
    return ()


class Quotas(NamedTuple):
    """The quotas of each namespace: its ResourceQuotas, and the limits of its GPUQuotas."""

    of_namespace: Callable[[str], Sequence[NamespaceQuota]] = _none
    by_model: Callable[[str], Sequence[Quota]] = _none

    def within(self, policy: Policy) -> Policy:
        """Wrap a policy; what only a quota prevents is pending."""
        return within_quotas(self.bounded(policy), self.of_namespace)

    def bounded(self, policy: Policy) -> QuotaPolicy:
        """Wrap a policy with the GPUQuotas and the bound of slots alone."""
        return QuotaPolicy(within_slots(policy), self.by_model, "pending")

    def limit(self, namespace: str) -> bool:
        """Whether a namespace has any."""
        return bool(self.of_namespace(namespace) or self.by_model(namespace))


NO_QUOTAS: Final = Quotas()

"""Reads GPUQuotas: limits of a namespace by GPU model and pool."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from kubeshare.api.types.gpu_quota import GPULimit, GPUQuota, GPUQuotaSpec
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.quota.rows import Quota
from kubeshare.core.units import parse_gpus
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import DELETED, Change

BY_NAMESPACE: Final = "of namespace"


class GPUQuotas:
    """The GPUQuotas of namespaces.

    Args:
        reflector: watches them.
    """

    def __init__(self, reflector: Reflector[GPUQuota]) -> None:
        self._store = reflector.store
        self._store.add_index(BY_NAMESPACE, lambda quota: [quota.metadata.namespace])

    def of(self, namespace: str) -> Sequence[Quota]:
        """The limits of a namespace, sorted by the name of the GPUQuota."""
        return rows_of_all(self._store.by_index(BY_NAMESPACE, namespace))


def rows_of_all(quotas: Iterable[GPUQuota]) -> list[Quota]:
    """The limits of GPUQuotas of one namespace as the core's rows."""
    found = sorted(quotas, key=lambda quota: quota.metadata.name)
    return [row for quota in found for row in rows_of(quota)]


def rows_of(quota: GPUQuota) -> tuple[Quota, ...]:
    """The limits of one GPUQuota as the core's rows, in their order."""
    return _rows(quota.metadata.namespace, quota.metadata.name, quota.spec)


def limits_changed(change: Change[GPUQuota]) -> bool:
    """Whether the limits changed; changes of ``status`` do not count."""
    old = change.old
    return old is None or change.type == DELETED or old.spec != change.object.spec


@lru_cache(maxsize=1024)
def _rows(namespace: str, name: str, spec: GPUQuotaSpec) -> tuple[Quota, ...]:
    return tuple(
        Quota(
            namespace=namespace,
            pools=frozenset(limit.pools),
            model=limit.model,
            group=limit.group,
            micros=_micros(limit),
            name=f"GPUQuota {name}",
        )
        for limit in spec.limits
    )


def _micros(limit: GPULimit) -> int:
    """Micros of the limit; 0 for what the schema would have refused."""
    try:
        return parse_gpus(limit.gpus, "gpus")
    except InvalidValueError:
        return 0

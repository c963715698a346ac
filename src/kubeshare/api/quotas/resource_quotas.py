"""Reads ResourceQuotas that limit shares of GPUs.

An administrator limits the shares of a namespace in a ResourceQuota, beside its other limits:
``requests.kubeshare.nthu/gpu`` (guaranteed time in GPUs, such as ``1500m``) and
``requests.kubeshare.nthu/gpu-memory``. Kubernetes does not count these two, since no container
requests them: KubeShare counts them from the holders of vGPUs.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from msgspec import Struct, field

from kubeshare.core.errors import InvalidValueError
from kubeshare.core.quota.namespace import NamespaceQuota
from kubeshare.core.units import MICROS, parse_amount
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import DELETED, Change
from kubeshare.kube.meta import ObjectMeta
from kubeshare.kube.resources import RESOURCE_QUOTAS

GPUS: Final = "requests.kubeshare.nthu/gpu"
MEMORY: Final = "requests.kubeshare.nthu/gpu-memory"


class ResourceQuotaSpec(Struct, frozen=True, kw_only=True, rename="camel"):
    """The limits; with ``scopes`` or a selector they apply to some pods only."""

    hard: dict[str, str | int] = {}
    scopes: tuple[str, ...] = ()
    scope_selector: dict[str, Any] | None = None


class ResourceQuota(Struct, frozen=True, kw_only=True):
    """A ResourceQuota."""

    metadata: ObjectMeta
    spec: ResourceQuotaSpec = field(default_factory=ResourceQuotaSpec)


QUOTAS: Final = RESOURCE_QUOTAS.into(ResourceQuota)

_BY_NAMESPACE: Final = "of namespace"


class ResourceQuotas:
    """The ResourceQuotas of namespaces.

    Args:
        reflector: watches the ResourceQuotas.
    """

    def __init__(self, reflector: Reflector[ResourceQuota]) -> None:
        self._store = reflector.store
        self._store.add_index(_BY_NAMESPACE, lambda quota: [quota.metadata.namespace])

    def of(self, namespace: str) -> Sequence[NamespaceQuota]:
        """The limits of a namespace on shares of GPUs, sorted by the name of the quota."""
        return rows(self._store.by_index(_BY_NAMESPACE, namespace))


def rows(quotas: Iterable[ResourceQuota]) -> Sequence[NamespaceQuota]:
    """The limits that ResourceQuotas of one namespace set, sorted by the name of the quota."""
    found = sorted(quotas, key=lambda quota: quota.metadata.name)
    return [row for quota in found for row in _rows(quota)]


def limits_gpus(quota: ResourceQuota) -> bool:
    """Whether a quota limits shares of GPUs, for all pods of its namespace."""
    spec = quota.spec
    return bool(spec.hard.keys() & {GPUS, MEMORY}) and not (spec.scopes or spec.scope_selector)


def gpu_limits_changed(change: Change[ResourceQuota]) -> bool:
    """Whether the limits on shares of GPUs changed; changes of ``status`` do not count."""
    old, new = change.old, change.object
    known = [quota for quota in (old, new) if quota is not None and limits_gpus(quota)]
    return bool(known) and (old is None or change.type == DELETED or old.spec != new.spec)


def _rows(quota: ResourceQuota) -> Iterator[NamespaceQuota]:
    if not limits_gpus(quota):
        return
    hard = quota.spec.hard
    yield NamespaceQuota(
        name=f"ResourceQuota {quota.metadata.name}",
        micros=_amount(hard, GPUS, MICROS),
        memory_bytes=_amount(hard, MEMORY, 1),
    )


def _amount(hard: dict[str, str | int], name: str, unit: int) -> int | None:
    """A limit in units of 1/``unit``; None if absent, 0 if it cannot be parsed."""
    if name not in hard:
        return None
    try:
        return int(parse_amount(hard[name], name) * unit)
    except InvalidValueError:
        return 0

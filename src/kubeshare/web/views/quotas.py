"""Rows of the quotas that limit shares of GPUs."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from kubeshare.api.quotas.gpu_quotas import rows_of
from kubeshare.api.quotas.resource_quotas import ResourceQuota, limits_gpus, rows
from kubeshare.api.types.gpu_quota import GPUQuota
from kubeshare.core.quota.namespace import NamespaceQuota
from kubeshare.core.quota.rows import Quota
from kubeshare.core.units import format_memory, format_share


class QuotaRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """A quota of a namespace; ``limits`` and ``used`` are text, "" where it is not counted."""

    id: str
    kind: str
    namespace: str
    name: str
    limits: tuple[str, ...]
    used: str


def gpuquota_row(quota: GPUQuota) -> QuotaRow:
    """The row of a GPUQuota."""
    return _row("GPUQuota", quota, map(_limit, rows_of(quota)), quota.status.summary.used)


def resourcequota_row(quota: ResourceQuota) -> QuotaRow | None:
    """The row of a ResourceQuota; None if it does not limit shares of GPUs."""
    if not limits_gpus(quota):
        return None
    return _row("ResourceQuota", quota, _amounts(rows([quota])), "")


def _row(kind: str, quota: GPUQuota | ResourceQuota, limits: Iterable[str], used: str) -> QuotaRow:
    namespace, name = quota.metadata.namespace, quota.metadata.name
    return QuotaRow(
        id=f"{kind}/{namespace}/{name}",
        kind=kind,
        namespace=namespace,
        name=name,
        limits=tuple(limits),
        used=used,
    )


def _limit(row: Quota) -> str:
    words = [f"{format_share(row.micros)} {row.model + ' ' if row.model else ''}GPUs"]
    words += [f"in pool {' or '.join(sorted(row.pools))}"] if row.pools else []
    words += [f"for group {row.group}"] if row.group else []
    return " ".join(words)


def _amounts(found: Sequence[NamespaceQuota]) -> Iterator[str]:
    for each in found:
        if each.micros is not None:
            yield f"{format_share(each.micros)} GPUs"
        if each.memory_bytes is not None:
            yield f"{format_memory(each.memory_bytes)} of GPU memory"

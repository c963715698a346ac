"""Narrow structs of ``kubeshare.nthu/v1`` GPUQuota, as in ``manifests/crds``."""

from typing import Final

from msgspec import Struct, field

from kubeshare.api.types.constants import GROUP
from kubeshare.kube.meta import Condition, ObjectMeta
from kubeshare.kube.resources import Resource

CONDITION_MATCHED: Final = "Matched"


class GPULimit(Struct, frozen=True, kw_only=True):
    """How many GPUs may be held; absent fields cover everything. ``gpus`` is a Quantity."""

    model: str = ""
    pools: tuple[str, ...] = ()
    group: str = ""
    gpus: str | int = 0


class GPUQuotaSpec(Struct, frozen=True, kw_only=True):
    """The limits; all that cover a GPU apply."""

    limits: tuple[GPULimit, ...] = ()


class GPUQuotaSummary(Struct, frozen=True, kw_only=True):
    """The limits and what is held within them, as text for ``kubectl get``."""

    used: str = ""
    hard: str = ""


class GPUQuotaStatus(Struct, frozen=True, kw_only=True):
    """What is held, for people; decisions are made from the holders."""

    summary: GPUQuotaSummary = field(default_factory=GPUQuotaSummary)
    conditions: tuple[Condition, ...] = ()


class GPUQuota(Struct, frozen=True, kw_only=True):
    """How many GPUs of each model and pool the pods of a namespace may hold."""

    metadata: ObjectMeta
    spec: GPUQuotaSpec = field(default_factory=GPUQuotaSpec)
    status: GPUQuotaStatus = field(default_factory=GPUQuotaStatus)


GPUQUOTAS: Final = Resource(GROUP, "v1", "gpuquotas", "GPUQuota").into(GPUQuota)

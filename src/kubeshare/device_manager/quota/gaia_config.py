"""Parses the quotas of gpu-admission, Gaia's scheduler extender."""

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from kubeshare.api.types.gpu_quota import GPULimit
from kubeshare.core.errors import InvalidValueError

NAMESPACE: Final = "kube-system"
NAME: Final = "gpuquota"
KEY: Final = "gpu_quota"

_Gpus = Annotated[int, msgspec.Meta(ge=0, le=100_000)]


class _OfNamespace(msgspec.Struct, frozen=True):
    """The GPUs of each model that a namespace may hold, and the pools; none is any pool."""

    quota: dict[str, _Gpus] = {}
    pool: list[str] = []


def parse(text: str) -> Mapping[str, tuple[GPULimit, ...]]:
    """The limits of each namespace.

    A namespace that is listed without a model may hold nothing; one that is not listed is free.

    Args:
        text: JSON ``{namespace: {"quota": {model: GPUs}, "pool": [names]}}``.

    Raises:
        InvalidValueError: it is no such text.
    """
    try:
        found = msgspec.json.decode(text, type=dict[str, _OfNamespace])
    except msgspec.DecodeError as error:
        raise InvalidValueError(f"data[{KEY}]", str(error)) from None
    return {namespace: _limits(of) for namespace, of in found.items()}


def _limits(of: _OfNamespace) -> tuple[GPULimit, ...]:
    pools = tuple(sorted(set(of.pool)))
    models = of.quota or {"": 0}
    return tuple(
        GPULimit(model=model, pools=pools, gpus=gpus) for model, gpus in sorted(models.items())
    )

"""SharePods: ``spec.gpu`` and the equivalent published ``kubeshare/…`` annotations."""

from collections.abc import Mapping
from typing import Any, Final

from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.dialects.containers import check_users, sharing_containers
from kubeshare.dialects.pod_spec import check_form
from kubeshare.dialects.requester.ref import RequesterRef
from kubeshare.dialects.share_fields import (
    Spellings,
    mapping,
    present,
    read_gpuid,
    without_own_gpuid,
)
from kubeshare.dialects.shares import read_list

_SHARES: Final = "spec.gpu.shares"

_NOT_REQUESTING: Final = frozenset({"attempt", "idGiven", "nodeGiven", "setAside", "containers"})
"""Fields that request no GPU: those KubeShare writes itself, and the list of containers."""


def demand_of(sharepod: Mapping[str, Any]) -> Demand | None:
    """The demand of a SharePod, an object from the API server; None if it requests no GPU.

    If ``spec.nodeName`` is set, the demand is restricted to that node.

    Raises:
        InvalidValueError: a value is not acceptable, one of the annotations that are required
            together is missing, both spellings differ, or the spec is no PodSpec.
    """
    metadata = mapping(sharepod.get("metadata"), "metadata")
    spec = mapping(sharepod.get("spec"), "spec")
    gpu = present(mapping(spec.get("gpu"), "spec.gpu"))
    annotations = present(mapping(metadata.get("annotations"), "metadata.annotations"))
    decided, given = bool(gpu.get("attempt")), bool(gpu.get("idGiven"))
    annotations = dict(without_own_gpuid(annotations, decided=decided, given=given))
    spellings = Spellings(gpu, "spec.gpu.", annotations)
    requests = bool(gpu.keys() - _NOT_REQUESTING)
    if not requests and not spellings.published():
        return None
    spellings.check_amounts_are_complete(needed=not requests)
    check_form(spec)
    node = spec.get("nodeName")
    shares = read_list(gpu["shares"], _SHARES) if "shares" in gpu else ()
    check_users(spec, shares, lambda share: f"{_SHARES}[{share.name}].containers")
    sharing_containers(spec, shares)
    demand = spellings.demand(
        RequesterRef.of(metadata),
        nodes=frozenset([node]) if node else None,
        attempt=spellings.read("attempt", _attempt) or 0,
        shares=shares,
    )
    _check_ids(gpu.get("ids"), demand, node, decided=decided)
    spellings.check_memory(demand)
    return demand


def _check_ids(value: object, demand: Demand, node: object, *, decided: bool) -> None:
    """Check ``spec.gpu.ids``: one id for each GPU, and only with ``spec.nodeName``."""
    field = "spec.gpu.ids"
    if value is None:
        return
    if not isinstance(value, list):
        raise InvalidValueError(field, f"{value!r} is not a list")
    ids = [read_gpuid(item, field) for item in value]
    least, most = demand.different_gpus(), len(demand.per_gpu())
    if not least <= len(set(ids)) <= most:
        raise InvalidValueError(field, f"{len(set(ids))} GPUs are listed, and count says {most}")
    if demand.shares and not decided:
        raise InvalidValueError(field, "the scheduler chooses the GPUs of several shares")
    if not node:
        raise InvalidValueError(field, "the node of the GPUs belongs in spec.nodeName")


def _attempt(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidValueError(name, f"{value!r} is not a number of attempts")
    return value

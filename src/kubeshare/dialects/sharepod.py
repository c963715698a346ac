"""SharePods: ``spec.gpu`` and the published ``kubeshare/…`` annotations, which say the same."""

from collections.abc import Mapping
from typing import Any, Final

from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.dialects.containers import sharing_containers
from kubeshare.dialects.pod_spec import check_form
from kubeshare.dialects.share_fields import (
    RequesterRef,
    Spellings,
    mapping,
    present,
    read_count,
    read_gpuid,
)

_NOTES: Final = frozenset({"attempt", "idGiven", "nodeGiven", "setAside", "containers"})
"""What asks for nothing: what KubeShare's programs write themselves, and which containers share."""


def demand_of(sharepod: Mapping[str, Any]) -> Demand | None:
    """What a SharePod asks of a GPU.

    Args:
        sharepod: the object as the API server gives it.

    Returns:
        the demand, on the node of ``spec.nodeName`` where that is set; None when nothing
        of a GPU is asked.

    Raises:
        InvalidValueError: a value is not acceptable, one of the annotations that come
            together is missing, the two spellings differ, or its spec is no PodSpec.
    """
    metadata = mapping(sharepod.get("metadata"), "metadata")
    spec = mapping(sharepod.get("spec"), "spec")
    gpu = present(mapping(spec.get("gpu"), "spec.gpu"))
    annotations = present(mapping(metadata.get("annotations"), "metadata.annotations"))
    spellings = Spellings(gpu, "spec.gpu.", annotations)
    asks = bool(gpu.keys() - _NOTES)
    if not asks and not spellings.published():
        return None
    spellings.check_amounts_come_together(needed=not asks)
    check_form(spec)
    sharing_containers(spec)
    node = spec.get("nodeName")
    _check_ids(gpu.get("ids"), spellings.read("count", read_count) or 1, node)
    return spellings.demand(
        RequesterRef.of(metadata),
        nodes=frozenset([node]) if node else None,
        attempt=spellings.read("attempt", _attempt) or 0,
    )


def _check_ids(value: object, count: int, node: object) -> None:
    """Several GPUs are listed when they and their node are known, one name for each of them."""
    field = "spec.gpu.ids"
    if value is None:
        return
    if not isinstance(value, list):
        raise InvalidValueError(field, f"{value!r} is not a list")
    ids = [read_gpuid(item, field) for item in value]
    if len(set(ids)) != count:
        raise InvalidValueError(field, f"{len(set(ids))} GPUs are listed, and count says {count}")
    if not node:
        raise InvalidValueError(field, "the node of the GPUs belongs in spec.nodeName")


def _attempt(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidValueError(name, f"{value!r} is not a number of attempts")
    return value

"""Plain pods: ``kubeshare.nthu/…`` and published annotations, and ``sharedgpu/…`` labels.

A pod declares its share in its metadata, so the template of any workload controller can carry
it. Three spellings are equivalent: ``kubeshare.nthu/…`` annotations, KubeShare's published
annotations, and the labels of its second version (:mod:`kubeshare.dialects.sharedgpu`). The pods
of other systems declare their shares in their containers (:mod:`kubeshare.dialects.families`). The
containers that use the share request ``kubeshare.nthu/vgpu``, and are not parsed here.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from kubeshare.core.demand import Demand, Share
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.units import GI, MICROS
from kubeshare.dialects import families, sharedgpu
from kubeshare.dialects.containers import check_users
from kubeshare.dialects.requester.ref import RequesterRef
from kubeshare.dialects.share_fields import (
    POD_PREFIX,
    Spellings,
    mapping,
    present,
    read_label,
    without_own_gpuid,
)
from kubeshare.dialects.shares import (
    SHARE,
    check_together,
    of_several_gpus,
    parse_request,
    read_annotation,
    read_flag,
)

PREFIX: Final = POD_PREFIX

FIELDS: Final = (
    *("request", "limit", "limitAlone", "latencySensitive", "memory", "count", "id"),
    *("affinity", "antiAffinity", "exclusion", "model"),
)
"""The annotations, without their prefix."""
REQUESTING: Final = ("request", "limit", "limitAlone", "memory", "count", "id")
"""Annotations that request a GPU by themselves; the others say which one, and how."""
DECIDED: Final = PREFIX + "gpuids"
"""The annotation by which the scheduler records its decision."""


def demand_of(
    pod: Mapping[str, Any], models: Iterable[str] = (), *, unit: int = GI
) -> Demand | None:
    """The demand of a plain pod; None if it requests no GPU.

    Args:
        pod: the object from the API server.
        models: the cluster's GPU models; a label has dashes in place of their spaces.
        unit: the bytes of a unit of ``aliyun.com/gpu-mem``.

    Raises:
        InvalidValueError: a value is not acceptable, one of the annotations that are required
            together is missing, or two spellings differ.
    """
    if (of_family := families.demand_of(pod, unit)) is not None:
        return of_family
    metadata = mapping(pod.get("metadata"), "metadata")
    annotations = present(mapping(metadata.get("annotations"), "metadata.annotations"))
    annotations = dict(without_own_gpuid(annotations, decided=DECIDED in annotations, given=False))
    ours = {field: annotations[PREFIX + field] for field in FIELDS if PREFIX + field in annotations}
    spellings = Spellings(ours, PREFIX, annotations)
    shares = _shares(annotations)
    check_users(mapping(pod.get("spec"), "spec"), shares, lambda share: SHARE + share.name)
    requests = bool(shares) or any(field in ours for field in REQUESTING)
    labelled = sharedgpu.read(pod, models)
    if not requests and not spellings.published():
        return _constrained(labelled.demand, spellings) if labelled else None
    if labelled is not None:
        raise InvalidValueError(
            sharedgpu.LIMIT, "is given beside annotations that ask for a share: give one of them"
        )
    spellings.check_amounts_are_complete(needed=not requests)
    demand = spellings.demand(RequesterRef.of(metadata), shares=shares)
    spellings.check_memory(demand)
    return demand


def listed_shares(pod: Mapping[str, Any]) -> tuple[Share, ...]:
    """The different shares that a pod's containers or annotations ask for; else none.

    Args:
        pod: the metadata, and the containers with their limits.

    Raises:
        InvalidValueError: a value is not acceptable.
    """
    family = families.family_of(mapping(pod.get("spec"), "spec"))
    if family is not None:
        return family.shares_of(pod)
    annotations = mapping(pod["metadata"].get("annotations"), "metadata.annotations")
    shares = _shares(annotations)
    request = annotations.get(PREFIX + "request")
    if shares or request is None:
        return shares
    request_micros = parse_request(request, PREFIX + "request")
    return of_several_gpus(request_micros).get("shares", ()) if request_micros > MICROS else ()


def _constrained(demand: Demand, spellings: Spellings) -> Demand:
    """The demand of ``sharedgpu/…`` labels with the constraints of the pod's annotations.

    KubeShare's second version has no labels for affinity, anti-affinity and exclusion.

    Raises:
        InvalidValueError: a value is not acceptable, or two spellings differ.
    """
    model = spellings.read("model", read_label) or ""
    if model and demand.model and model.replace(" ", "-") != demand.model.replace(" ", "-"):
        raise InvalidValueError(
            PREFIX + "model",
            f"{model} differs from {demand.model} in {sharedgpu.MODEL}: "
            "give one, or the same value",
        )
    return msgspec.structs.replace(
        demand,
        model=model or demand.model,
        affinity=spellings.read("affinity", read_label) or "",
        anti_affinity=spellings.read("antiAffinity", read_label) or "",
        exclusion=spellings.read("exclusion", read_label) or "",
        latency_sensitive=spellings.read("latencySensitive", read_flag) or False,
    )


def _shares(annotations: Mapping[str, Any]) -> tuple[Share, ...]:
    """The different shares, sorted by name: annotations have no order."""
    keys = sorted(key for key in annotations if key.startswith(SHARE))
    found = [read_annotation(key.removeprefix(SHARE), annotations[key], key) for key in keys]
    return check_together(found, SHARE + "NAME")

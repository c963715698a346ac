"""Plain pods: annotations ``kubeshare.nthu/…``, the published ones, or the second version's labels.

A pod says its share in its own metadata, so the template of any workload controller can
carry it. Three spellings mean the same: our annotations, KubeShare's published ones, and
the ``sharedgpu/…`` labels of its second version (:mod:`kubeshare.dialects.sharedgpu`).
Which containers of the pod share is not read here: they ask for ``kubeshare.nthu/vgpu``.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.dialects import sharedgpu
from kubeshare.dialects.share_fields import RequesterRef, Spellings, mapping, present

PREFIX: Final = "kubeshare.nthu/"

FIELDS: Final = (
    *("request", "limit", "memory", "count", "id"),
    *("affinity", "antiAffinity", "exclusion", "model"),
)
"""The annotations that are read, without their prefix."""
ASKING: Final = ("request", "limit", "memory", "count", "id")
"""Those of which one is enough to ask for a GPU; the others only say which."""


def demand_of(pod: Mapping[str, Any], models: Iterable[str] = ()) -> Demand | None:
    """What a plain pod asks of a GPU.

    Args:
        pod: the object as the API server gives it.
        models: the cluster's GPU models; a label has dashes for their spaces.

    Returns:
        None for a pod that asks for nothing of a GPU.

    Raises:
        InvalidValueError: a value is not acceptable, one of those that come together is
            missing, or two spellings differ.
    """
    metadata = mapping(pod.get("metadata"), "metadata")
    annotations = present(mapping(metadata.get("annotations"), "metadata.annotations"))
    ours = {field: annotations[PREFIX + field] for field in FIELDS if PREFIX + field in annotations}
    spellings = Spellings(ours, PREFIX, annotations)
    asks = any(field in ours for field in ASKING)
    labelled = sharedgpu.read(pod, models)
    if not asks and not spellings.published():
        return labelled.demand if labelled else None
    if labelled is not None:
        raise InvalidValueError(
            sharedgpu.LIMIT, "is given beside annotations that ask for a share: give one of them"
        )
    spellings.check_amounts_come_together(needed=not asks)
    return spellings.demand(RequesterRef.of(metadata))

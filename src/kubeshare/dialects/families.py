"""The manifest families whose pods ask for GPUs in their containers.

Each has resources, which the node agent counts; a policy, under the name of the family in
:mod:`kubeshare.core.policies.by_family`; and annotations, which describe a placed pod to programs
written for the published system. A pod is of at most one family.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from kubeshare.core.demand import Demand, Share
from kubeshare.core.errors import InvalidValueError
from kubeshare.dialects import gpushare, vcuda
from kubeshare.dialects.legacy_placement import (
    Reader,
    gpushare_placement_of,
    vcuda_placement_of,
)
from kubeshare.dialects.pod_spec import check_form
from kubeshare.dialects.share_fields import mapping
from kubeshare.dialects.write_back import (
    GPUSHARE_ANNOTATIONS,
    GPUSHARE_ASSIGNED,
    VCUDA_ASSIGNED,
    PlacedGpu,
    gpushare_placement,
    is_of_vcuda,
    vcuda_placement,
)


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """A pod with its GPUs.

    Attributes:
        spec: the PodSpec.
        gpus: the GPUs.
        node: the name of their node.
        unit: the bytes of a unit of ``aliyun.com/gpu-mem``.
        now: when they were chosen, aware.
    """

    spec: Mapping[str, Any]
    gpus: Sequence[PlacedGpu]
    node: str
    unit: int
    now: datetime


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """A manifest family.

    Attributes:
        name: its name, as in the label of nodes.
        resources: what its containers ask for; the node agent of a dedicated node offers it.
        demand_of: reads a pod that names one of them, with the unit of ``aliyun.com/gpu-mem``.
        shares_of: returns the share of each container of a pod, where each asks for itself.
        annotations_of: returns the annotations of a placed pod.
        is_annotation: whether a key is one of these.
        assigned: the one of them that is ``true`` from the first container on.
        legacy_placement_of: reads where the published system placed a pod.
        node_labels: the labels, key and value, by which the published system selects its nodes.
    """

    name: str
    resources: tuple[str, ...]
    demand_of: Callable[[Mapping[str, Any], int], Demand | None]
    shares_of: Callable[[Mapping[str, Any]], tuple[Share, ...]]
    annotations_of: Callable[[Placed], dict[str, str]]
    is_annotation: Callable[[str], bool]
    assigned: str
    legacy_placement_of: Reader
    node_labels: tuple[tuple[str, str], ...]

    def is_named_in(self, limits: Iterable[Iterable[str]]) -> bool:
        """Whether the limits of some container name one of the resources."""
        return any(name in limit for limit in limits for name in self.resources)


GPUSHARE: Final = Family(
    name=gpushare.FAMILY,
    resources=(gpushare.GPU_MEMORY,),
    demand_of=gpushare.demand_of,
    shares_of=lambda _: (),
    annotations_of=lambda pod: gpushare_placement(pod.spec, pod.gpus, pod.unit, pod.now),
    is_annotation=GPUSHARE_ANNOTATIONS.__contains__,
    assigned=GPUSHARE_ASSIGNED,
    legacy_placement_of=gpushare_placement_of,
    # The second is that of Alibaba Cloud, for nodes that isolate memory.
    node_labels=(("gpushare", "true"), ("cgpu", "true")),
)
VCUDA: Final = Family(
    name=vcuda.FAMILY,
    resources=(vcuda.CORE, vcuda.MEMORY),
    demand_of=lambda pod, _: vcuda.demand_of(pod),
    shares_of=vcuda.container_shares,
    annotations_of=lambda pod: vcuda_placement(pod.spec, pod.gpus, pod.node, pod.now),
    is_annotation=is_of_vcuda,
    assigned=VCUDA_ASSIGNED,
    legacy_placement_of=vcuda_placement_of,
    node_labels=(("nvidia-device-enable", "enable"),),
)
FAMILIES: Final = (GPUSHARE, VCUDA)

RESOURCES: Final = frozenset(name for family in FAMILIES for name in family.resources)
"""The resources of all families."""


def family_of(spec: Mapping[str, Any]) -> Family | None:
    """The family whose resource a container of a PodSpec names; None if none does.

    Raises:
        InvalidValueError: the containers name resources of two families.
    """
    limits = [
        (container.get("resources") or {}).get("limits") or {}
        for field in ("initContainers", "containers")
        for container in spec.get(field) or ()
    ]
    found = [family for family in FAMILIES if family.is_named_in(limits)]
    if len(found) > 1:
        names = " and ".join(family.resources[0] for family in found)
        raise InvalidValueError("spec.containers", f"ask for {names}: a pod asks for one of them")
    return found[0] if found else None


def demand_of(pod: Mapping[str, Any], unit: int, only: Family | None = None) -> Demand | None:
    """The demand of a pod of a family; None if it is of none.

    Args:
        pod: the object from the API server.
        unit: the bytes of a unit of ``aliyun.com/gpu-mem``.
        only: pods of other families than this one have no demand; None for any family.

    Raises:
        InvalidValueError: a value is not acceptable.
    """
    spec = mapping(pod.get("spec"), "spec")
    check_form(spec)
    family = family_of(spec)
    return family.demand_of(pod, unit) if family is not None and only in (None, family) else None

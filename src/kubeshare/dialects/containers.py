"""Which containers of a pod share its part of a GPU.

Those that ask for ``kubeshare.nthu/vgpu`` themselves; where none does, those that are
named; where none is named, all but the init containers. A pod that carries its share in
annotations gets the same from the API server (``deploy/policies/plain-pods.yaml``).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubeshare.core.errors import InvalidValueError
from kubeshare.dialects.share_fields import mapping

VGPU_RESOURCE: Final = "kubeshare.nthu/vgpu"
CONTAINER_FIELDS: Final = ("containers", "initContainers")
FIELD: Final = "spec.gpu.containers"


def sharing_containers(spec: Mapping[str, Any]) -> frozenset[str]:
    """The names of the containers that share.

    Args:
        spec: of a SharePod.

    Raises:
        InvalidValueError: one is named that there is not.
    """
    containers = tuple(_limits(spec))
    asking = frozenset(name for name, limits in containers if VGPU_RESOURCE in limits)
    named = mapping(spec.get("gpu"), "spec.gpu").get("containers") or ()
    known = {name for name, _ in containers}
    for name in named:
        if name not in known:
            there = ", ".join(sorted(known))
            raise InvalidValueError(FIELD, f"there is no container {name}; there are {there}")
    every = (str(container.get("name", "")) for container in spec.get("containers") or ())
    return asking or frozenset(named) or frozenset(every)


def _limits(spec: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each container's name, and the limits of its resources."""
    for kind in CONTAINER_FIELDS:
        for container in spec.get(kind) or ():
            resources = container.get("resources") or {}
            yield str(container.get("name", "")), resources.get("limits") or {}

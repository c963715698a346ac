"""Which containers of a SharePod use its GPU share.

These are the containers that request ``kubeshare.nthu/vgpu`` themselves; if none does, the
containers in ``spec.gpu.containers``; if none is listed, all but the init containers. Plain pods
with annotations get the same from the API server (``deploy/policies/plain-pods.yaml``).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubeshare.core.errors import InvalidValueError
from kubeshare.dialects.share_fields import mapping

VGPU_RESOURCE: Final = "kubeshare.nthu/vgpu"
IMPLICIT_VGPU_RESOURCE: Final = "deviceclass.resource.kubernetes.io/vgpu.kubeshare.nthu"
"""The name that Kubernetes itself gives the extended resource of the same DeviceClass."""
VGPU_RESOURCES: Final = (VGPU_RESOURCE, IMPLICIT_VGPU_RESOURCE)
"""All names of the resource; each policy in ``deploy/policies`` that knows one knows all."""
CONTAINER_FIELDS: Final = ("containers", "initContainers")
FIELD: Final = "spec.gpu.containers"


def sharing_containers(spec: Mapping[str, Any]) -> frozenset[str]:
    """The names of the containers that use the GPU share, from the spec of a SharePod.

    Raises:
        InvalidValueError: ``spec.gpu.containers`` names an unknown container, or a container
            requests the resource by its implicit name, which quotas count separately.
    """
    containers = tuple(_resources(spec))
    for name, resources in containers:
        if IMPLICIT_VGPU_RESOURCE in resources:
            raise InvalidValueError(
                "spec.containers",
                f"container {name} asks for {IMPLICIT_VGPU_RESOURCE}: "
                f"ask for {VGPU_RESOURCE}: 1 instead",
            )
    requesting = frozenset(name for name, resources in containers if VGPU_RESOURCE in resources)
    named = mapping(spec.get("gpu"), "spec.gpu").get("containers") or ()
    known = {name for name, _ in containers}
    for name in named:
        if name not in known:
            names = ", ".join(sorted(known))
            raise InvalidValueError(FIELD, f"there is no container {name}; there are {names}")
    every = (str(container.get("name", "")) for container in spec.get("containers") or ())
    return requesting or frozenset(named) or frozenset(every)


def container_names(spec: Mapping[str, Any]) -> frozenset[str]:
    """The names of all containers of a pod, init containers included."""
    return frozenset(name for name, _ in _resources(spec))


def _resources(spec: Mapping[str, Any]) -> Iterator[tuple[str, frozenset[str]]]:
    """Name of each container, and of the resources in its limits and requests."""
    for kind in CONTAINER_FIELDS:
        for container in spec.get(kind) or ():
            resources = container.get("resources") or {}
            amounts = (resources.get("limits") or {}, resources.get("requests") or {})
            yield str(container.get("name", "")), frozenset().union(*amounts)

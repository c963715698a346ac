"""Which containers of a SharePod use its GPU share.

These are the containers that request ``kubeshare.nthu/vgpu`` themselves; if none does, the
containers in ``spec.gpu.containers``; if none is listed, all but the init containers. Of several
shares, each names its containers in the same way. Plain pods with annotations get the same from
the API server (``manifests/policies/plain-pods.yaml``).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from kubeshare.core.demand import Share
from kubeshare.core.errors import InvalidValueError
from kubeshare.dialects.amounts import Amounts
from kubeshare.dialects.share_fields import mapping

VGPU_RESOURCE: Final = "kubeshare.nthu/vgpu"
IMPLICIT_VGPU_RESOURCE: Final = "deviceclass.resource.kubernetes.io/vgpu.kubeshare.nthu"
"""The name that Kubernetes itself gives the extended resource of the same DeviceClass."""
VGPU_RESOURCES: Final = (VGPU_RESOURCE, IMPLICIT_VGPU_RESOURCE)
"""All names of the resource; each policy in ``manifests/policies`` that knows one knows all."""
CONTAINER_FIELDS: Final = ("containers", "initContainers")
FIELD: Final = "spec.gpu.containers"


def sharing_containers(spec: Mapping[str, Any], shares: Iterable[Share] = ()) -> frozenset[str]:
    """The names of the containers that use the GPU share, from the spec of a SharePod.

    Args:
        spec: the spec.
        shares: the different shares of its demand.

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
    shares = tuple(shares)
    in_shares = {name for share in shares for name in share.containers}
    named = in_shares or mapping(spec.get("gpu"), "spec.gpu").get("containers") or ()
    known = {name for name, _ in containers}
    for name in named:
        if name not in known:
            names = ", ".join(sorted(known))
            raise InvalidValueError(FIELD, f"there is no container {name}; there are {names}")
    every = (str(container.get("name", "")) for container in spec.get("containers") or ())
    if in_shares and not all(share.containers for share in shares):
        return (requesting or frozenset(every)) | in_shares
    return requesting | in_shares or frozenset(named) or frozenset(every)


def check_users(
    spec: Mapping[str, Any], shares: Iterable[Share], field: Callable[[Share], str]
) -> None:
    """Check that a pod has the containers that its shares name, and no other that uses one.

    Args:
        spec: the PodSpec.
        shares: the different shares of its demand.
        field: returns the name of a share's containers in the manifest.

    Raises:
        InvalidValueError: a container is unknown, or asks for a GPU and uses no share.
    """
    shares = tuple(shares)
    if not shares:
        return
    containers = dict(_resources(spec))
    for share in shares:
        for name in share.containers:
            if name not in containers:
                raise InvalidValueError(
                    field(share),
                    f"there is no container {name}; there are {', '.join(sorted(containers))}",
                )
    if not all(share.containers for share in shares):
        return
    users = {name for share in shares for name in share.containers}
    for name, resources in containers.items():
        if VGPU_RESOURCE in resources and name not in users:
            raise InvalidValueError(
                "spec.containers", f"container {name} asks for {VGPU_RESOURCE} and uses no share"
            )


def share_of(container: str, amounts: Amounts) -> Share:
    """The share of one container, in a family whose containers ask each for itself.

    Args:
        container: its name, which is also that of the share.
        amounts: what it asks for, in the short form.
    """
    return Share(
        name=container,
        containers=(container,),
        request_micros=amounts["request_micros"],
        limit_micros=amounts["limit_micros"],
        memory=amounts["memory"],
        count=amounts.get("count", 1),
        proportional=amounts.get("proportional", False),
    )


def asking_containers(
    spec: Mapping[str, Any], resources: Iterable[str]
) -> Iterator[tuple[str, dict[str, Any], dict[str, str]]]:
    """The containers whose limits have one of these resources, without init containers.

    Yields:
        the name of a container, its amounts of these resources, and the name of each field.
    """
    wanted = tuple(resources)
    for container in spec.get("containers") or ():
        name = str(container.get("name", ""))
        limits = (container.get("resources") or {}).get("limits") or {}
        if asked := {resource: limits[resource] for resource in wanted if resource in limits}:
            path = f"spec.containers[{name}].resources.limits"
            yield name, asked, {resource: f"{path}[{resource}]" for resource in wanted}


def asks_for_vgpu(spec: Mapping[str, Any]) -> bool:
    """Whether a container of a pod asks for the resource by which a share is attached."""
    return any(VGPU_RESOURCE in resources for _, resources in _resources(spec))


def _resources(spec: Mapping[str, Any]) -> Iterator[tuple[str, frozenset[str]]]:
    """Name of each container, and of the resources in its limits and requests."""
    for kind in CONTAINER_FIELDS:
        for container in spec.get(kind) or ():
            resources = container.get("resources") or {}
            amounts = (resources.get("limits") or {}, resources.get("requests") or {})
            yield str(container.get("name", "")), frozenset().union(*amounts)

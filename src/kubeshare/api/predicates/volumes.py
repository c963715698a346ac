"""PersistentVolumeClaims, volumes and classes: the fields that restrict nodes."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct, field

from kubeshare.api.predicates.pod_requests import thousandths
from kubeshare.kube.meta import ObjectMeta
from kubeshare.kube.resources import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    Raw,
)

_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
_STORAGE: Final = "storage"


class Requests(Struct, frozen=True, kw_only=True):
    """``requests``: a Quantity for each resource."""

    requests: dict[str, str | int] = {}


class VolumeClaimSpec(Struct, frozen=True, kw_only=True, rename="camel"):
    """``volume_name`` is ``""`` until the claim is bound."""

    volume_name: str = ""
    storage_class_name: str = ""
    access_modes: tuple[str, ...] = ()
    resources: Requests = field(default_factory=Requests)


class VolumeClaim(Struct, frozen=True, kw_only=True):
    """A PersistentVolumeClaim."""

    metadata: ObjectMeta
    spec: VolumeClaimSpec = field(default_factory=VolumeClaimSpec)


class VolumeAffinity(Struct, frozen=True, kw_only=True):
    """The nodes that can access a volume, in the form of a pod's required node affinity."""

    required: dict[str, Any] | None = None


class VolumeClaimReference(Struct, frozen=True, kw_only=True):
    """The claim for which a volume is reserved."""

    namespace: str = ""
    name: str = ""


class VolumeSpec(Struct, frozen=True, kw_only=True, rename="camel"):
    """Without an affinity every node can access the volume."""

    node_affinity: VolumeAffinity = field(default_factory=VolumeAffinity)
    storage_class_name: str = ""
    access_modes: tuple[str, ...] = ()
    capacity: dict[str, str | int] = {}
    claim_ref: VolumeClaimReference | None = None


class VolumeStatus(Struct, frozen=True, kw_only=True):
    """``phase`` is ``Available`` if no claim is bound to it."""

    phase: str = ""


class Volume(Struct, frozen=True, kw_only=True):
    """A PersistentVolume."""

    metadata: ObjectMeta
    spec: VolumeSpec = field(default_factory=VolumeSpec)
    status: VolumeStatus = field(default_factory=VolumeStatus)

    @property
    def required(self) -> Raw:
        """A PodSpec with the node affinity of the volume; empty if there is none."""
        terms = self.spec.node_affinity.required
        return {} if terms is None else _requiring(terms)

    def suits(self, claim: VolumeClaim) -> bool:
        """Whether an unbound claim may be bound to this volume."""
        reserved, requested = self.spec.claim_ref, claim.spec
        return (
            self.status.phase == "Available"
            and self.spec.storage_class_name == requested.storage_class_name
            and set(requested.access_modes) <= set(self.spec.access_modes)
            and thousandths(self.spec.capacity.get(_STORAGE, 0))
            >= thousandths(requested.resources.requests.get(_STORAGE, 0))
            and (reserved is None or (reserved.namespace, reserved.name) == claim.metadata.key)
        )


class StorageClass(Struct, frozen=True, kw_only=True, rename="camel"):
    """How claims of a class are bound to volumes."""

    metadata: ObjectMeta
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[dict[str, Any], ...] = ()

    @property
    def waits_for_consumer(self) -> bool:
        """Claims are bound once kube-scheduler has chosen the node of a pod."""
        return self.volume_binding_mode == "WaitForFirstConsumer"

    @property
    def is_static(self) -> bool:
        """Volumes are created by an administrator, for example on the disks of nodes."""
        return self.provisioner == _NO_PROVISIONER

    @property
    def required(self) -> Raw:
        """A PodSpec with the node affinity of its future volumes; empty if there is none."""
        terms = [
            {
                "matchExpressions": [
                    {**each, "operator": "In"} for each in term.get("matchLabelExpressions") or ()
                ]
            }
            for term in self.allowed_topologies
        ]
        return _requiring({"nodeSelectorTerms": terms}) if terms else {}


VOLUME_CLAIMS: Final = PERSISTENT_VOLUME_CLAIMS.into(VolumeClaim)
VOLUMES: Final = PERSISTENT_VOLUMES.into(Volume)
CLASSES: Final = STORAGE_CLASSES.into(StorageClass)


def volume_claims_of(name: str, pod_spec: Mapping[str, Any]) -> Iterator[str]:
    """The names of the claims that a pod uses, in its namespace.

    Args:
        name: the name of the pod, from which the names of its ephemeral claims follow.
        pod_spec: the PodSpec of the manifest.
    """
    for volume in pod_spec.get("volumes") or ():
        if claim := volume.get("persistentVolumeClaim"):
            yield claim["claimName"]
        elif "ephemeral" in volume:
            yield f"{name}-{volume['name']}"


def _requiring(selector: Raw) -> Raw:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": selector}
    return {"affinity": {"nodeAffinity": required}}

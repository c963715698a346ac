"""PersistentVolumeClaims and PersistentVolumes, as far as they say where a pod may run."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct, field

from kubeshare.kube.meta import ObjectMeta
from kubeshare.kube.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES


class ClaimSpec(Struct, frozen=True, kw_only=True, rename="camel"):
    """``volume_name`` is ``""`` until the claim is bound."""

    volume_name: str = ""


class Claim(Struct, frozen=True, kw_only=True):
    """A PersistentVolumeClaim."""

    metadata: ObjectMeta
    spec: ClaimSpec = field(default_factory=ClaimSpec)


class VolumeAffinity(Struct, frozen=True, kw_only=True):
    """The nodes that reach a volume, as a pod's node affinity requires them."""

    required: dict[str, Any] | None = None


class VolumeSpec(Struct, frozen=True, kw_only=True, rename="camel"):
    """Without an affinity every node reaches the volume."""

    node_affinity: VolumeAffinity = field(default_factory=VolumeAffinity)


class Volume(Struct, frozen=True, kw_only=True):
    """A PersistentVolume."""

    metadata: ObjectMeta
    spec: VolumeSpec = field(default_factory=VolumeSpec)

    @property
    def required(self) -> dict[str, Any]:
        """A PodSpec that requires of nodes what the volume does; empty for nothing."""
        terms = self.spec.node_affinity.required
        if terms is None:
            return {}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        return {"affinity": {"nodeAffinity": required}}


CLAIMS: Final = PERSISTENT_VOLUME_CLAIMS.into(Claim)
VOLUMES: Final = PERSISTENT_VOLUMES.into(Volume)


def claims_of(name: str, pod_spec: Mapping[str, Any]) -> Iterator[str]:
    """The names of the claims that a pod uses, in its namespace.

    Args:
        name: the pod's, after which its own claims are called.
        pod_spec: a PodSpec as a manifest has it.
    """
    for volume in pod_spec.get("volumes") or ():
        if claim := volume.get("persistentVolumeClaim"):
            yield claim["claimName"]
        elif "ephemeral" in volume:
            yield f"{name}-{volume['name']}"

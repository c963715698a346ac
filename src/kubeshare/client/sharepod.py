"""SharePods as a program writes and reads them."""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from kubeshare.api.types.constants import GROUP
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import SHAREPODS, AllocatedGPU
from kubeshare.api.types.v1 import SharePod as View
from kubeshare.core.errors import InvalidValueError
from kubeshare.dialects.sharepod import demand_of
from kubeshare.kube.conditions import find_condition
from kubeshare.kube.meta import Condition

_DIGITS: Final = 6
"""Of a share: millionths of a GPU."""


class GPU(msgspec.Struct, frozen=True, kw_only=True):
    """The share of a GPU that a SharePod asks for (``spec.gpu``); None leaves a field out.

    Attributes:
        request: of the GPU's time, guaranteed: 0 to 1, or the number of whole GPUs and a rest.
        limit: of the GPU's time, at most; 0 to 1.
        latency_sensitive: whether its launches are served promptly, within its request.
        memory: a quantity (``"4Gi"``), a number of bytes, or a fraction of the GPU up to 1.
        affinity: use the GPU with this label.
        anti_affinity: share with no holder of the same label.
        exclusion: share only with holders of the same label.
        model: the GPU model.
        count: so many GPUs, of each the same share.
        id: the GPUID of the vGPU.
    """

    request: float | str | None = None
    limit: float | str | None = None
    latency_sensitive: bool | None = msgspec.field(default=None, name="latencySensitive")
    memory: float | str | None = None
    affinity: str | None = None
    anti_affinity: str | None = msgspec.field(default=None, name="antiAffinity")
    exclusion: str | None = None
    model: str | None = None
    count: int | None = None
    id: str | None = None

    def fields(self) -> dict[str, Any]:
        """The fields as in a manifest."""
        given = {
            key: value for key, value in msgspec.to_builtins(self).items() if value is not None
        }
        return given | {
            key: _text(given[key]) for key in ("request", "limit", "memory") if key in given
        }


class SharePod(msgspec.Struct, frozen=True, kw_only=True):
    """A SharePod to create.

    Attributes:
        name: its name.
        spec: a PodSpec as in a manifest, ``{"containers": [...]}``.
        gpu: the share; None where ``spec`` or ``annotations`` have it.
        namespace: ``""`` for that of the cluster's configuration.
        labels: of the SharePod and of its pod.
        annotations: likewise.
    """

    name: str
    spec: Mapping[str, Any]
    gpu: GPU | None = None
    namespace: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> "SharePod":
        """The SharePod of a manifest, such as a YAML document.

        Raises:
            InvalidValueError: it is of another kind, or has no name.
        """
        if (manifest.get("apiVersion"), manifest.get("kind")) != (f"{GROUP}/v1", SHAREPODS.kind):
            raise InvalidValueError("kind", f"is not SharePod of {GROUP}/v1")
        metadata = manifest.get("metadata") or {}
        if not metadata.get("name"):
            raise InvalidValueError("metadata.name", "is missing")
        return cls(
            name=metadata["name"],
            spec=manifest.get("spec") or {},
            namespace=metadata.get("namespace") or "",
            labels=metadata.get("labels") or {},
            annotations=metadata.get("annotations") or {},
        )

    def manifest(self, namespace: str) -> dict[str, Any]:
        """The manifest of the SharePod in a namespace.

        Raises:
            InvalidValueError: a value is not acceptable, or it asks for no share of a GPU.
        """
        metadata: dict[str, Any] = {"name": self.name, "namespace": self.namespace or namespace}
        metadata |= {"labels": dict(self.labels)} if self.labels else {}
        metadata |= {"annotations": dict(self.annotations)} if self.annotations else {}
        spec = dict(self.spec) | ({"gpu": self.gpu.fields()} if self.gpu else {})
        found = {
            "apiVersion": SHAREPODS.api_version,
            "kind": SHAREPODS.kind,
            "metadata": metadata,
            "spec": spec,
        }
        if demand_of(found) is None:
            raise InvalidValueError("spec.gpu", f"SharePod {self.name} asks for no share of a GPU")
        return found


class SharePodState(msgspec.Struct, frozen=True, kw_only=True):
    """A SharePod as it is in a cluster.

    Attributes:
        name: its name.
        namespace: its namespace.
        uid: identifies it, also against a later one of the same name.
        labels: its labels.
        phase: of its pod: Pending, Running, Succeeded or Failed; ``""`` without a pod.
        node: its node; ``""`` before one is chosen.
        gpus: the GPUs of which it has a share.
        request: its share of each GPU's time, as text.
        limit: the most of it, as text.
        memory: its memory of each GPU, as text.
        pod_ip: the address of its pod.
        message: what its pod says.
        conditions: Scheduled, Allocated and Ready, with reasons (``docs/conditions.md``).
        created: RFC 3339 text.
    """

    name: str
    namespace: str
    uid: str
    labels: Mapping[str, str]
    phase: str
    node: str
    gpus: tuple[AllocatedGPU, ...]
    request: str
    limit: str
    memory: str
    pod_ip: str
    message: str
    conditions: tuple[Condition, ...]
    created: str

    @classmethod
    def of(cls, view: View) -> "SharePodState":
        """The state of a SharePod as it is read."""
        metadata, status = view.metadata, view.status
        return cls(
            name=metadata.name,
            namespace=metadata.namespace,
            uid=metadata.uid,
            labels=metadata.labels,
            phase=status.phase,
            node=status.node_name or view.spec.node_name,
            gpus=status.gpus,
            request=status.share.request,
            limit=status.share.limit,
            memory=status.share.memory,
            pod_ip=status.pod_ip,
            message=status.message,
            conditions=status.conditions,
            created=metadata.creation_timestamp or "",
        )

    def condition(self, kind: str) -> Condition | None:
        """The condition of a type; None before it is written."""
        return find_condition(self.conditions, kind)

    @property
    def ready(self) -> bool:
        """Whether its pod is ready."""
        found = self.condition("Ready")
        return found is not None and found.status == "True"

    @property
    def blocker(self) -> Condition | None:
        """The first condition that does not hold: why it is not ready; None if none says so."""
        found = (self.condition(kind) for kind in ("Scheduled", "Allocated", "Ready"))
        unmet = [each for each in found if each is not None and each.status != "True"]
        # Once its pod has ended its share is released, and Ready says how it ended.
        why = [each for each in unmet if each.reason != Reason.RELEASED] or unmet
        return why[0] if why else None


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a SharePod: the first state that is seen of it counts as ``ADDED``."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    sharepod: SharePodState


def _text(value: float | str) -> str:
    """A number as a Quantity without an exponent."""
    if isinstance(value, float):
        return f"{value:.{_DIGITS}f}".rstrip("0").rstrip(".")
    return str(value)

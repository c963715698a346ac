"""Strips what no program reads from large objects before they are cached.

The programs of the control plane cache all SharePods and pods of the cluster, so a namespace with
many large ones could exhaust their memory. Of an object of more than :data:`LARGE` bytes they keep
what decisions depend on: KubeShare's fields, labels and annotations, the controlling owner, the
resources of the containers, and what selects nodes. The policy ``kubeshare-sharepod-size`` bounds
these in SharePods; nothing does in pods, of which no more than a part is kept either. Whoever
needs a whole object reads it from the API server (:func:`is_stripped`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from kubeshare.api.finalizer import FINALIZER, ORPHAN
from kubeshare.api.types.core_v1 import Container, Pod, ResourceNeeds
from kubeshare.dialects.containers import CONTAINER_FIELDS
from kubeshare.kube.resources import Raw

LARGE: Final = 16 << 10
"""Bytes of the encoded object; an ordinary SharePod has three thousand."""

_SMALL: Final = 512
"""Bytes of a field of the PodSpec that stays, whichever it is."""
_MARK: Final = "kubeshare.nthu/stripped"
"""The key beside ``metadata`` that marks a stripped object; no field of Kubernetes has a slash."""
_KEPT: Final = frozenset(
    {"gpu", "nodeName", "nodeSelector", "tolerations", "affinity", "overhead", "schedulingGates"}
)
"""Fields of the PodSpec that stay as they are."""
_KEPT_OF_CONTAINER: Final = frozenset({"name", "resources", "restartPolicy"})
_PREFIXES: Final = (
    *("kubeshare", "sharedgpu/", "aliyun.com/", "ALIYUN_COM_", "scheduler.framework.gpushare."),
    *("tencent.com/", "gaia.tencent.com/", "cgpu.", "pod-template-hash", "cluster-autoscaler."),
)
"""How the labels and annotations begin that the dialects and the programs read."""
_KEPT_OF_METADATA: Final = frozenset(
    {"name", "namespace", "uid", "resourceVersion", "generation"}
    | {"creationTimestamp", "deletionTimestamp"}
)
_LARGEST_OWNER: Final = 1024
"""Bytes of an owner reference; names in Kubernetes are shorter."""
_MOST_FINALIZERS: Final = 8
"""Of a pod: they are named where they keep it from going."""
_MOST_RESOURCES: Final = 16
"""Of a container of a pod, beside those of KubeShare and the manifest families."""

T = TypeVar("T")


def strip(raw: Raw) -> Raw:
    """A raw SharePod or pod, without what no program reads if it is large."""
    if len(msgspec.msgpack.encode(raw)) <= LARGE:
        return raw
    spec = raw.get("spec")
    stripped = {**raw, "metadata": _metadata(raw["metadata"]), _MARK: True}
    if isinstance(spec, dict):
        stripped["spec"] = _spec(spec)
    return stripped


def is_stripped(raw: Mapping[str, Any]) -> bool:
    """Whether parts of an object were stripped."""
    return _MARK in raw


def strip_pod(pod: Pod) -> Pod:
    """A pod, without the metadata and the resources that no program reads if it is large."""
    if len(msgspec.msgpack.encode(pod)) <= LARGE:
        return pod
    metadata, spec = pod.metadata, pod.spec
    owner = metadata.controller
    kept = msgspec.structs.replace(
        metadata,
        labels=_ours(metadata.labels),
        annotations=_ours(metadata.annotations),
        finalizers=metadata.finalizers[:_MOST_FINALIZERS],
        owner_references=(owner,) if owner and _fits(owner) else (),
    )
    needs = msgspec.structs.replace(
        spec,
        containers=_needy(spec.containers),
        init_containers=_needy(spec.init_containers),
        overhead=_resources(spec.overhead),
    )
    return msgspec.structs.replace(pod, metadata=kept, spec=needs)


def _needy(containers: Iterable[Container]) -> tuple[Container, ...]:
    """The containers that ask for resources, with what is read of them."""
    return tuple(
        msgspec.structs.replace(
            container,
            resources=ResourceNeeds(
                limits=_resources(container.resources.limits),
                requests=_resources(container.resources.requests),
            ),
        )
        for container in containers
        if container.resources.limits or container.resources.requests
    )


def _resources(amounts: Mapping[str, T]) -> dict[str, T]:
    """Those of KubeShare and the manifest families, and a bounded number of others."""
    ours = _ours(amounts)
    others = [each for each in amounts.items() if each[0] not in ours]
    # Those of Kubernetes itself have no domain, and are the shortest.
    others.sort(key=lambda each: (len(each[0]), each[0]))
    return ours | dict(others[:_MOST_RESOURCES])


def _metadata(metadata: Raw) -> Raw:
    kept = {field: metadata[field] for field in _KEPT_OF_METADATA if field in metadata}
    for field in ("labels", "annotations"):
        if isinstance(metadata.get(field), dict):
            kept[field] = _ours(metadata[field])
    if isinstance(finalizers := metadata.get("finalizers"), list):
        kept["finalizers"] = _finalizers(finalizers)
    if isinstance(owners := metadata.get("ownerReferences"), list):
        controlling = [each for each in owners if isinstance(each, dict) and each.get("controller")]
        kept["ownerReferences"] = list(filter(_fits, controlling[:1]))
    return kept


def _finalizers(finalizers: Sequence[str]) -> list[str]:
    """The finalizers that are read, each at its place: patches name ours by that."""
    read = [name if name in (FINALIZER, ORPHAN) else "" for name in finalizers]
    while len(read) > 1 and not read[-1]:
        read.pop()
    return read


def _fits(owner: object) -> bool:
    return len(msgspec.msgpack.encode(owner)) <= _LARGEST_OWNER


def _ours(texts: Mapping[str, T]) -> dict[str, T]:
    """What the programs read, the shortest first, as far as it fits into an ordinary object."""
    kept: dict[str, T] = {}
    found = [(key, value) for key, value in texts.items() if key.startswith(_PREFIXES)]
    room = 2 * LARGE
    for key, value in sorted(found, key=_size):
        room -= _size((key, value))
        if room < 0:
            break
        kept[key] = value
    return kept


def _size(text: tuple[str, object]) -> int:
    key, value = text
    return len(key) + len(str(value))


def _spec(spec: Raw) -> Raw:
    kept = {
        field: value
        for field, value in spec.items()
        if field in _KEPT or len(msgspec.msgpack.encode(value)) <= _SMALL
    }
    for field in CONTAINER_FIELDS:
        if field in spec:
            kept[field] = _each(spec[field], _KEPT_OF_CONTAINER)
    if "volumes" in spec:
        # An ephemeral volume is known by its name alone.
        volumes = _each(spec["volumes"], frozenset({"name", "persistentVolumeClaim", "ephemeral"}))
        kept["volumes"] = volumes
    return kept


def _each(entries: object, fields: frozenset[str]) -> object:
    """Some fields of each entry of a list; anything else as it is, to be reported."""
    if not isinstance(entries, list):
        return entries
    return [
        {key: entry[key] for key in entry if key in fields} if isinstance(entry, dict) else entry
        for entry in entries
    ]

"""Strips what no program reads from large objects before they are cached.

The programs of the control plane cache all SharePods and pods of the cluster, so a namespace with
many large ones could exhaust their memory. Of an object of more than :data:`LARGE` bytes they keep
what decisions depend on: KubeShare's fields, labels and annotations, the resources of the
containers, and what selects nodes. The policy ``kubeshare-sharepod-size`` bounds these. Whoever
needs a whole object reads it from the API server (:func:`is_stripped`).
"""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from kubeshare.api.types.core_v1 import Pod
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
    """A pod, with the labels and annotations alone that the programs read if it has large ones."""
    metadata = pod.metadata
    texts = (*metadata.labels.items(), *metadata.annotations.items())
    if sum(len(key) + len(value) for key, value in texts) <= LARGE:
        return pod
    kept = msgspec.structs.replace(
        metadata, labels=_ours(metadata.labels), annotations=_ours(metadata.annotations)
    )
    return msgspec.structs.replace(pod, metadata=kept)


def _metadata(metadata: Raw) -> Raw:
    texts = {
        field: _ours(metadata[field])
        for field in ("labels", "annotations")
        if isinstance(metadata.get(field), dict)
    }
    return {**metadata, **texts}


def _ours(texts: Mapping[str, T]) -> dict[str, T]:
    return {key: value for key, value in texts.items() if key.startswith(_PREFIXES)}


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

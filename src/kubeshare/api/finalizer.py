"""Adds and removes the finalizer that deletes SharePods after their pod.

Every SharePod that may have a pod has it: Sched adds it with the decision, the device manager
before it creates a pod for a decision that Sched did not make. The device manager removes it
once the pod is gone. A SharePod that never had a pod has none, and is deleted at once.
"""

from collections.abc import Mapping
from typing import Any, Final

from kubeshare.api.types.v1 import SharePod

FINALIZER: Final = "kubeshare.nthu/pod"
ORPHAN: Final = "orphan"
"""The garbage collector's finalizer for ``--cascade=orphan``: it removes owner references."""

_PATH: Final = "/metadata/finalizers"
Operation = Mapping[str, Any]
"""An operation of a JSON patch."""


def is_present(sharepod: SharePod) -> bool:
    """Whether the SharePod has the finalizer."""
    return FINALIZER in sharepod.metadata.finalizers


def add(sharepod: SharePod) -> list[Operation]:
    """Operations that add it; the caller's patch must test the resourceVersion."""
    finalizers = sharepod.metadata.finalizers
    if FINALIZER in finalizers:
        return []
    # To the end of a list: the cache of large SharePods lacks the names of others.
    if finalizers:
        return [{"op": "add", "path": f"{_PATH}/-", "value": FINALIZER}]
    return [{"op": "add", "path": _PATH, "value": [FINALIZER]}]


def remove(sharepod: SharePod) -> list[Operation]:
    """Operations that remove it from this very SharePod (uid), whatever else has changed."""
    path = f"{_PATH}/{sharepod.metadata.finalizers.index(FINALIZER)}"
    return [
        {"op": "test", "path": "/metadata/uid", "value": sharepod.metadata.uid},
        {"op": "test", "path": path, "value": FINALIZER},
        {"op": "remove", "path": path},
    ]

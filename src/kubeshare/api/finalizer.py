"""Our finalizer on a SharePod: it goes after its pod.

It is on every SharePod that may have a pod: put on with Sched's decision, or, where somebody
else has decided, before the pod is made. DevMgr takes it off when the pod has gone. A SharePod
of which nothing ever ran has none, and goes at once.
"""

from collections.abc import Mapping
from typing import Any, Final

from kubeshare.api.types.v1 import SharePod

FINALIZER: Final = "kubeshare.nthu/pod"
ORPHAN: Final = "orphan"
"""The garbage collector's, for ``--cascade=orphan``: it takes the owner off the dependents."""

_PATH: Final = "/metadata/finalizers"
Operation = Mapping[str, Any]
"""One of a JSON patch."""


def is_present(sharepod: SharePod) -> bool:
    """It goes after its pod."""
    return FINALIZER in sharepod.metadata.finalizers


def add(sharepod: SharePod) -> list[Operation]:
    """What puts it on, in the very state in which the SharePod was seen; empty where it is on."""
    finalizers = sharepod.metadata.finalizers
    if FINALIZER in finalizers:
        return []
    # The list as a whole, since there may be none; so the patch must test the resourceVersion.
    return [{"op": "add", "path": _PATH, "value": [*finalizers, FINALIZER]}]


def remove(sharepod: SharePod) -> list[Operation]:
    """What takes it off that very SharePod, whatever else has changed of it meanwhile."""
    place = f"{_PATH}/{sharepod.metadata.finalizers.index(FINALIZER)}"
    return [
        {"op": "test", "path": "/metadata/uid", "value": sharepod.metadata.uid},
        {"op": "test", "path": place, "value": FINALIZER},
        {"op": "remove", "path": place},
    ]

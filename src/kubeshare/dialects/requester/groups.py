"""Reads the group and the service of a requester, for quotas."""

from collections.abc import Mapping
from typing import Any, Final

from kubeshare.core.errors import InvalidValueError

ANNOTATION: Final = "kubeshare.nthu/group"
"""Names the group of a SharePod or pod, as its author chooses."""

MAX_LENGTH: Final = 253
"""Characters of a group, as the schema of a VGPU's holders allows."""

_TEMPLATE_HASH: Final = "pod-template-hash"


def group_of(metadata: Mapping[str, Any]) -> str:
    """The group that an author chose; ``""`` for none.

    Raises:
        InvalidValueError: it is no text of that length, or looks like a service.
    """
    found = (metadata.get("annotations") or {}).get(ANNOTATION) or ""
    if not isinstance(found, str) or len(found) > MAX_LENGTH or "/" in found:
        reason = f"must be text of at most {MAX_LENGTH} characters without a slash"
        raise InvalidValueError(f"metadata.annotations[{ANNOTATION}]", reason)
    return found


def service_of(metadata: Mapping[str, Any]) -> str:
    """What controls a requester, as ``KIND/NAME``; ``""`` if nothing does.

    A pod of a Deployment is controlled by a ReplicaSet, whose name is the Deployment's and the
    hash that the pod has in a label: the Deployment counts, since each rollout has a ReplicaSet of
    its own.
    """
    owners = metadata.get("ownerReferences") or ()
    owner = next((each for each in owners if isinstance(each, dict) and each.get("controller")), {})
    kind, name = owner.get("kind"), owner.get("name")
    if not (isinstance(kind, str) and isinstance(name, str)):
        return ""
    template = (metadata.get("labels") or {}).get(_TEMPLATE_HASH)
    suffix = f"-{template}"
    if kind == "ReplicaSet" and template and name.endswith(suffix):
        kind, name = "Deployment", name.removesuffix(suffix)
    return f"{kind}/{name}"[:MAX_LENGTH]

"""Takes out of objects what is users' own, by naming what stays.

What is not named goes, so a field that Kubernetes adds is not in the archive until somebody has
thought about it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from kubeshare.dialects.containers import VGPU_RESOURCES
from kubeshare.dialects.families import RESOURCES

REDACTED: Final = "REDACTED"

_OWN_ANNOTATIONS: Final = (
    "kubeshare.nthu/",
    "kubeshare/",
    "sharedgpu/",
    "aliyun.com/",
    "ALIYUN_COM_GPU_",
    "scheduler.framework.gpushare.",
    "tencent.com/",
)
"""Prefixes of the annotations that KubeShare reads or writes, in any manifest family."""
_ASKED_FOR: Final = RESOURCES.union(VGPU_RESOURCES)
_METADATA: Final = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "labels",
    "finalizers",
    "ownerReferences",
)
_POD_SPEC: Final = (
    "gpu",
    "nodeName",
    "schedulerName",
    "priority",
    "priorityClassName",
    "preemptionPolicy",
    "schedulingGates",
    "affinity",
    "nodeSelector",
    "tolerations",
    "topologySpreadConstraints",
    "resourceClaims",
    "restartPolicy",
    "runtimeClassName",
    "terminationGracePeriodSeconds",
)
_CONTAINERS: Final = ("containers", "initContainers")
_CONTAINER: Final = ("name", "image", "imagePullPolicy", "resources", "restartPolicy")
_POD_STATUS: Final = (
    "phase",
    "conditions",
    "reason",
    "startTime",
    "nominatedNodeName",
    "qosClass",
    "resourceClaimStatuses",
    "extendedResourceClaimStatus",
)
_CONTAINER_STATUS: Final = ("name", "image", "imageID", "containerID", "ready", "restartCount")
_STATE: Final = ("reason", "exitCode", "signal", "startedAt", "finishedAt")
_EVENT: Final = (
    "regarding",
    "related",
    "reason",
    "action",
    "type",
    "note",
    "eventTime",
    "series",
    "reportingController",
    "reportingInstance",
    "deprecatedSource",
    "deprecatedFirstTimestamp",
    "deprecatedLastTimestamp",
    "deprecatedCount",
)
_OF_USERS_PODS: Final = ("FailedPrepareDynamicResources", "FailedScheduling", "Evicted")
"""Reasons of events of users' pods that say something of their shares, and repeat no output."""

Raw = dict[str, Any]


def redacted(found: Mapping[str, Any]) -> Raw:
    """An object with what may be handed on. Its kind decides; of another kind, the metadata."""
    kept: Raw = {name: found[name] for name in ("apiVersion", "kind") if name in found}
    kept["metadata"] = _metadata(found.get("metadata") or {})
    kind = found.get("kind")
    if kind == "Event":
        return kept | _only(found, _EVENT)
    if kind in _PARTS:
        spec, status = _PARTS[kind]
        kept["spec"] = spec(found.get("spec") or {})
        kept["status"] = status(found.get("status") or {})
    return kept


def has_share(pod: Mapping[str, Any]) -> bool:
    """Whether a pod asks for a share, by its containers or by an annotation or label."""
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    names = [*(metadata.get("annotations") or {}), *(metadata.get("labels") or {})]
    asks = any(
        not _ASKED_FOR.isdisjoint((each.get("resources") or {}).get("limits") or {})
        for field in _CONTAINERS
        for each in spec.get(field) or ()
    )
    return asks or any(name.startswith(_OWN_ANNOTATIONS) for name in names)


def concerns_shares(event: Mapping[str, Any], namespace: str, kinds: Collection[str]) -> bool:
    """Whether an event is about KubeShare and quotes no program of a user.

    Args:
        event: of ``events.k8s.io/v1``.
        namespace: of KubeShare.
        kinds: KubeShare's kinds.
    """
    about = event.get("regarding") or {}
    return (
        about.get("kind", "") in kinds
        or about.get("namespace") == namespace
        or str(event.get("reportingController", "")).startswith("kubeshare")
        or event.get("reason") in _OF_USERS_PODS
    )


def _only(found: Mapping[str, Any], names: Iterable[str]) -> Raw:
    return {name: found[name] for name in names if name in found}


def _metadata(found: Mapping[str, Any]) -> Raw:
    own = {
        name: value
        for name, value in (found.get("annotations") or {}).items()
        if name.startswith(_OWN_ANNOTATIONS)
    }
    return _only(found, _METADATA) | ({"annotations": own} if own else {})


def _pod_spec(spec: Mapping[str, Any]) -> Raw:
    containers = {
        field: [_container(each) for each in spec[field]]
        for field in _CONTAINERS
        if isinstance(spec.get(field), list)
    }
    return _only(spec, _POD_SPEC) | containers


def _container(container: Mapping[str, Any]) -> Raw:
    variables = [
        {"name": each.get("name", ""), "value": REDACTED} for each in container.get("env") or ()
    ]
    return _only(container, _CONTAINER) | ({"env": variables} if variables else {})


def _pod_status(status: Mapping[str, Any]) -> Raw:
    containers = {
        field: [_container_status(each) for each in status[field]]
        for field in ("containerStatuses", "initContainerStatuses")
        if isinstance(status.get(field), list)
    }
    return _only(status, _POD_STATUS) | containers


def _container_status(status: Mapping[str, Any]) -> Raw:
    # The message of a state may be what the program wrote last.
    states = {
        field: {name: _only(state or {}, _STATE) for name, state in status[field].items()}
        for field in ("state", "lastState")
        if isinstance(status.get(field), dict)
    }
    return _only(status, _CONTAINER_STATUS) | states


def _workload(spec: Mapping[str, Any]) -> Raw:
    """A program of KubeShare: its options stay, the values of its variables go."""
    template = spec.get("template") or {}
    pod = template.get("spec") or {}
    containers = [
        _container(each) | _only(each, ("command", "args")) for each in pod.get("containers") or ()
    ]
    shown = _pod_spec(pod) | {"containers": containers}
    some = _only(spec, ("replicas", "strategy", "updateStrategy"))
    return some | {
        "template": {"metadata": _metadata(template.get("metadata") or {}), "spec": shown}
    }


def _whole(found: Mapping[str, Any]) -> Raw:
    return dict(found)


def _node_spec(spec: Mapping[str, Any]) -> Raw:
    return _only(spec, ("taints", "unschedulable"))


def _node_status(status: Mapping[str, Any]) -> Raw:
    return _only(status, ("allocatable", "capacity", "conditions", "nodeInfo"))


_PARTS: Final[Mapping[Any, tuple[Callable[[Mapping[str, Any]], Raw], ...]]] = {
    "Pod": (_pod_spec, _pod_status),
    "SharePod": (_pod_spec, _whole),
    "Deployment": (_workload, _whole),
    "DaemonSet": (_workload, _whole),
    "Node": (_node_spec, _node_status),
    **dict.fromkeys(
        ("VGPU", "GPUNode", "GPUQuota", "ShareUsage", "Lease", "ResourceSlice"), (_whole, _whole)
    ),
}
"""By kind, what stays of spec and status."""

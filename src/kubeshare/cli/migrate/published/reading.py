"""Reads what versions 1 and 2 have left from the API server."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kubeshare.api import pod_state
from kubeshare.api.types.constants import GATE, LABEL_SHAREPOD_UID, NAMESPACE
from kubeshare.api.types.core_v1 import NODES
from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.cli.migrate.published.model import Former, KindState, Pod, SharePodFound, old_keys
from kubeshare.cli.migrate.published.programs import (
    BINDINGS,
    GPU_UUID,
    GPUID,
    GROUPS,
    KUBE_SYSTEM,
    LIBRARY_VOLUME,
    PLACEHOLDERS,
    PROGRAMS,
    SCHEDULER_NAME,
    runs,
)
from kubeshare.core.errors import InvalidValueError
from kubeshare.dialects.sharepod import demand_of
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    PODS,
    Raw,
    Resource,
)

if TYPE_CHECKING:
    from kubeshare.kube.client.client import Client

CRD = f"{SHAREPODS.plural}.{SHAREPODS.group}"
OTHER_SHAREPODS = Resource("sharedgpu.goc", "v1", "sharepods", "SharePod")
_GPU_INFO = "kubeshare/gpu_info"


async def read_former(client: "Client") -> Former:
    """Read what a plan is made from.

    Raises:
        ApiError: the cluster cannot be read.
    """
    kind = await _find(client, CUSTOM_RESOURCE_DEFINITIONS, CRD)
    found = [
        (each, await _find(client, each.resource, each.name, KUBE_SYSTEM)) for each in PROGRAMS
    ]
    there = [(program, raw) for program, raw in found if raw is not None]
    pods = (await client.list_each(PODS, lambda raw: raw if _is_concerned(raw) else None)).items
    live = [raw for raw in pods if raw is not None]
    placeholders = (await client.list(PODS, KUBE_SYSTEM, labels=PLACEHOLDERS)).items
    nodes = (await client.list(NODES)).items
    return Former(
        kind=_kind_state(kind),
        stored_versions=tuple(((kind or {}).get("status") or {}).get("storedVersions") or ()),
        programs=[program for program, _ in there],
        running=[program for program, raw in there if runs(program, raw)],
        bindings=[name for name in BINDINGS if await _is_theirs(client, name)],
        pods=sorted(_pod(raw) for raw in live if _has_old_share(raw)),
        waiting=sorted(_pod(raw).title for raw in live if _waits(raw)),
        placeholders=sorted(_pod(raw) for raw in placeholders),
        sharepods=sorted(_sharepod(raw) for raw in await _objects(client, SHAREPODS)),
        other_sharepods=sorted(_pod(raw).title for raw in await _objects(client, OTHER_SHAREPODS)),
        installed=await _find(client, DEPLOYMENTS, "kubeshare-scheduler", NAMESPACE) is not None,
        node_annotations=sorted(
            node.metadata.name for node in nodes if _GPU_INFO in node.metadata.annotations
        ),
    )


async def _find(
    client: "Client", resource: Resource[Raw], name: str, namespace: str = ""
) -> Raw | None:
    try:
        return await client.get(resource, name, namespace)
    except NotFoundError:
        return None


async def _objects(client: "Client", resource: Resource[Raw]) -> list[Raw]:
    try:
        return list((await client.list(resource)).items)
    except NotFoundError:
        return []  # there is no such kind


async def _is_theirs(client: "Client", name: str) -> bool:
    binding = await _find(client, CLUSTER_ROLE_BINDINGS, name)
    subjects = (binding or {}).get("subjects") or ()
    return any(each.get("namespace") == KUBE_SYSTEM for each in subjects)


def _kind_state(kind: Raw | None) -> KindState:
    """Whose CRD it is: versions 1 and 2 have no schema, so their status has no properties."""
    if kind is None:
        return "absent"
    versions: Sequence[Raw] = kind["spec"].get("versions") or ({},)
    schema = (versions[0].get("schema") or {}).get("openAPIV3Schema") or {}
    described = "status" in (schema.get("properties") or {})
    return "replaced" if described and not kind["spec"].get("preserveUnknownFields") else "old"


def _metadata(raw: Mapping[str, Any]) -> tuple[Raw, Raw]:
    metadata = raw.get("metadata") or {}
    return metadata, metadata.get("annotations") or {}


def _is_concerned(raw: Raw) -> bool:
    """Whether a pod has not ended, and has or awaits a GPU from an earlier version."""
    return (_has_old_share(raw) or _waits(raw)) and not pod_state.view(raw).terminal


def _has_old_share(raw: Raw) -> bool:
    """Whether a bound pod has its GPU from an earlier version."""
    metadata, annotations = _metadata(raw)
    labels = metadata.get("labels") or {}
    if not raw["spec"].get("nodeName") or LABEL_SHAREPOD_UID in labels:
        return False
    owners = metadata.get("ownerReferences") or ()
    return (
        any(
            each["kind"] == "SharePod" and each["apiVersion"].partition("/")[0] in GROUPS
            for each in owners
        )
        or any(each["name"] == LIBRARY_VOLUME for each in raw["spec"].get("volumes") or ())
        or GPU_UUID in annotations
    )


def _waits(raw: Raw) -> bool:
    """Whether only version 2's scheduler would place a pod."""
    spec = raw["spec"]
    gates = {gate.get("name") for gate in spec.get("schedulingGates") or ()}
    asks = spec.get("schedulerName") == SCHEDULER_NAME and not spec.get("nodeName")
    return asks and GATE not in gates


def _pod(raw: Raw) -> Pod:
    metadata, annotations = _metadata(raw)
    gpuid = annotations.get(GPUID) or (metadata.get("labels") or {}).get(GPUID) or ""
    node = (raw.get("spec") or {}).get("nodeName") or ""
    return Pod(f"{metadata['namespace']}/{metadata['name']}", node, gpuid)


def _sharepod(raw: Raw) -> SharePodFound:
    metadata, annotations = _metadata(raw)
    node, gpuid = (raw.get("spec") or {}).get("nodeName"), annotations.get(GPUID)
    attempted = ((raw.get("spec") or {}).get("gpu") or {}).get("attempt")
    return SharePodFound(
        namespace=metadata["namespace"],
        name=metadata["name"],
        old_keys=old_keys(raw.get("status") or {}),
        pinned=f"{node}, {gpuid}" if node and gpuid and not attempted else "",
        problem=_problem(raw),
    )


def _problem(raw: Raw) -> str:
    try:
        demand_of(raw)
    except InvalidValueError as error:
        return str(error)
    return ""

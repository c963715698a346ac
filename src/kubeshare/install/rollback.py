"""Finds holders that a version to install does not understand.

The kinds of a version describe all that it can read: what they do not describe, the API server
removes. So a field of a holder that the manifests do not have, and that says something, was written
by a later version. A later version leaves fields empty that say nothing new.
"""

from collections.abc import Iterable
from typing import Any, Final

from kubeshare.api.types.v1 import SHAREPODS, VGPUS
from kubeshare.install.manifests import Manifest
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.meta import Key, metadata_of
from kubeshare.kube.resources import Raw

NAMED: Final = 10
"""SharePods and pods that the message names; more are counted."""
_CRD: Final = f"{VGPUS.plural}.{VGPUS.group}"


async def not_understood(client: Client, manifests: Iterable[Manifest]) -> str:
    """Why these manifests cannot replace what is installed; ``""`` if they can.

    Args:
        client: the cluster.
        manifests: from ``manifests.load``.

    Raises:
        UnreachableError: the API server does not answer.
        ApiError: it refuses to list the vGPUs.
    """
    known = _fields_of_holders(manifests)
    if known is None:
        return ""
    try:
        listed = await client.list_each(VGPUS, lambda vgpu: _later_holders(vgpu, known))
    except NotFoundError:
        return ""  # nothing is installed
    found = [each for vgpu in listed.items for each in vgpu]
    if not found:
        return ""
    demands = sorted({(key, uid) for key, uid, _ in found})
    names = [str(key) for key, _ in demands]
    fields = sorted(set[str]().union(*(unknown for *_, unknown in found)))
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    first, uid = demands[0]
    kind = "sharepod" if await _is_sharepod(client, first, uid) else "pod"
    return (
        f"nothing was changed: {len(names)} SharePods or pods hold shares that this version does "
        f"not understand ({', '.join(fields)}): {', '.join(names[:NAMED])}{more}. Their pods could "
        f"not start again, and their limits would be lost. Delete them (`kubectl delete {kind} "
        f"{first.name} -n {first.namespace}`; of a workload, scale it down) or wait until they "
        "have ended, and run this again; or stay with the installed version"
    )


def _fields_of_holders(manifests: Iterable[Manifest]) -> frozenset[str] | None:
    """The fields that a holder has in the manifests; None if they do not contain its kind."""
    for manifest in manifests:
        if manifest["kind"] == "CustomResourceDefinition" and manifest["metadata"]["name"] == _CRD:
            schema: Any = manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            status = schema["properties"]["status"]
            return frozenset(status["properties"]["holders"]["items"]["properties"])
    return None


async def _is_sharepod(client: Client, key: Key, uid: str) -> bool:
    """Whether a demand is a SharePod's, and not a plain pod's."""
    try:
        found = await client.get(SHAREPODS, key.name, key.namespace)
    except NotFoundError:
        return False
    return metadata_of(found).uid == uid


def _later_holders(vgpu: Raw, known: frozenset[str]) -> list[tuple[Key, str, set[str]]]:
    """The holders with fields that are not known: whose, the demand's uid, and these fields."""
    return [
        (
            Key(str(holder.get("namespace")), str(holder.get("name"))),
            str(holder.get("demand")),
            unknown,
        )
        for holder in (vgpu.get("status") or {}).get("holders") or ()
        if (unknown := {field for field, value in holder.items() if value} - known)
    ]

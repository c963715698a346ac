"""Counts the whole GPUs that a pending pod asks for by ResourceClaims.

A claim asks for GPUs of NVIDIA's DRA driver by its DeviceClass ``gpu.nvidia.com``. Its selectors
are kube-scheduler's to evaluate: any GPU counts.
"""

from collections.abc import Iterator
from typing import Any

from kubeshare.api.types.constants import NVIDIA_DRA_DRIVER
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.resources import RESOURCE_CLAIMS, Raw


async def gpus_by_claims(client: Client, pod: Raw) -> int | None:
    """The GPUs that the claims of a pod ask for and have not got; None while a claim is missing.

    Args:
        client: reads the claims.
        pod: the pod as the API server returned it.
    """
    total = 0
    for name in _claims(pod):
        if not name:
            return None
        try:
            claim = await client.get(RESOURCE_CLAIMS, name, pod["metadata"]["namespace"])
        except NotFoundError:
            return None
        total += _gpus(claim)
    return total


def _claims(pod: Raw) -> Iterator[str]:
    """The names of a pod's claims; ``""`` for one of a template that is not made yet."""
    statuses = pod.get("status", {}).get("resourceClaimStatuses") or ()
    made = {each["name"]: each.get("resourceClaimName", "") for each in statuses}
    for each in pod["spec"].get("resourceClaims") or ():
        name = each.get("resourceClaimName") or made.get(each["name"])
        # A template may need no claim for this pod: then its name stays empty.
        if name or each["name"] not in made:
            yield name or ""


def _gpus(claim: Raw) -> int:
    if claim.get("status", {}).get("allocation"):
        return 0
    requests = claim["spec"].get("devices", {}).get("requests") or ()
    return sum(_count(request) for request in requests)


def _count(request: dict[str, Any]) -> int:
    """The GPUs of a request; of alternatives, those of the first that asks for some."""
    for asked in (request.get("exactly"), *(request.get("firstAvailable") or ())):
        if asked and asked.get("deviceClassName") == NVIDIA_DRA_DRIVER:
            if asked.get("adminAccess"):
                return 0
            # All the GPUs of a node are at least one.
            return int(asked.get("count") or 1) if asked.get("allocationMode") != "All" else 1
    return 0

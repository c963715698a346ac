"""Finds kinds whose objects are stored in versions that another release has.

A kind says in ``status.storedVersions`` in which versions its objects may be stored. A release that
lacks one of them cannot read these objects, and the API server refuses its kind. That is so when a
release between was skipped, forwards or back (decision record 064).
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kubeshare.install.manifests import Manifest
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.resources import CUSTOM_RESOURCE_DEFINITIONS

_CRD: Final = "CustomResourceDefinition"


async def skipped_release(client: Client, manifests: Iterable[Manifest]) -> str:
    """Why these kinds cannot replace those that are installed; ``""`` if they can.

    Args:
        client: the cluster.
        manifests: from ``manifests.load``.

    Raises:
        UnreachableError: the API server does not answer.
        ApiError: it refuses to read the kinds.
    """
    found = []
    for manifest in manifests:
        if manifest["kind"] != _CRD:
            continue
        name = manifest["metadata"]["name"]
        try:
            installed = await client.get(CUSTOM_RESOURCE_DEFINITIONS, name)
        except NotFoundError:
            continue
        if missing := missing_versions(installed, manifest):
            found.append(f"{name} in {', '.join(missing)}")
    if not found:
        return ""
    return (
        "nothing was changed: objects may be stored in versions that this release does not have "
        f"({'; '.join(found)}). A release between it and the installed one was skipped: install "
        "those between in their order, and wait for each; or stay with the installed one. If no "
        "release has that version, store the objects anew and take it out of status.storedVersions"
    )


def missing_versions(installed: Mapping[str, Any], manifest: Manifest) -> list[str]:
    """The versions in which objects of an installed kind may be stored, and a manifest lacks."""
    stored = (installed.get("status") or {}).get("storedVersions") or ()
    return sorted(set(stored) - {version["name"] for version in manifest["spec"]["versions"]})

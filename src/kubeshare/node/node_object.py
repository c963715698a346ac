"""The Node object of this machine: what is published of the node belongs to it."""

from typing import Any

from msgspec import Struct

from kubeshare.kube.client.client import Client
from kubeshare.kube.meta import ObjectMeta
from kubeshare.kube.resources import NODES


class _Named(Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta


_NODES = NODES.into(_Named)


def owner_of(node: str, uid: str) -> dict[str, Any]:
    """The owner reference that names a node, by its name and uid."""
    return {
        "apiVersion": NODES.api_version,
        "kind": NODES.kind,
        "name": node,
        "uid": uid,
        "controller": True,
    }


async def uid_of(client: Client, node: str) -> str:
    """The uid of the Node object as it is now: a node that joins again has another one.

    Raises:
        NotFoundError: there is none.
        ApiError: it cannot be read.
    """
    return (await client.get(_NODES, node)).metadata.uid

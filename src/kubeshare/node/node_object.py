"""The Node object of this machine, which owns what the agent publishes."""

from typing import Any

from msgspec import Struct

from kubeshare.kube.client.client import Client
from kubeshare.kube.meta import ObjectMeta
from kubeshare.kube.resources import NODES


class _Named(Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta


_NODES = NODES.into(_Named)


def owner_of(node: str, uid: str) -> dict[str, Any]:
    """An owner reference to a node."""
    return {
        "apiVersion": NODES.api_version,
        "kind": NODES.kind,
        "name": node,
        "uid": uid,
        "controller": True,
    }


async def uid_of(client: Client, node: str) -> str:
    """The current uid of the Node object, which changes when a node joins again.

    Raises:
        NotFoundError: there is no such Node.
        ApiError: it cannot be read.
    """
    return (await client.get(_NODES, node)).metadata.uid

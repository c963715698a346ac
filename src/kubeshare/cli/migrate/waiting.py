"""Waits until the device manager has recorded something of a node."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kubeshare.api.types.constants import CONDITION_OWNED, NAMESPACE
from kubeshare.api.types.v1 import GPUNODES, VGPU, VGPUS, GPUNode
from kubeshare.cli.migrate.cluster_reader import WaitedError
from kubeshare.kube.conditions import find_condition

if TYPE_CHECKING:
    from kubeshare.kube.client.client import Client

SECONDS: Final = 60.0
"""Seconds that the device manager may take; it needs one or two."""
_POLL_SECONDS: Final = 0.5

State = tuple[GPUNode, list[VGPU]]
"""The GPUNode of a node, and its vGPUs."""


async def until(
    client: "Client", node: str, reached: Callable[[State], bool], what: str
) -> list[VGPU]:
    """Wait until a node has reached a state; returns its vGPUs.

    Raises:
        WaitedError: not within :data:`SECONDS`; the message quotes the node's condition.
        ApiError: the cluster cannot be read.
    """
    last: GPUNode | None = None
    try:
        async with asyncio.timeout(SECONDS):
            while True:
                last = await client.get(GPUNODES.into(GPUNode), node)
                listing = await client.list(VGPUS.into(VGPU), fields=f"spec.nodeName={node}")
                if reached((last, listing.items)):
                    return listing.items
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError as error:
        owned = find_condition(last.status.conditions, CONDITION_OWNED) if last else None
        said = (
            f"its condition Owned says: {owned.message}" if owned else "it has no condition Owned"
        )
        raise WaitedError(
            f"node {node}: {what} after {SECONDS:.0f} s; {said}. Check that the device manager "
            f"runs (`kubectl -n {NAMESPACE} get pods`), and run the same command again"
        ) from error

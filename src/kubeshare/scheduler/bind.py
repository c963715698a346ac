"""Tell a SharePod its node and GPUs, unless somebody else has told it meanwhile.

The part of the GPU has been taken before: *reserve, then decide*. Whoever is
killed between the two finds the part again by the demand's uid.
"""

from collections.abc import Sequence
from typing import Any

from kubeshare.api.latest import Latest
from kubeshare.api.names import MANAGER_SCHEDULER
from kubeshare.api.v1 import SHAREPODS
from kubeshare.kube.api import Api
from kubeshare.kube.errors import NotFoundError
from kubeshare.kube.meta import metadata_of
from kubeshare.kube.resources import Raw


class Binder:
    """Writes decisions into SharePods.

    Args:
        api: where they are.
        sharepods: told what was written.
    """

    def __init__(self, api: Api, sharepods: Latest[Raw]) -> None:
        self._api = api
        self._sharepods = sharepods

    async def bind(self, sharepod: Raw, node: str, gpuids: Sequence[str], attempt: int) -> Raw:
        """Write a decision.

        Args:
            sharepod: the state that was decided about.
            node: the node of the GPUs.
            gpuids: the vGPUs of which it holds a part.
            attempt: which decision about this SharePod it is.

        Returns:
            the SharePod as it is now.

        Raises:
            ConflictError: it has changed meanwhile.
            NotFoundError: it is gone.
            ApiError: any other refusal.
        """
        metadata = metadata_of(sharepod)
        answer = await self._api.json_patch(
            SHAREPODS,
            metadata.name,
            _operations(sharepod, node, gpuids, attempt),
            metadata.namespace,
            field_manager=MANAGER_SCHEDULER,
        )
        self._sharepods.put(answer)
        return answer

    async def refresh(self, sharepod: Raw) -> Raw | None:
        """Read a SharePod from the API server; None when it, or its name, is another's now."""
        metadata = metadata_of(sharepod)
        try:
            live = await self._api.get(SHAREPODS, metadata.name, metadata.namespace)
        except NotFoundError:
            self._sharepods.forget(metadata.key)
            return None
        self._sharepods.put(live)
        return live if metadata_of(live).uid == metadata.uid else None


def _operations(
    sharepod: Raw, node: str, gpuids: Sequence[str], attempt: int
) -> list[dict[str, Any]]:
    version = sharepod["metadata"]["resourceVersion"]
    decision: dict[str, Any] = {"attempt": attempt}
    decision |= {"id": gpuids[0]} if len(gpuids) == 1 else {"ids": list(gpuids)}
    gpu = (sharepod["spec"].get("gpu") or {}) | decision
    return [
        {"op": "test", "path": "/metadata/resourceVersion", "value": version},
        {"op": "add", "path": "/spec/nodeName", "value": node},
        {"op": "add", "path": "/spec/gpu", "value": gpu},
    ]

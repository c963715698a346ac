"""Writes the condition ``Scheduled``, Sched's only part of a status."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from kubeshare.api.types.constants import MANAGER_SCHEDULER
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.conditions import find_condition, set_condition, to_raw
from kubeshare.kube.meta import Condition, ObjectMeta
from kubeshare.kube.resources import Raw, Resource


class ScheduledCondition:
    """Writes the condition if it changed.

    Args:
        client: writes to the API server.
        wall_clock: gives ``lastTransitionTime``.
    """

    def __init__(self, client: Client, wall_clock: Callable[[], datetime]) -> None:
        self._client = client
        self._wall_clock = wall_clock

    async def write(
        self,
        resource: Resource[Raw],
        metadata: ObjectMeta,
        present: Sequence[Condition],
        condition: Condition,
        share: Mapping[str, str] | None = None,
    ) -> Raw | None:
        """Set the condition by server-side apply.

        Args:
            resource: the kind of object.
            metadata: the object's.
            present: its conditions as last read.
            condition: the new one; its time is set here.
            share: ``status.share`` of a SharePod, written with it.

        Returns:
            the object after the write; None if nothing changed or the object is gone.
        """
        known = find_condition(present, condition.type)
        conditions, changed = set_condition(
            (known,) if known else (), condition, self._wall_clock(), message_counts=True
        )
        if not changed:
            return None
        body = {
            "metadata": {"name": metadata.name, "uid": metadata.uid},
            "status": {"conditions": to_raw(conditions)} | ({"share": share} if share else {}),
        }
        try:
            return await self._client.apply(
                resource,
                body,
                metadata.namespace,
                field_manager=MANAGER_SCHEDULER,
                force=True,
                subresource="status",
            )
        except NotFoundError:
            return None

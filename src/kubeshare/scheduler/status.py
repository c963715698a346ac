"""The condition ``Scheduled`` of a SharePod: this program's only word in its status."""

from collections.abc import Callable
from datetime import datetime

from kubeshare.api.latest import Latest
from kubeshare.api.names import CONDITION_SCHEDULED, MANAGER_SCHEDULER
from kubeshare.api.reasons import Reason
from kubeshare.api.v1 import SHAREPODS, SharePod
from kubeshare.kube.api import Api
from kubeshare.kube.conditions import find_condition, set_condition, to_raw
from kubeshare.kube.errors import NotFoundError
from kubeshare.kube.meta import Condition
from kubeshare.kube.resources import Raw


class Status:
    """Writes the condition, when it says something new.

    Args:
        api: where to write.
        sharepods: told what was written.
        wall_clock: the times that people read.
    """

    def __init__(
        self, api: Api, sharepods: Latest[Raw], wall_clock: Callable[[], datetime]
    ) -> None:
        self._api = api
        self._sharepods = sharepods
        self._wall_clock = wall_clock

    async def scheduled(
        self, sharepod: SharePod, status: str, reason: Reason, message: str
    ) -> bool:
        """Set the condition.

        Args:
            sharepod: as last read.
            status: ``True`` or ``False``.
            reason: in a word.
            message: a sentence for people.

        Returns:
            Whether it was news, and written.
        """
        condition = Condition(
            type=CONDITION_SCHEDULED,
            status=status,
            reason=reason,
            message=message,
            observed_generation=sharepod.metadata.generation,
        )
        mine = find_condition(sharepod.status.conditions, CONDITION_SCHEDULED)
        conditions, changed = set_condition(
            (mine,) if mine else (), condition, self._wall_clock(), message_counts=True
        )
        if not changed:
            return False
        metadata = sharepod.metadata
        body = {
            "metadata": {"name": metadata.name, "uid": metadata.uid},
            "status": {"conditions": to_raw(conditions)},
        }
        try:
            answer = await self._api.apply(
                SHAREPODS,
                body,
                metadata.namespace,
                field_manager=MANAGER_SCHEDULER,
                force=True,
                subresource="status",
            )
        except NotFoundError:
            return False
        self._sharepods.put(answer)
        return True

"""Removes the accounts that the configuration keeps no longer."""

import asyncio
from datetime import timedelta
from typing import Final

import structlog

from kubeshare.api.types.share_usage import SHARE_USAGES, ShareUsage, time_ns
from kubeshare.core.usage.retention import to_remove
from kubeshare.device_manager.context import Context
from kubeshare.kube.client.errors import ApiError, ConflictError, NotFoundError
from kubeshare.kube.conditions import micro_timestamp
from kubeshare.kube.controller.runtime import Program
from kubeshare.kube.meta import ObjectMeta

PASS_SECONDS: Final = 3600.0
"""How often accounts are removed."""
AT_ONCE: Final = 2000
"""Accounts that one pass removes at most; the next ones are removed by the next pass."""
PAUSE_SECONDS: Final = 0.02
"""Between two deletions, which are not urgent."""

log = structlog.get_logger(__name__)


class UsageRetention:
    """Removes accounts of ShareUsages, the oldest first.

    Args:
        context: the services that it uses.
    """

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._configuration = context.configuration
        self._wall_clock = context.wall_clock

    def register(self, program: Program) -> None:
        """Run in a program while it leads."""
        program.add_task(self.run, leading=True)

    async def run(self) -> None:
        """Remove accounts until cancelled."""
        while True:
            try:
                await self.remove()
            except ApiError as error:
                log.warning("accounts not removed, trying again later", reason=str(error))
            await asyncio.sleep(PASS_SECONDS)

    async def remove(self) -> None:
        """Remove what is too old or too much now, up to a bound.

        Raises:
            ApiError: they cannot be listed, or one cannot be deleted.
        """
        usage = self._configuration.now().usage
        oldest = self._wall_clock() - timedelta(days=usage.retention_days)
        listed = await self._client.list_each(SHARE_USAGES, _end)
        removed = to_remove(
            listed.items,
            before_ns=time_ns(micro_timestamp(oldest)),
            most=usage.objects,
            at_once=AT_ONCE,
        )
        for metadata in removed:
            try:
                await self._client.delete(
                    SHARE_USAGES,
                    metadata.name,
                    metadata.namespace,
                    resource_version=metadata.resource_version,
                )
            except (NotFoundError, ConflictError):
                continue  # it is gone, or its node has written it since
            await asyncio.sleep(PAUSE_SECONDS)
        if removed:
            log.info("accounts removed", count=len(removed), of=len(listed.items))


def _end(usage: ShareUsage) -> tuple[int, ObjectMeta]:
    """Until when it is; by its creation if that cannot be read, as when somebody edited it."""
    try:
        return time_ns(usage.status.observed_at), usage.metadata
    except ValueError:
        return time_ns(usage.metadata.creation_timestamp or "1970-01-01T00:00:00Z"), usage.metadata

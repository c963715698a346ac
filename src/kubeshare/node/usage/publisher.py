"""Writes the accounts of this node's grants into ShareUsages."""

from typing import Any, Final

import msgspec
import structlog

from kubeshare.api.types.constants import MANAGER_NODE
from kubeshare.api.types.share_usage import SHARE_USAGES
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import ApiError, InvalidError, NotFoundError
from kubeshare.kube.controller.controller import Controller, RequeueAfter
from kubeshare.node.usage.accounts import UsageAccounts

PUBLISH_SECONDS: Final = 600.0
"""How often the account of a present grant is written to the API server."""

log = structlog.get_logger(__name__)


class UsagePublisher:
    """A controller of ShareUsages, by their names.

    Args:
        client: writes them.
        accounts: this node's.

    Attributes:
        controller: runs it.
    """

    def __init__(self, client: Client, accounts: UsageAccounts) -> None:
        self._client = client
        self._accounts = accounts
        self.controller: Controller[str] = Controller("usage", self.publish)
        accounts.subscribe(self._changed)

    def _changed(self, name: str) -> None:
        record = self._accounts.read(name)
        if record is None or record.status.ended or record.status.duration_ns:
            self.controller.queue.add(name)
        else:
            # A pod that ends soon costs one write.
            self.controller.queue.add_after(name, PUBLISH_SECONDS)

    async def publish(self, name: str) -> RequeueAfter | None:
        """Write one account, and forget it once its end is written.

        Raises:
            ApiError: it cannot be written now.
        """
        record = self._accounts.read(name)
        if record is None:
            return None
        self._accounts.checkpoint([record.status.grant])
        record = self._accounts.read(name)
        assert record is not None
        metadata = {"name": name, "namespace": record.namespace}
        body: dict[str, Any] = {"metadata": metadata, "status": msgspec.to_builtins(record.status)}
        lost = ""
        try:
            await self._client.apply(SHARE_USAGES, body, field_manager=MANAGER_NODE, force=True)
        except InvalidError as error:
            lost = str(error)
        except ApiError as error:
            if not _is_of_namespace(error):
                raise
            log.info("account goes with its namespace", name=name, namespace=record.namespace)
        if not record.status.ended:
            return RequeueAfter(PUBLISH_SECONDS)
        self._accounts.forget(record, lost=lost)
        return None


def _is_of_namespace(error: ApiError) -> bool:
    """Whether the namespace is gone or being deleted, and its accounts with it."""
    is_gone = isinstance(error, NotFoundError) and error.details.get("kind") == "namespaces"
    return is_gone or any(cause.get("reason") == "NamespaceTerminating" for cause in error.causes)

"""Keeps GPUQuotas as the ConfigMap of gpu-admission describes them."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import structlog

from kubeshare.api.configuration import ConfigMap
from kubeshare.api.types.constants import MANAGER_DEVICES
from kubeshare.api.types.gpu_quota import GPUQUOTAS, GPULimit, GPUQuota
from kubeshare.core.errors import InvalidValueError
from kubeshare.device_manager.context import Context
from kubeshare.device_manager.quota.gaia_config import KEY, NAME, NAMESPACE, parse
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.client.errors import ForbiddenError, InvalidError, NotFoundError
from kubeshare.kube.controller.controller import Controller, RequeueAfter
from kubeshare.kube.controller.resync import add_resync
from kubeshare.kube.controller.runtime import Program
from kubeshare.kube.meta import Key
from kubeshare.kube.resources import CONFIG_MAPS

QUOTA_NAME: Final = "gaia"
"""The name of the GPUQuota in each namespace that the ConfigMap lists."""
LABEL_SOURCE: Final = "kubeshare.nthu/from"
SOURCE: Final = "gpu-admission"

RETRY_SECONDS: Final = 60.0
"""Seconds until a namespace that does not exist is looked for again."""

_CONFIG_MAP: Final = Key(NAMESPACE, NAME)

log = structlog.get_logger(__name__)


class GaiaQuotaController:
    """Turns the ConfigMap into GPUQuotas.

    Args:
        context: the state and the services that it uses.
    """

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._events = context.events
        self._gpuquotas = context.informers.gpuquotas
        self._configmaps: Reflector[ConfigMap] = Reflector(
            context.client,
            CONFIG_MAPS.into(ConfigMap),
            namespace=NAMESPACE,
            fields=f"metadata.name={NAME}",
        )

    def register(self, program: Program) -> None:
        """Run this controller in a program, with the watches that trigger it."""
        program.add_reflector(self._configmaps)
        controller: Controller[Key] = Controller("gaia-quotas", self.reconcile)
        controller.watch(self._configmaps, lambda _: (_CONFIG_MAP,))
        controller.watch(self._gpuquotas, lambda quota: (_CONFIG_MAP,) if _is_ours(quota) else ())
        program.add_controller(controller)
        add_resync(program, controller, lambda: (_CONFIG_MAP,))

    async def reconcile(self, key: Key) -> RequeueAfter | None:
        """Make the GPUQuotas those of the ConfigMap."""
        written = self._configmaps.store.by_key(key)
        try:
            wanted = parse(written.data.get(KEY, "{}")) if written else {}
        except InvalidValueError as error:
            log.error("the quotas of gpu-admission are not valid, the last stay", error=str(error))  # noqa: TRY400 - the words say it all
            if written is not None:
                self._events.invalid_quotas(written, str(error))
            return None
        present = filter(_is_ours, self._gpuquotas.store.snapshot().values())
        known = {quota.metadata.namespace: quota for quota in present}
        for namespace in known.keys() - wanted.keys():
            await self._delete(known[namespace])
        missing = False
        for namespace, limits in wanted.items():
            found = known.get(namespace)
            if found is None or found.spec.limits != limits:
                missing |= not await self._apply(namespace, limits, written)
        return RequeueAfter(RETRY_SECONDS) if missing else None

    async def _apply(
        self, namespace: str, limits: tuple[GPULimit, ...], written: ConfigMap | None
    ) -> bool:
        """Write the GPUQuota of a namespace; False if the namespace does not exist."""
        body = {
            "metadata": {"name": QUOTA_NAME, "labels": {LABEL_SOURCE: SOURCE}},
            "spec": {"limits": [_manifest(limit) for limit in limits]},
        }
        try:
            await self._client.apply(
                GPUQUOTAS, body, namespace, field_manager=MANAGER_DEVICES, force=True
            )
        except (NotFoundError, ForbiddenError) as error:
            # Nothing can be created in a namespace that is being deleted either.
            log.info("no GPUQuota can be written", namespace=namespace, error=str(error))
            return False
        except InvalidError as error:
            if written is not None:
                self._events.invalid_quotas(written, f"{namespace}: {error.message}")
        return True

    async def _delete(self, quota: GPUQuota) -> None:
        metadata = quota.metadata
        try:
            await self._client.delete(
                GPUQUOTAS, metadata.name, metadata.namespace, uid=metadata.uid
            )
        except NotFoundError:
            return


def _is_ours(quota: GPUQuota) -> bool:
    metadata = quota.metadata
    return metadata.name == QUOTA_NAME and metadata.labels.get(LABEL_SOURCE) == SOURCE


def _manifest(limit: GPULimit) -> Mapping[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(limit)
    return {key: value for key, value in fields.items() if value or key == "gpus"}

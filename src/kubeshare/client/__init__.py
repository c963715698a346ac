"""A typed client of KubeShare, for asyncio and for ordinary code.

    async with Cluster.connect() as cluster:
        await cluster.create(SharePod(name="train", spec=..., gpu=GPU(request=0.3, memory="4Gi")))
        ready = await cluster.wait("train", timeout=300)

:class:`SyncCluster` has the same methods without ``await``. ``docs/client.md`` shows both, and says
which names are stable: those of this module, and the results of ``explain`` and ``usage``.
"""

from kubeshare.api.types.v1 import AllocatedGPU
from kubeshare.client.cluster import Cluster
from kubeshare.client.errors import (
    DeletedError,
    FailedError,
    UnschedulableError,
    WaitError,
    WaitTimeoutError,
)
from kubeshare.client.sharepod import GPU, Change, SharePod, SharePodState
from kubeshare.client.sync import SyncCluster
from kubeshare.core.errors import InvalidValueError
from kubeshare.explain.errors import NotInstalledError
from kubeshare.kube.client.errors import (
    AlreadyExistsError,
    ApiError,
    ConfigError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    UnauthorizedError,
    UnreachableError,
)
from kubeshare.kube.meta import Condition

__all__ = [
    "GPU",
    "AllocatedGPU",
    "AlreadyExistsError",
    "ApiError",
    "Change",
    "Cluster",
    "Condition",
    "ConfigError",
    "DeletedError",
    "FailedError",
    "ForbiddenError",
    "InvalidError",
    "InvalidValueError",
    "NotFoundError",
    "NotInstalledError",
    "SharePod",
    "SharePodState",
    "SyncCluster",
    "UnauthorizedError",
    "UnreachableError",
    "UnschedulableError",
    "WaitError",
    "WaitTimeoutError",
]

"""What a controller knows of the cluster's GPUs: the pool, and what is around it."""

from collections.abc import Mapping

from kubeshare.api import cluster, ledger
from kubeshare.api.pool import Pool
from kubeshare.api.v1 import VGPU, GPUNode
from kubeshare.core.ledger import Ledger
from kubeshare.kube.api import Api
from kubeshare.kube.meta import Key
from kubeshare.kube.reflector import Reflector

_WHOLE_GPUS = "asks for whole GPUs"


class Inventory:
    """The pool of vGPUs, the nodes with their GPUs, and the pods.

    Args:
        api: where vGPUs are changed.
        manager: recorded as who changed them.
        vgpus: watches them.
        gpunodes: watches what the node agents found.
        nodes: watches the nodes.
        pods: watches all pods; it gets an index of those that ask for whole GPUs.

    Attributes:
        pool: the vGPUs.
    """

    def __init__(  # noqa: PLR0913 - four kinds of objects
        self,
        api: Api,
        manager: str,
        *,
        vgpus: Reflector[VGPU],
        gpunodes: Reflector[GPUNode],
        nodes: Reflector[cluster.Node],
        pods: Reflector[cluster.Pod],
    ) -> None:
        self.pool = Pool(api, vgpus, manager)
        self._gpunodes = gpunodes.store
        self._nodes = nodes.store
        self._pods = pods.store
        self._pods.add_index(_WHOLE_GPUS, lambda pod: [""] if pod.whole_gpus else [])

    @property
    def nodes(self) -> Mapping[Key, cluster.Node]:
        """All nodes as they are now."""
        return self._nodes.snapshot()

    def pod(self, key: Key) -> cluster.Pod | None:
        """The pod of that name, or None."""
        return self._pods.by_key(key)

    def ledger(self) -> Ledger:
        """The core's ledger of all this."""
        return ledger.build(
            self.pool.all(),
            self._gpunodes.snapshot().values(),
            self._nodes.snapshot().values(),
            self._pods.by_index(_WHOLE_GPUS, ""),
        )

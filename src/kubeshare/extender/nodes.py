"""Knows which nodes are dedicated to a manifest family."""

from collections.abc import Iterable, Iterator

from kubeshare.api.owned_nodes import family_of, is_owned
from kubeshare.api.types import core_v1
from kubeshare.api.types.v1 import GPUNode
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import Change


class FamilyNodes:
    """The owned nodes that are dedicated to pods of a manifest family.

    kube-scheduler waits for the answer to a call, so a pod is only placed on a GPU that is there:
    on other nodes KubeShare would have to get it from Kubernetes first.

    Args:
        family: the name of the family.
        nodes: watches the nodes.
        gpunodes: watches the GPUNodes.
    """

    def __init__(
        self, family: str, nodes: Reflector[core_v1.Node], gpunodes: Reflector[GPUNode]
    ) -> None:
        self._family = family
        self._nodes = nodes.store
        self._gpunodes = gpunodes.store
        self._names: set[str] = set()
        nodes.subscribe(self._changed)
        gpunodes.subscribe(self._changed)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def among(self, names: Iterable[str]) -> list[str]:
        """Those of these nodes that are dedicated to the family, in their order."""
        known = self._names
        return [name for name in names if name in known]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names))

    def exists(self, name: str) -> bool:
        """Whether there is a node of that name, of the family or not."""
        return self._nodes.get(name) is not None

    def gpus(self, name: str) -> GPUNode | None:
        """The GPUs of a node, or None."""
        return self._gpunodes.get(name)

    def _changed(self, change: Change[core_v1.Node] | Change[GPUNode]) -> None:
        name = change.object.metadata.name
        node = self._nodes.get(name)
        dedicated = node is not None and family_of(node) == self._family
        if dedicated and is_owned(self._gpunodes.get(name)):
            self._names.add(name)
        else:
            self._names.discard(name)

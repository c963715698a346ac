"""The GPUs of a node and their access-cost tree, from its GPUNode."""

from functools import cached_property

from kubeshare.api.link_matrix import matrix
from kubeshare.api.types.v1 import GPUDevice, GPUNodeSpec
from kubeshare.core.topology.links import flat, name_of
from kubeshare.core.topology.tree import Tree, bits


class NodeTopology:
    """How the GPUs of a node are linked.

    Args:
        name: the name of the node.
        spec: what its node agent found.

    Attributes:
        gpus: the GPUs in the order of their indexes.
        vanished: GPUs that the driver lists no more; another one may have their index.
    """

    def __init__(self, name: str, spec: GPUNodeSpec) -> None:
        self.name = name
        by_index: dict[int, GPUDevice] = {}
        self.vanished: list[GPUDevice] = []
        for gpu in sorted(spec.devices, key=lambda each: (not each.healthy, each.uuid)):
            if by_index.setdefault(gpu.index, gpu) is not gpu:
                self.vanished.append(gpu)
        self.gpus = [by_index[index] for index in sorted(by_index)]
        links = matrix(spec) or flat(max(by_index, default=-1) + 1)
        self._links = tuple(tuple(links[a][b] for b in sorted(by_index)) for a in sorted(by_index))

    @cached_property
    def tree(self) -> Tree:
        """The access-cost tree; its GPUs are positions in `gpus`."""
        return Tree(self._links)

    @cached_property
    def levels(self) -> list[list[str]]:
        """The name of the link between each two GPUs, ``X`` for a GPU and itself."""
        return [[name_of(level) for level in row] for row in self._links]

    @property
    def root(self) -> int | None:
        """The number of the group that contains all GPUs; None for fewer than two."""
        return len(self.tree.groups) - 1 if self.tree.groups else None

    def members(self, number: int) -> list[tuple[int, int | None]]:
        """The groups and GPUs in a group, in the order of their first GPU, as drawings have them.

        Returns:
            That GPU, and the number of the group; None for a GPU itself.
        """
        groups = self.tree.groups
        group = groups[number]
        found: list[tuple[int, int | None]] = [
            (bits(groups[child].members)[0], child) for child in group.children
        ]
        found += [(leaf, None) for leaf in group.leaves]
        return sorted(found, key=lambda member: member[0])

"""The links between a node's GPUs, and the closest sets of them.

The input is a matrix of levels, one for each pair of GPUs (:mod:`.links`). It comes from NVML,
from the text of ``nvidia-smi topo -m`` (:mod:`.nvidia_smi`) or from a tree in bracket notation
(:mod:`.notation`). From the matrix follows the access-cost tree of the Gaia paper
(:mod:`.tree`), and from both the best set of n idle GPUs (:mod:`.selection`, :mod:`.subsets`).
Nothing here depends on nodes, models or holders: GPUs are the bits of an int, and
:mod:`kubeshare.core.policies.topology` maps them to devices. :mod:`.cpus` selects the CPU cores
near a GPU.
"""

from kubeshare.core.topology.links import Level, Links, check_links, nvlink
from kubeshare.core.topology.notation import read_notation
from kubeshare.core.topology.nvidia_smi import read_matrix

__all__ = ["Level", "Links", "check_links", "nvlink", "read_matrix", "read_notation"]

"""How far a node's GPUs are from each other, and which set of them is closest together.

What is known of a node is a matrix of levels, one a pair of GPUs (:mod:`.links`). It
comes from NVML, from the text of ``nvidia-smi topo -m`` (:mod:`.nvidia_smi`) or from
people, who write a tree with brackets (:mod:`.notation`). Out of the matrix follows
the access-cost tree of the Gaia paper (:mod:`.tree`), and out of both the best set of n
idle GPUs (:mod:`.closest`). Nothing here knows of nodes, models or holders: GPUs are the
bits of an int, and :mod:`kubeshare.core.policies.topology.policy` puts names to them.
"""

from kubeshare.core.topology.links import Level, Links, check_links
from kubeshare.core.topology.notation import read_notation
from kubeshare.core.topology.nvidia_smi import read_matrix

__all__ = ["Level", "Links", "check_links", "read_matrix", "read_notation"]

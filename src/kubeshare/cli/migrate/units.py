"""Checks that a gpushare node counts in the configured unit."""

from kubeshare.api.configuration import GpushareConfiguration
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.api.types.core_v1 import Node, resource_count
from kubeshare.api.types.v1 import GPUNode
from kubeshare.core.units import GI, MI
from kubeshare.dialects.families import Family
from kubeshare.dialects.gpushare import GPU_MEMORY

_UNITS = {"GiB": GI, "MiB": MI}


def unit_problem(
    family: Family, node: Node, found: GPUNode | None, configuration: GpushareConfiguration
) -> str:
    """Why the unit of a node is not the configured one; "" if it is, or nothing is offered."""
    offered = resource_count(node.status.allocatable.get(GPU_MEMORY, 0))
    if GPU_MEMORY not in family.resources or found is None or not offered:
        return ""
    sums = {
        name: sum(gpu.memory_bytes // unit for gpu in found.spec.devices)
        for name, unit in _UNITS.items()
    }
    nearest = min(sums, key=lambda name: abs(sums[name] - offered))
    if nearest == configuration.memory_unit:
        return ""
    return (
        f"the node offers {offered} of {GPU_MEMORY}, which are {nearest}, and KubeShare counts in "
        f"{configuration.memory_unit}: set gpushare.memoryUnit: {nearest} in ConfigMap kubeshare "
        f"of namespace {NAMESPACE}"
    )

"""Three policies that the evaluation of FGD compares with: DotProd, GpuPacking, GpuClustering.

Weng et al., USENIX ATC '23, section 6.1. Ties go to the first node by name.
"""

from collections import Counter
from typing import TypeAlias

from kubeshare.core.units import MICROS
from kubeshare.simulator.baselines.node_rooms import Ask, GpuRoom, NodeRoom

Placed: TypeAlias = "tuple[float, tuple[str, ...]] | None"


class DotProduct:
    """The node where the products of what is left and what is asked for have the least sum.

    After the packing of several resources of Tetris (Grandl et al., SIGCOMM '14), as FGD's
    evaluation has it. GPUs and CPUs count as parts of the largest node.

    Args:
        most_gpus: the GPUs of the largest node.
        most_cpu_millis: its thousandths of CPUs; 0 if they are not counted.
    """

    def __init__(self, most_gpus: int, most_cpu_millis: int) -> None:
        self._micros = max(1, most_gpus) * MICROS
        self._cpu_millis = max(1, most_cpu_millis)

    def __call__(self, room: NodeRoom, ask: Ask) -> Placed:
        """Rank a node."""
        gpus = ask.fitting(room)
        if gpus is None:
            return None
        asked, has = ask.micros * ask.count / self._micros, room.micros / self._micros
        cpus = ask.host.cpu_millis * room.cpu_millis / self._cpu_millis**2
        return asked * has + cpus, _fullest(gpus, ask)


def gpu_packing(room: NodeRoom, ask: Ask) -> Placed:
    """GPUs in use before idle ones, on nodes in use before idle ones; the fullest first.

    The policy of Alibaba's PAI (Weng et al., NSDI '22).
    """
    gpus = ask.fitting(room)
    if gpus is None:
        return None
    taken = sorted(gpus, key=_by_room)[: ask.count]
    devices = tuple(gpu.id for gpu in taken)
    idle = sum(gpu.micros == MICROS for gpu in room.gpus)
    opened = sum(gpu.micros == MICROS for gpu in taken)
    most = len(room.gpus) + 1.0
    if idle == len(room.gpus):
        return 2 * most + idle, devices
    if opened:
        return most + opened, devices
    return sum(gpu.micros for gpu in taken) / MICROS, devices


def gpu_clustering(room: NodeRoom, ask: Ask) -> Placed:
    """Jobs that ask for GPUs alike share a node; of such nodes the fullest.

    The placement of Gandiva (Xiao et al., OSDI '18): shares are alike, and jobs of as many whole
    GPUs. First nodes with such jobs alone, then among others, then idle nodes, then the rest.
    """
    gpus = ask.fitting(room)
    if gpus is None:
        return None
    there, mine = kinds_of_jobs(room), 0 if ask.shares else ask.count
    if there == {mine}:
        place = 0
    elif mine in there:
        place = 1
    else:
        place = 3 if there else 2
    most = MICROS * (len(room.gpus) + 1)
    return place + room.micros / most, _fullest(gpus, ask)


def kinds_of_jobs(room: NodeRoom) -> frozenset[int]:
    """How many whole GPUs each job of a node has; 0 for a share."""
    gpus: Counter[str] = Counter()
    shares = set()
    for gpu in room.gpus:
        for holder in gpu.device.holders:
            gpus[holder.demand] += 1
            if holder.request_micros < MICROS:
                shares.add(holder.demand)
    return frozenset(0 if demand in shares else count for demand, count in gpus.items())


def _fullest(gpus: list[GpuRoom], ask: Ask) -> tuple[str, ...]:
    return tuple(gpu.id for gpu in sorted(gpus, key=_by_room)[: ask.count])


def _by_room(gpu: GpuRoom) -> tuple[int, int]:
    return gpu.micros, gpu.index

"""First, best and worst fit."""

from kubeshare.core.units import MICROS
from kubeshare.simulator.baselines.node_rooms import Ask, GpuRoom, NodeRoom


def first_fit(room: NodeRoom, ask: Ask) -> tuple[float, tuple[str, ...]] | None:
    """All nodes alike, so that the first by name is taken, and its first GPUs."""
    gpus = ask.fitting(room)
    if gpus is None:
        return None
    return 0.0, tuple(gpu.id for gpu in gpus[: ask.count])


class Fit:
    """The node with the least left of GPUs and CPUs, or the most, and such GPUs there.

    As in the published simulator of FGD, both count half, as parts of the largest node.

    Args:
        worst: whether the most is taken.
        most_gpus: the GPUs of the largest node.
        most_cpu_millis: its thousandths of CPUs; 0 if they are not counted.
    """

    def __init__(self, *, worst: bool, most_gpus: int, most_cpu_millis: int) -> None:
        self._sign = -1 if worst else 1
        self._micros = max(1, most_gpus) * MICROS
        self._cpu_millis = most_cpu_millis

    def __call__(self, room: NodeRoom, ask: Ask) -> tuple[float, tuple[str, ...]] | None:
        """Rank a node."""
        gpus = ask.fitting(room)
        if gpus is None:
            return None
        left = (room.micros - ask.micros * ask.count) / self._micros
        if self._cpu_millis:
            left += (room.cpu_millis - ask.host.cpu_millis) / self._cpu_millis
        gpus.sort(key=self._order)
        return self._sign * left, tuple(gpu.id for gpu in gpus[: ask.count])

    def _order(self, gpu: GpuRoom) -> tuple[int, int]:
        return self._sign * gpu.micros, gpu.index

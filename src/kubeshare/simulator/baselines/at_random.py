"""A random node of those that fit, and random GPUs there."""

from random import Random

from kubeshare.simulator.baselines.node_rooms import Ask, NodeRoom
from kubeshare.simulator.baselines.ranked import Entry, RankedNodes, Ranking


class RandomNodes(RankedNodes):
    """Places each job at random.

    Args:
        seed: of the random numbers.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(_all_alike)
        self._random = Random(seed)  # noqa: S311 - repeatable on purpose

    def choose(self, ranking: Ranking, nodes: frozenset[str] | None, ask: Ask) -> Entry | None:
        """A random one; its devices are as many as are asked for."""
        entries = {entry.node: entry for entry in ranking.entries(nodes)}
        if not entries:
            return None
        chosen = entries[self._random.choice(sorted(entries))]
        return chosen._replace(devices=tuple(self._random.sample(chosen.devices, ask.count)))


def _all_alike(room: NodeRoom, ask: Ask) -> tuple[float, tuple[str, ...]] | None:
    gpus = ask.fitting(room)
    return None if gpus is None else (0.0, tuple(gpu.id for gpu in gpus))

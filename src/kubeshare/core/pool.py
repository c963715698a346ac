"""How many vGPUs a node keeps when nobody holds them, makes ahead of demand, and lets go.

Section 4.4 of the paper: to keep an idle vGPU saves the next container the time in which a
GPU is acquired from Kubernetes, and keeps that GPU from everybody else meanwhile. Pure
arithmetic on counts. What it asks for is a fixed point: once all of it has been done, it
asks for nothing more until something else changes or time has passed.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

FOREVER: Final = float("inf")


class PoolSettings(Struct, frozen=True, kw_only=True):
    """What a pool policy comes to on one node.

    Attributes:
        keep: seconds for which an idle vGPU is kept: 0 on demand, ``FOREVER`` by reservation.
        minimum: vGPUs that the node has at least, idle or held, and gives to nobody else.
        warm: idle vGPUs that it has ready as long as it has GPUs for them.
    """

    keep: float = 0.0
    minimum: int = 0
    warm: int = 0


class IdleVGPU(Struct, frozen=True, kw_only=True):
    """A vGPU without holders.

    Attributes:
        id: its name.
        seconds: for how long it has been idle.
        not_before: seconds that it stays whatever the policy says, as somebody is about to
            take a part of it.
        ready: whether it has its GPU.
        useless: it can take nobody any more.
    """

    id: str
    seconds: float = 0.0
    not_before: float = 0.0
    ready: bool = True
    useless: bool = False


class NodePool(Struct, frozen=True, kw_only=True):
    """The vGPUs of a node, and its other GPUs.

    Attributes:
        held: vGPUs with holders.
        idle: vGPUs without.
        free: GPUs that nobody has or has been promised; below 0 where more are promised than
            there are.
        freeing: GPUs that are on their way back from vGPUs.
        makes: whether new ones may be made here now.
    """

    held: int = 0
    idle: tuple[IdleVGPU, ...] = ()
    free: int = 0
    freeing: int = 0
    makes: bool = True

    @property
    def available(self) -> int:
        """GPUs that are free, or will be in a moment: those of useless vGPUs go in any case."""
        return self.free + self.freeing + sum(each.useless for each in self.idle)

    def yielding(self, terms: PoolSettings) -> int:
        """How many of the idle ones may give way to whole-GPU pods."""
        may_go = sum(_may_go(each) for each in self.idle)
        above = self.held + sum(not each.useless for each in self.idle) - terms.minimum
        return max(0, min(may_go, above))


class Plan(Struct, frozen=True, kw_only=True):
    """What is to be done on a node now.

    Attributes:
        make: how many vGPUs.
        release: the ids of those to give back.
        again: seconds after which another answer may be right though nothing else changed.
    """

    make: int = 0
    release: tuple[str, ...] = ()
    again: float | None = None


def plan(pool: NodePool, terms: PoolSettings, claimed: int | None = None) -> Plan:
    """What is to be done on a node.

    Args:
        pool: the node as it is.
        terms: of its policy.
        claimed: GPUs of this node that pods waiting for whole GPUs claim (see
            :func:`claimed_gpus`); None where none of them could run here. While one could,
            nothing is made: a vGPU made now might have to be given back at once.
    """
    going = [each.id for each in pool.idle if each.useless]
    usable = [each for each in pool.idle if not each.useless]
    known = len(usable)
    candidates = sorted((each for each in usable if _may_go(each)), key=_first_to_go)
    floor = max(0, terms.minimum - pool.held)
    expired = [each for each in candidates if each.seconds >= terms.keep]
    count = min(len(expired), max(0, known - max(floor, terms.warm)))
    ordered = [*expired, *(each for each in candidates if each.seconds < terms.keep)]
    available = pool.available
    # The pool's own shortage may take reserved ones: what they make room for is of the pool too.
    count = max(count, -available, min((claimed or 0) - available, known - floor))
    going += [each.id for each in ordered[:count]]
    wanted = max(terms.minimum - pool.held - known, terms.warm - known)
    make = max(0, min(wanted, pool.free)) if pool.makes and claimed is None else 0
    left = [each for each in pool.idle if each.id not in going]
    return Plan(make=make, release=tuple(going), again=_next(left, terms))


class PendingPod(Struct, frozen=True, kw_only=True):
    """A pod that waits for whole GPUs: how many, and the nodes on which it could run."""

    gpus: int
    nodes: frozenset[str]


def claimed_gpus(
    waiting: Sequence[PendingPod], pools: Mapping[str, NodePool], terms: Mapping[str, PoolSettings]
) -> dict[str, int]:
    """How many GPUs of each node are to go to pods that wait for whole ones.

    Each pod claims GPUs of one node: of the one that has them free already, with the fewest to
    spare; else of the one where the fewest idle vGPUs have to give way. Where even all of these
    would not be enough, it claims none, and none gives way in vain. The answer has every node on
    which one of the pods could have as many GPUs as it asks for, though it may claim none there.

    Args:
        waiting: whoever comes first is served first.
        pools: the nodes.
        terms: of the policy of each.
    """
    left = {name: pool.available for name, pool in pools.items()}
    spare = {name: pool.yielding(terms[name]) for name, pool in pools.items()}
    claimed = {
        name: 0
        for waiter in waiting
        for name in sorted(waiter.nodes & pools.keys())
        if left[name] + spare[name] >= waiter.gpus
    }
    for waiter in waiting:
        node = _node_for(waiter, left, spare)
        if node is not None:
            left[node] -= waiter.gpus
            claimed[node] += waiter.gpus
    return claimed


def _node_for(waiter: PendingPod, left: Mapping[str, int], spare: Mapping[str, int]) -> str | None:
    known: Iterable[str] = waiter.nodes & left.keys()
    enough = [name for name in known if left[name] + spare[name] >= waiter.gpus]
    # How many have to give way, then how many stay free beyond what is needed.
    return min(
        enough,
        key=lambda name: (max(0, waiter.gpus - left[name]), left[name], name),
        default=None,
    )


def _may_go(each: IdleVGPU) -> bool:
    return not each.useless and each.seconds >= each.not_before


def _first_to_go(each: IdleVGPU) -> tuple[bool, float, str]:
    """Those without a GPU help others at once and have cost nothing; then the longest idle."""
    return each.ready, -each.seconds, each.id


def _next(left: Iterable[IdleVGPU], terms: PoolSettings) -> float | None:
    waits = [
        wait - each.seconds
        for each in left
        for wait in (each.not_before, max(each.not_before, terms.keep))
        if each.seconds < wait < FOREVER
    ]
    return min(waits, default=None)

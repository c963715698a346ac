"""Pool policies: how many idle vGPUs a node keeps and creates.

Section 4.4 of the paper: an idle vGPU saves the next container the time to acquire a GPU from
Kubernetes, but withholds that GPU from other pods. Pure arithmetic on counts. A plan is a fixed
point: once it has been carried out, the next one is empty until something changes or time has
passed.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

FOREVER: Final = float("inf")


class PoolSettings(Struct, frozen=True, kw_only=True):
    """The settings of the pool policy for one node.

    Attributes:
        keep: seconds for which an idle vGPU is kept: 0 on demand, ``FOREVER`` by reservation.
        minimum: the least number of vGPUs, idle or held; they yield to no other pod.
        warm: idle vGPUs to keep ready while the node has GPUs for them.
    """

    keep: float = 0.0
    minimum: int = 0
    warm: int = 0


class IdleVGPU(Struct, frozen=True, kw_only=True):
    """A vGPU without holders.

    Attributes:
        id: its name.
        seconds: for how long it has been idle.
        not_before: seconds for which it stays in any case, since a holder may be about to
            be added.
        ready: whether it has its GPU.
        useless: whether it can take no holder any more.
    """

    id: str
    seconds: float = 0.0
    not_before: float = 0.0
    ready: bool = True
    useless: bool = False


class NodePool(Struct, frozen=True, kw_only=True):
    """The vGPUs of a node, and its other GPUs.

    Attributes:
        held: the number of vGPUs with holders.
        idle: the vGPUs without holders.
        free: GPUs that are neither in use nor promised; negative if more are promised than
            exist.
        freeing: GPUs that vGPUs are giving back.
        makes: whether new vGPUs may be created here now.
    """

    held: int = 0
    idle: tuple[IdleVGPU, ...] = ()
    free: int = 0
    freeing: int = 0
    makes: bool = True

    @property
    def available(self) -> int:
        """GPUs that are free or soon will be; those of useless vGPUs are released in any case."""
        return self.free + self.freeing + sum(each.useless for each in self.idle)

    def yielding(self, settings: PoolSettings) -> int:
        """How many idle vGPUs may yield to whole-GPU pods."""
        may_go = sum(_may_go(each) for each in self.idle)
        above = self.held + sum(not each.useless for each in self.idle) - settings.minimum
        return max(0, min(may_go, above))


class Plan(Struct, frozen=True, kw_only=True):
    """What to do on a node now.

    Attributes:
        make: how many vGPUs to create.
        release: the ids of the vGPUs to give back.
        again: seconds after which the plan may change even if nothing else does; None if never.
    """

    make: int = 0
    release: tuple[str, ...] = ()
    again: float | None = None


def plan(pool: NodePool, settings: PoolSettings, claimed: int | None = None) -> Plan:
    """Plan what to do on a node.

    Args:
        pool: the present state of the node.
        settings: the settings of its pool policy.
        claimed: GPUs of this node that pods waiting for whole GPUs claim (see
            :func:`claimed_gpus`); None where none of them could run here. While one could,
            nothing is made: a vGPU made now might have to be given back at once.
    """
    release = [each.id for each in pool.idle if each.useless]
    usable = [each for each in pool.idle if not each.useless]
    known = len(usable)
    candidates = sorted((each for each in usable if _may_go(each)), key=_first_to_go)
    floor = max(0, settings.minimum - pool.held)
    expired = [each for each in candidates if each.seconds >= settings.keep]
    count = min(len(expired), max(0, known - max(floor, settings.warm)))
    ordered = [*expired, *(each for each in candidates if each.seconds < settings.keep)]
    available = pool.available
    # A shortage within the pool may take reserved vGPUs: they make room for vGPUs too.
    count = max(count, -available, min((claimed or 0) - available, known - floor))
    release += [each.id for each in ordered[:count]]
    wanted = max(settings.minimum - pool.held - known, settings.warm - known)
    make = max(0, min(wanted, pool.free)) if pool.makes and claimed is None else 0
    left = [each for each in pool.idle if each.id not in release]
    return Plan(make=make, release=tuple(release), again=_next(left, settings))


class PendingPod(Struct, frozen=True, kw_only=True):
    """A pending pod: how many whole GPUs it asks for, and the nodes on which it could run."""

    gpus: int
    nodes: frozenset[str]


def claimed_gpus(
    waiting: Sequence[PendingPod],
    pools: Mapping[str, NodePool],
    settings: Mapping[str, PoolSettings],
) -> dict[str, int]:
    """How many GPUs of each node pending whole-GPU pods claim.

    Each pod claims GPUs of one node: the node that has them free with the fewest to spare, else
    the node where the fewest idle vGPUs have to yield. If even all of those would not suffice,
    the pod claims none, so no vGPU yields for nothing. The result has every node on which a pod
    could get as many GPUs as it asks for, even if no pod claims any there.

    Args:
        waiting: the pending pods, the first served first.
        pools: the nodes.
        settings: the pool settings of each node.
    """
    left = {name: pool.available for name, pool in pools.items()}
    spare = {name: pool.yielding(settings[name]) for name, pool in pools.items()}
    claimed = {
        name: 0
        for pod in waiting
        for name in sorted(pod.nodes & pools.keys())
        if left[name] + spare[name] >= pod.gpus
    }
    for pod in waiting:
        node = _node_for(pod, left, spare)
        if node is not None:
            left[node] -= pod.gpus
            claimed[node] += pod.gpus
    return claimed


def _node_for(pod: PendingPod, left: Mapping[str, int], spare: Mapping[str, int]) -> str | None:
    known: Iterable[str] = pod.nodes & left.keys()
    enough = [name for name in known if left[name] + spare[name] >= pod.gpus]
    # By how many have to yield, then by how many stay free beyond the claim.
    return min(
        enough,
        key=lambda name: (max(0, pod.gpus - left[name]), left[name], name),
        default=None,
    )


def _may_go(each: IdleVGPU) -> bool:
    return not each.useless and each.seconds >= each.not_before


def _first_to_go(each: IdleVGPU) -> tuple[bool, float, str]:
    """VGPUs without a GPU first, since they cost nothing; then those idle the longest."""
    return each.ready, -each.seconds, each.id


def _next(left: Iterable[IdleVGPU], settings: PoolSettings) -> float | None:
    waits = [
        wait - each.seconds
        for each in left
        for wait in (each.not_before, max(each.not_before, settings.keep))
        if each.seconds < wait < FOREVER
    ]
    return min(waits, default=None)

"""Decides how a placeholder gets a certain GPU. Pure.

A device plugin chooses the GPU of each pod, so a placeholder gets a certain one only while it is
the only free one. Filler pods take all free GPUs of the node; the node agent reports which filler
has which; one that has a right GPU is deleted, and the placeholder takes its place. This is done
for one vGPU after the other. Afterwards the fillers are deleted.
"""

from collections.abc import Sequence

from msgspec import Struct


class Gpu(Struct, frozen=True, kw_only=True):
    """A healthy GPU of the node that neither a placeholder nor another pod has.

    Attributes:
        uuid: its UUID.
        filler: the name of the filler pod that has it, as the node agent reports; ``""`` if none.
    """

    uuid: str
    filler: str = ""


class Filler(Struct, frozen=True, kw_only=True):
    """A filler pod of the node.

    Attributes:
        name: its name.
        bound: whether it has a GPU, or is about to get one.
        ending: whether it is being deleted.
    """

    name: str
    bound: bool = True
    ending: bool = False


class Seeker(Struct, frozen=True, kw_only=True):
    """A vGPU that has to get one of certain GPUs.

    Attributes:
        vgpu: its name.
        accepts: the UUIDs of these GPUs.
        has_placeholder: whether its placeholder exists.
        misplaced: whether its placeholder got another GPU, and may exist still.
    """

    vgpu: str
    accepts: frozenset[str]
    has_placeholder: bool = False
    misplaced: bool = False


class Step(Struct, frozen=True, kw_only=True):
    """What to do now; nothing means to wait.

    Attributes:
        fill: how many filler pods to create.
        remove: the filler pods to delete.
        create: the vGPU whose placeholder is to be created; ``""`` for none.
        release: the vGPU whose misplaced placeholder is to be deleted; ``""`` for none.
    """

    fill: int = 0
    remove: tuple[str, ...] = ()
    create: str = ""
    release: str = ""


def possible(seeker: Seeker, gpus: Sequence[Gpu]) -> bool:
    """Whether a vGPU may get one of its GPUs: it has a placeholder, or one is not taken."""
    return seeker.has_placeholder or any(gpu.uuid in seeker.accepts for gpu in gpus)


def plan(
    seekers: Sequence[Seeker],
    gpus: Sequence[Gpu],
    fillers: Sequence[Filler],
    free: int,
    *,
    unreported: int = 0,
) -> Step:
    """The next step on one node.

    Args:
        seekers: the vGPUs, in the order in which they get their GPUs.
        gpus: the GPUs that may be given out.
        fillers: the filler pods.
        free: the number of GPUs that the node offers and no bound pod has.
        unreported: the number of GPUs that bound pods have, and the node has not reported yet.
    """
    for seeker in seekers:
        if seeker.misplaced:
            return Step(release=seeker.vgpu)
    waiting = [seeker for seeker in seekers if possible(seeker, gpus)]
    if not waiting:
        return Step(remove=tuple(each.name for each in fillers if not each.ending))
    if any(seeker.has_placeholder for seeker in waiting) or any(each.ending for each in fillers):
        return Step()
    unbound = tuple(filler.name for filler in fillers if not filler.bound)
    if free > len(unbound) and not _all_right(waiting[0], gpus, fillers):
        return Step(fill=free - len(unbound))
    if unreported:
        return Step()
    return _next(waiting[0], gpus, fillers, free)


def _next(seeker: Seeker, gpus: Sequence[Gpu], fillers: Sequence[Filler], free: int) -> Step:
    """The next step once the node has reported who has which GPU."""
    present = {filler.name for filler in fillers}
    unbound = tuple(filler.name for filler in fillers if not filler.bound)
    if free > 0 and _all_right(seeker, gpus, fillers):
        # An unbound filler would compete for the GPU.
        return Step(remove=unbound) if unbound else Step(create=seeker.vgpu)
    if free > 0:
        return Step()
    if unbound:
        return Step(remove=unbound)
    right = [gpu.filler for gpu in gpus if gpu.uuid in seeker.accepts and gpu.filler in present]
    return Step(remove=tuple(right[:1]))


def _all_right(seeker: Seeker, gpus: Sequence[Gpu], fillers: Sequence[Filler]) -> bool:
    """Whether a vGPU may get any GPU that no filler has, by the reports."""
    present = {filler.name for filler in fillers}
    unfilled = {gpu.uuid for gpu in gpus if gpu.filler not in present}
    return bool(unfilled) and unfilled <= seeker.accepts

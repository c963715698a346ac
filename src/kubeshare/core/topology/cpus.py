"""CPU binding of the Gaia paper: the cores near a GPU.

Gaia binds each GPU to its nearest n cores: those of the GPU's own CPU list, which the kernel and
NVML give for its NUMA node. A *core* is a physical one: its SMT siblings are never separated,
since two tenants on one core slow each other down. Unused cores go first, so tenants of a GPU or
a socket stay apart while there are enough; then those with the fewest tenants are shared.

Nothing calls this module yet. The node's CPU binding for Gaia's manifests (``tencent.com/…``)
will: :func:`read_cpu_list` for the ``local_cpulist`` of a GPU, :func:`choose_cpus` for the cpuset
of a container.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from kubeshare.core.errors import InvalidValueError

_RANGE: Final = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")
_MAX_LENGTH: Final = 1 << 16
_MAX_CPUS: Final = 1 << 16


def choose_cpus(
    gpus: Iterable[frozenset[int]],
    cores: int,
    tenants: Mapping[str, Collection[int]],
    siblings: Iterable[frozenset[int]],
) -> frozenset[int] | None:
    """The CPUs for a demand that was placed on certain GPUs.

    Args:
        gpus: for each GPU the CPUs near it; empty if unknown.
        cores: how many cores each GPU gets; 0 for all that are near.
        tenants: present tenant → its CPUs.
        siblings: the CPUs of each core; a CPU in none of them is a core of its own.

    Returns:
        the union over the GPUs of their nearest `cores` cores, fewer if fewer are near; None,
        for no change, if the CPUs near a GPU are unknown.

    Raises:
        ValueError: `cores` is negative.
    """
    if cores < 0:
        raise ValueError(f"{cores} cores are less than none")
    near = list(gpus)
    if not near or not all(near):
        return None
    core_of = {cpu: core for core in siblings for cpu in core}
    taken = Counter(cpu for cpus in tenants.values() for cpu in set(cpus))
    chosen: set[int] = set()
    # GPUs with fewer cores nearby choose first; the order of the list must not matter.
    for cpus in sorted(near, key=lambda cpus: (len(cpus), sorted(cpus))):
        around = {core_of.get(cpu, frozenset([cpu])) & cpus for cpu in cpus}
        ordered = sorted(around, key=lambda core: (max(taken[cpu] for cpu in core), min(core)))
        for core in ordered[: cores or None]:
            chosen |= core
            # The other GPUs of the demand count this core as used.
            taken.update(core)
    return frozenset(chosen)


def read_cpu_list(text: str, field: str) -> frozenset[int]:
    """Parse a CPU list in the kernel's format: ``0-13,28-41``; empty text is no CPU.

    Raises:
        InvalidValueError: it is no such list; under the name `field`.
    """
    cpus: set[int] = set()
    if len(text) > _MAX_LENGTH:
        raise InvalidValueError(field, f"is longer than {_MAX_LENGTH} characters")
    for item in text.strip().split(",") if text.strip() else ():
        match = _RANGE.fullmatch(item.strip())
        if match is None:
            raise InvalidValueError(field, f'"{item}" is not a CPU such as 3, or several as 0-13')
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last >= _MAX_CPUS:
            raise InvalidValueError(field, f'"{item}" is not within 0-{_MAX_CPUS - 1}')
        cpus.update(range(first, last + 1))
    return frozenset(cpus)

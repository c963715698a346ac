"""Which CPU cores go with a GPU: the Gaia paper binds each GPU to its nearest n cores.

Nearest are the cores of the GPU's own list, which the kernel and NVML give for the NUMA
node that the GPU hangs on. A *core* here is a physical one: its SMT siblings are never
parted, since two tenants on one core slow each other down. Cores that nobody has go
first, so tenants of a GPU or a socket stay apart while there are enough; after that
those that the fewest tenants have are shared.

Who applies the answer (cpuset, affinity) is not said here.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from kubeshare.core.errors import InvalidValueError

_RANGE: Final = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")
_LONGEST: Final = 1 << 16
_MOST_CPUS: Final = 1 << 16


def choose_cpus(
    gpus: Iterable[frozenset[int]],
    cores: int,
    tenants: Mapping[str, Collection[int]],
    siblings: Iterable[frozenset[int]],
) -> frozenset[int] | None:
    """The CPUs for a demand that has got certain GPUs.

    Args:
        gpus: for each of its GPUs the CPUs near it; empty where that is not known.
        cores: how many cores go with each GPU; 0 is all that are near.
        tenants: those who are there already → the CPUs that they have.
        siblings: the CPUs of each core. A CPU that is in none is a core of its own.

    Returns:
        the union over the GPUs of their nearest `cores` cores, fewer where fewer are
        near. None, change nothing, when the place of a GPU is not known.

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
    # GPUs with fewer cores around choose first; the order of listing must not matter.
    for cpus in sorted(near, key=lambda cpus: (len(cpus), sorted(cpus))):
        around = {core_of.get(cpu, frozenset([cpu])) & cpus for cpu in cpus}
        ordered = sorted(around, key=lambda core: (max(taken[cpu] for cpu in core), min(core)))
        for core in ordered[: cores or None]:
            chosen |= core
            # For the other GPUs of the demand this core is taken.
            taken.update(core)
    return frozenset(chosen)


def read_cpu_list(text: str, field: str) -> frozenset[int]:
    """Read a list of CPUs as the kernel writes it: ``0-13,28-41``; no text is no CPU.

    Raises:
        InvalidValueError: it is not such a list.
    """
    cpus: set[int] = set()
    if len(text) > _LONGEST:
        raise InvalidValueError(field, f"is longer than {_LONGEST} characters")
    for part in text.strip().split(",") if text.strip() else ():
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise InvalidValueError(field, f'"{part}" is not a CPU such as 3, or several as 0-13')
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last >= _MOST_CPUS:
            raise InvalidValueError(field, f'"{part}" is not within 0-{_MOST_CPUS - 1}')
        cpus.update(range(first, last + 1))
    return frozenset(cpus)

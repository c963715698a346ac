"""Chooses the CPUs for containers with GPUs, as in the Gaia paper.

Gaia binds each GPU to its nearest n cores: those of the GPU's NUMA node, which the kernel
lists for each PCI device. A *core* is a physical one: its SMT siblings stay together, since two
tenants on one core slow each other down.

The choice is made for all containers of a node at once, from the CPUs that they are bound to
now, so nothing has to be remembered between two choices.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from typing import TypeAlias

from msgspec import Struct

from kubeshare.core.topology.cpus import Cpus

_Pool: TypeAlias = Mapping[int, Cpus]
"""First CPU of each core → those of its CPUs that a tenant may have."""


class Tenant(Struct, frozen=True, kw_only=True):
    """A container that uses GPUs.

    Attributes:
        near: for each of its GPUs the CPUs near it; empty if unknown.
        allowed: the CPUs that it may use at all.
        cores: how many cores it gets for each GPU; None for all that are near.
        bound: the CPUs that it is bound to now; empty if it is not bound.
        cpu_request: the CPU time that it requests, in thousandths of a CPU.
    """

    near: tuple[Cpus, ...]
    allowed: Cpus
    cores: int | None = None
    bound: Cpus = frozenset()
    cpu_request: int = 0


class Binding(Struct, frozen=True):
    """The CPUs for the containers of a node.

    Attributes:
        cpus: tenant → the CPUs to bind it to: never none, and fewer than it is allowed. The
            others are not to be bound: the CPUs near their GPUs are unknown, are all that they
            are allowed, or have no room.
        without_room: the tenants for whose CPU requests there is no room.
    """

    cpus: Mapping[str, Cpus]
    without_room: frozenset[str]


def bind_cpus(tenants: Mapping[str, Tenant], cores: Iterable[Cpus]) -> Binding:
    """Choose the CPUs of the containers of a node.

    A tenant with a number of cores shares none while another one near its GPUs is free, and
    keeps those it is bound to as far as that allows. It gets more than its number if it requests
    more CPU time than they have. A tenant is not bound if the CPUs near its GPUs have no room for
    its CPU request beside those of the others: the node has promised it that time.

    Args:
        tenants: by a name.
        cores: the CPUs (SMT siblings) of each core; a CPU in none of them is a core of its own.
    """
    # Those that are bound come first: a newcomer never displaces them.
    order = sorted(tenants, key=lambda name: (not tenants[name].bound, name))
    near = {name: found for name in order if (found := _near(tenants[name]))}
    admitted = list(_with_room(near, tenants))
    core_of = {cpu: core for core in cores for cpu in core}
    places = {
        name: _Place(tenants[name], near[name], core_of)
        for name in admitted
        if tenants[name].cores is not None
    }
    # Who is not bound because none of its CPUs is near uses those that it is allowed.
    elsewhere = [
        each.allowed
        for name, each in tenants.items()
        if each.cores is not None and name not in near
    ]
    _assign(
        list(places.values()), Counter(core for cpus in elsewhere for core in _pool(cpus, core_of))
    )
    chosen = {
        name: places[name].cpus if name in places else _union(near[name]) for name in admitted
    }
    return Binding(
        {name: cpus for name, cpus in chosen.items() if cpus != tenants[name].allowed},
        frozenset(near) - frozenset(admitted),
    )


def _near(tenant: Tenant) -> list[Cpus]:
    """The CPUs near each GPU that a tenant may use; nothing if there are none for one of them."""
    near = [cpus & tenant.allowed for cpus in tenant.near]
    return near if all(near) else []


def _with_room(near: Mapping[str, list[Cpus]], tenants: Mapping[str, Tenant]) -> Iterator[str]:
    """The tenants whose CPU requests fit on the CPUs near their GPUs, the first ones first."""
    requests: Counter[Cpus] = Counter()
    for name, each in near.items():
        cpus, request = _union(each), tenants[name].cpu_request
        requests[cpus] += request
        # The larger sets must have room too: tenants of GPUs on two sockets use both.
        larger = [other for other in requests if cpus <= other]
        used = [sum(requests[inner] for inner in requests if inner <= one) for one in larger]
        if all(amount <= 1000 * len(one) for one, amount in zip(larger, used, strict=True)):
            yield name
        else:
            requests[cpus] -= request


class _Place:
    """The cores of a tenant that gets a number of them.

    Attributes:
        held: first CPU of each core that it has → the pool that the core was taken from.
    """

    def __init__(self, tenant: Tenant, near: list[Cpus], core_of: Mapping[int, Cpus]) -> None:
        assert tenant.cores is not None
        self.bound = tenant.bound
        # GPUs with fewer cores nearby choose first; the order of the list must not matter.
        pools = [
            _pool(cpus, core_of) for cpus in sorted(near, key=lambda one: (len(one), min(one)))
        ]
        self._missing = [pool for pool in pools for _ in range(min(tenant.cores, len(pool)))]
        self._any = _pool(_union(near), core_of)
        self._request = tenant.cpu_request
        self.held: dict[int, _Pool] = {}

    @property
    def cpus(self) -> Cpus:
        """The CPUs of its cores."""
        return _union(pool[core] for core, pool in self.held.items())

    def keep(self, taken: Counter[int]) -> None:
        """Take what it needs of the cores that it is bound to."""
        self._missing = [pool for pool in self._missing if not self._take(pool, taken, self.bound)]
        while self._lacks_time() and self._take(self._any, taken, self.bound):
            pass

    def fill(self, taken: Counter[int]) -> None:
        """Take what it still needs of all cores, those with the fewest tenants first."""
        for pool in self._missing:
            self._take(pool, taken)
        self._missing = []
        while self._lacks_time() and self._take(self._any, taken):
            pass

    def move(self, taken: Counter[int]) -> bool:
        """Exchange one core for one with fewer tenants; False if there is none."""
        for core in sorted(self.held, key=lambda core: (-taken[core], core)):
            pool = self.held[core]
            better = [
                other
                for other in pool.keys() - self.held.keys()
                if taken[other] + 1 < taken[core] and len(pool[other]) >= len(pool[core])
            ]
            if better:
                new = min(better, key=lambda other: (taken[other], other))
                taken[core] -= 1
                taken[new] += 1
                del self.held[core]
                self.held[new] = pool
                return True
        return False

    def _lacks_time(self) -> bool:
        coming = sum(max(map(len, pool.values())) for pool in self._missing)
        return 1000 * (len(self.cpus) + coming) < self._request

    def _take(self, pool: _Pool, taken: Counter[int], only: Cpus | None = None) -> bool:
        free = [
            core
            for core, cpus in pool.items()
            if core not in self.held and (only is None or cpus <= only)
        ]
        if not free:
            return False
        core = min(free, key=lambda one: (taken[one], one))
        self.held[core] = pool
        taken[core] += 1
        return True


def _assign(places: list[_Place], taken: Counter[int]) -> None:
    """Give each tenant its cores, those that came first their present ones.

    Args:
        places: of the tenants.
        taken: first CPU of each core → how many others use it.
    """
    for place in places:
        place.keep(taken)
    for place in places:
        place.fill(taken)
    # Each move brings the numbers of tenants of two cores nearer to each other, so it ends.
    while any(place.move(taken) for place in reversed(places)):
        pass


def _pool(cpus: Cpus, core_of: Mapping[int, Cpus]) -> dict[int, Cpus]:
    cores = {core_of.get(cpu, frozenset([cpu])) for cpu in cpus}
    return {min(core): core & cpus for core in cores}


def _union(sets: Iterable[Cpus]) -> Cpus:
    return reduce(frozenset.union, sets, frozenset[int]())

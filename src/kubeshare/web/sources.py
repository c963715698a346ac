"""Watches what a user may see of a cluster, and keeps it."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from kubeshare.api.configuration import KEY, NAME, Configuration, parse, watch_configuration
from kubeshare.api.quotas.resource_quotas import QUOTAS
from kubeshare.api.state.stripping import strip, strip_pod
from kubeshare.api.types import core_v1
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.api.types.gpu_quota import GPUQUOTAS
from kubeshare.api.types.v1 import GPUNODES, SHAREPODS, VGPU, VGPUS, GPUNode
from kubeshare.core.errors import InvalidValueError
from kubeshare.explain.errors import NotInstalledError
from kubeshare.kube.cache.reflector import Handler, Reflector
from kubeshare.kube.cache.store import Store
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import ForbiddenError, NotFoundError
from kubeshare.kube.meta import Key
from kubeshare.kube.resources import CONFIG_MAPS, Raw, Resource

T = TypeVar("T")

STALE_SECONDS: Final = 90.0
"""After so many seconds without a sign of life, a kind is shown as stale."""


class Source(Generic[T]):
    """The objects of one kind that a user may see.

    Args:
        resource: the kind.
        reflectors: one for the cluster, or one for each namespace; none if it may not be listed.
        everywhere: whether they are all objects of the cluster.
    """

    def __init__(
        self, resource: Resource[T], reflectors: Sequence[Reflector[T]], *, everywhere: bool
    ) -> None:
        self.resource = resource
        self.reflectors = tuple(reflectors)
        self.everywhere = everywhere

    def all(self) -> Iterator[T]:
        """The objects, as they are when each is read."""
        for reflector in self.reflectors:
            yield from reflector.store.snapshot().values()

    def snapshot(self) -> Callable[[], list[T]]:
        """Returns the objects as they are now, also when it is called later in a thread."""
        snapshots = [each.store.snapshot() for each in self.reflectors]
        return lambda: [one for snapshot in snapshots for one in snapshot.values()]

    def get(self, name: str, namespace: str = "") -> T | None:
        """The object of that name, or None."""
        key = Key(namespace, name)
        found = (each.store.by_key(key) for each in self.reflectors)
        return next((one for one in found if one is not None), None)

    def add_index(self, name: str, function: Callable[[T], Sequence[str]]) -> None:
        """Add an index to the store of each reflector."""
        for reflector in self.reflectors:
            reflector.store.add_index(name, function)

    def by_index(self, name: str, value: str) -> list[T]:
        """The objects that an index lists under a value."""
        return [one for each in self.reflectors for one in each.store.by_index(name, value)]

    def subscribe(self, handler: Handler[T]) -> None:
        """Call ``handler`` for each change."""
        for reflector in self.reflectors:
            reflector.subscribe(handler)

    @property
    def is_stale(self) -> bool:
        """Whether nothing was heard of it for long, so that it may be outdated."""
        ages = (each.last_event_age for each in self.reflectors)
        return any(age is None or age > STALE_SECONDS for age in ages)


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """What a user may see of a cluster.

    ``namespaces`` are those whose objects are named; None for all. ``configurations`` watches
    the ConfigMap of KubeShare.
    """

    vgpus: Source[VGPU]
    gpunodes: Source[GPUNode]
    nodes: Source[core_v1.Node]
    pods: Source[core_v1.Pod]
    sharepods: Source[Raw]
    gpuquotas: Source[Any]
    resourcequotas: Source[Any]
    configurations: Source[Any]
    namespaces: tuple[str, ...] | None

    def all(self) -> Iterator[Source[Any]]:
        """Each kind."""
        fields = (getattr(self, name) for name in self.__struct_fields__)
        return (each for each in fields if isinstance(each, Source))

    def names(self, namespace: str) -> bool:
        """Whether objects of a namespace are named."""
        return self.namespaces is None or namespace in self.namespaces

    def refused(self) -> list[str]:
        """The kinds of which the user sees nothing, or only some namespaces."""
        return [
            f"{each.resource.plural}{'' if not each.reflectors else ' of other namespaces'}"
            for each in self.all()
            if not each.everywhere
        ]

    def missing_for_decisions(self) -> list[str]:
        """What the user would have to list for decisions to be computed; empty if they may."""
        needed: tuple[Source[Any], ...] = (self.vgpus, self.gpunodes, self.nodes, self.pods)
        return [each.resource.plural for each in needed if not each.everywhere]

    def stale(self) -> list[str]:
        """The kinds whose watch is silent."""
        return [each.resource.plural for each in self.all() if each.is_stale]

    def configuration(self) -> Configuration | None:
        """The configuration in force; None where it may not be read or is invalid."""
        if not self.configurations.reflectors:
            return None
        found = next(self.configurations.all(), None)
        try:
            return parse(found.data.get(KEY, "")) if found else Configuration()
        except InvalidValueError:
            return None

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for source in self.all():
                for reflector in source.reflectors:
                    tasks.create_task(reflector.run())

    async def wait_for_sync(self) -> None:
        """Wait until all kinds have been listed once."""
        for source in self.all():
            for reflector in source.reflectors:
                await reflector.wait_for_sync()


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """What a user may list.

    ``namespaces`` are those whose objects are named, None for all; ``places`` has for each plural
    the namespaces in which it may be listed, ``""`` for all; ``configuration`` is whether
    KubeShare's own may be read.
    """

    namespaces: tuple[str, ...] | None
    places: dict[str, tuple[str, ...]]
    configuration: bool


async def find_sources(client: Client, namespaces: Sequence[str]) -> Sources:
    """Find out what a user may see.

    Args:
        client: has the user's rights.
        namespaces: to be shown alone; empty for all that may be listed, or else that of the
            kubeconfig.

    Raises:
        NotInstalledError: the cluster has no KubeShare.
        ApiError: it cannot be read.
    """
    return sources_of(client, await find_access(client, namespaces))


async def find_access(client: Client, namespaces: Sequence[str]) -> Access:
    """Find out what a user may list; the arguments and errors are those of ``find_sources``."""
    where = tuple(namespaces)
    if not where and not await _may_list(client, SHAREPODS, ""):
        where = (client.namespace,)
    readable = await _may_list(client, CONFIG_MAPS, NAMESPACE, f"metadata.name={NAME}")
    places = {
        kind.plural: await _places(client, kind, where if where and kind.namespaced else ("",))
        for kind in (VGPUS, GPUNODES, core_v1.NODES, SHAREPODS, GPUQUOTAS, QUOTAS)
    }
    # All pods where that is allowed, also if only some namespaces are shown.
    pods = await _places(client, core_v1.PODS, ("",)) or await _places(client, core_v1.PODS, where)
    places[core_v1.PODS.plural] = pods
    return Access(namespaces=where or None, places=places, configuration=readable)


def sources_of(client: Client, access: Access) -> Sources:
    """What watches all that a user may list."""

    def source(resource: Resource[T], **more: Any) -> Source[T]:
        places = access.places[resource.plural]
        found = [_reflector(client, resource, place, **more) for place in places]
        return Source(resource, found, everywhere=places == ("",))

    configuration = watch_configuration(client)
    readable = access.configuration
    return Sources(
        vgpus=source(VGPUS.into(VGPU)),
        gpunodes=source(GPUNODES.into(GPUNode)),
        nodes=source(core_v1.NODES),
        pods=source(core_v1.PODS, packed=core_v1.Pod, transform=strip_pod),
        sharepods=source(SHAREPODS, packed=dict, transform=strip),
        gpuquotas=source(GPUQUOTAS),
        resourcequotas=source(QUOTAS),
        configurations=Source(
            configuration.resource, [configuration] if readable else [], everywhere=readable
        ),
        namespaces=access.namespaces,
    )


def _reflector(
    client: Client,
    resource: Resource[T],
    namespace: str,
    *,
    packed: type[Any] | None = None,
    transform: Callable[[T], T] | None = None,
) -> Reflector[T]:
    store: Store[T] = Store(encode_as=packed)
    return Reflector(client, resource, namespace=namespace, store=store, transform=transform)


async def _places(client: Client, resource: Resource[Any], tried: Sequence[str]) -> tuple[str, ...]:
    """The namespaces of these in which a kind may be listed; "" is all."""
    return tuple([place for place in tried if await _may_list(client, resource, place)])


async def _may_list(
    client: Client, resource: Resource[Any], namespace: str, fields: str = ""
) -> bool:
    try:
        await client.latest_version(resource, namespace, fields=fields)
    except ForbiddenError:
        return False
    except NotFoundError as error:
        if resource == GPUQUOTAS:  # an earlier version of KubeShare has none
            return False
        raise NotInstalledError from error
    return True

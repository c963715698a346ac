"""Gathers the facts of a cluster; notes what may not be read."""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from kubeshare.api import configuration
from kubeshare.api.types.constants import DRA_DRIVER, NAMESPACE
from kubeshare.api.types.v1 import GPUNODES, VGPUS, GPUNode
from kubeshare.install.checks.facts import InstallationFacts, Node, PlatformFacts, Server, Slice
from kubeshare.install.checks.installation import ObjectKey, object_key
from kubeshare.install.checks.platform import gates_of, gpu_nodes
from kubeshare.install.manifests import Manifest, resource_of
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import ApiError, NotFoundError, UnreachableError
from kubeshare.kube.controller.leader_election import TYPED_LEASES, Lease
from kubeshare.kube.resources import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    LEASES,
    NAMESPACES,
    NODES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Raw,
    Resource,
)

T = TypeVar("T")

_OURS: Final = "app.kubernetes.io/part-of=kubeshare"
_WEBHOOKS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
_RUNTIME_CLASSES: Final = Resource(
    "node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False
)
_NODE_LEASES: Final = "kube-node-lease"
_SMALL_BYTES: Final = 4 << 20
_METRICS_BYTES: Final = 64 << 20


class _Version(Struct, rename="camel"):
    git_version: str = ""


class _Kind(Struct):
    kind: str
    name: str


class _Kinds(Struct):
    resources: tuple[_Kind, ...] = ()


class _Reader:
    """Notes what cannot be read, and goes on.

    Attributes:
        unread: by the name of a fact, why it could not be read.
    """

    def __init__(self) -> None:
        self.unread: dict[str, str] = {}

    async def read(self, fact: str, reading: Awaitable[T], otherwise: T) -> T:
        """What is read, or else another value.

        Raises:
            UnreachableError: the API server does not answer.
        """
        try:
            return await reading
        except UnreachableError:
            raise
        except ApiError as error:
            self.unread[fact] = error.message
            return otherwise


async def read_required(
    client: Client, wanted: Iterable[Manifest], now: Callable[[], datetime]
) -> PlatformFacts:
    """What an installation cannot do without.

    Args:
        client: the cluster.
        wanted: the manifests to install.
        now: the wall clock.

    Raises:
        UnreachableError: the API server does not answer.
        ApiError: it does not say its version.
    """
    reader = _Reader()
    return PlatformFacts(
        server=await _server(client, now),
        missing_kinds=await reader.read("missing_kinds", _missing_kinds(client, wanted), ()),
        gates=await reader.read("gates", _gates(client), {}),
        unread=reader.unread,
    )


async def read_platform(
    client: Client, wanted: Sequence[Manifest], now: Callable[[], datetime]
) -> PlatformFacts:
    """All that does not depend on an installation; the parameters are those of ``read_required``.

    Raises:
        UnreachableError: the API server does not answer.
        ApiError: it does not say its version.
    """
    required = await read_required(client, wanted, now)
    reader = _Reader()
    facts = msgspec.structs.replace(
        required,
        nodes=await reader.read("nodes", _items(client, NODES.into(Node)), []),
        gpunodes=await _if_served(_items(client, GPUNODES.into(GPUNode))),
        slices=await reader.read("slices", _items(client, RESOURCE_SLICES.into(Slice)), []),
        runtime_classes=await reader.read("runtime_classes", _runtime_classes(client), {}),
        webhooks=await reader.read("webhooks", _webhooks(client), []),
        namespace_labels=await reader.read("webhooks", _namespace_labels(client, wanted), {}),
        node_leases=await reader.read(
            "node_leases", _items(client, LEASES.into(Lease), _NODE_LEASES), []
        ),
    )
    return msgspec.structs.replace(facts, unread={**required.unread, **reader.unread})


async def read_installation(
    client: Client, wanted: Sequence[Manifest], platform: PlatformFacts, now: datetime
) -> InstallationFacts | None:
    """What belongs to KubeShare; None if it is not installed.

    Args:
        client: the cluster.
        wanted: the manifests of this version.
        platform: what was read before.
        now: the clock of the API server.

    Raises:
        UnreachableError: the API server does not answer.
    """
    reader = _Reader()
    crd = CUSTOM_RESOURCE_DEFINITIONS
    try:
        await client.get(crd, f"{VGPUS.plural}.{VGPUS.group}")
    except NotFoundError:
        return None
    except UnreachableError:
        raise
    except ApiError as error:
        reader.unread["objects"] = error.message
    attached = {each.spec.node_name for each in platform.slices if each.spec.driver == DRA_DRIVER}
    objects = await reader.read("objects", _objects(client, wanted), {})
    leases = await reader.read("leases", _items(client, TYPED_LEASES, NAMESPACE), [])
    text = await reader.read("configuration", _configuration(client), "")
    return InstallationFacts(
        now=now,
        wanted=wanted,
        objects=objects,
        leases=leases,
        configuration=text,
        gpunodes=platform.gpunodes,
        gpu_nodes=frozenset(node.metadata.name for node in gpu_nodes(platform)),
        attached_nodes=frozenset(attached),
        unread=reader.unread,
    )


async def _server(client: Client, now: Callable[[], datetime]) -> Server:
    before = time.monotonic()
    answer = await client.read("/version", limit=_SMALL_BYTES)
    here, taken = now(), time.monotonic() - before
    version = msgspec.json.decode(answer.body, type=_Version).git_version
    date = answer.headers.get(b"date")
    if date is None:
        return Server(version=version)
    there = parsedate_to_datetime(date.decode("latin-1"))
    # The header has whole seconds, and was written between the request and now.
    ahead = (there - here).total_seconds() + 0.5 + taken / 2
    return Server(version=version, now=there, ahead_seconds=ahead)


async def _missing_kinds(client: Client, wanted: Iterable[Manifest]) -> tuple[str, ...]:
    """The kinds that the manifests and programs use and that the server does not have."""
    needed = {resource_of(manifest) for manifest in wanted} | {RESOURCE_CLAIMS, RESOURCE_SLICES}
    missing = []
    for version in sorted({each.api_version for each in needed}):
        path = f"/apis/{version}" if "/" in version else f"/api/{version}"
        try:
            answer = await client.read(path, limit=_SMALL_BYTES)
            served = msgspec.json.decode(answer.body, type=_Kinds).resources
        except NotFoundError:
            served = ()
        kinds = {each.kind for each in served}
        of_version = {each.kind for each in needed if each.api_version == version}
        missing += [f"{kind} ({version})" for kind in sorted(of_version - kinds)]
    return tuple(missing)


async def _gates(client: Client) -> Mapping[str, bool]:
    answer = await client.read("/metrics", limit=_METRICS_BYTES)
    return gates_of(answer.body.decode(errors="replace"))


async def _items(client: Client, resource: Resource[T], namespace: str = "") -> list[T]:
    return (await client.list(resource, namespace)).items


async def _if_served(reading: Awaitable[list[T]]) -> list[T]:
    """Objects of a kind that is there only after an installation."""
    try:
        return await reading
    except NotFoundError:
        return []


async def _runtime_classes(client: Client) -> dict[str, str]:
    found = await _items(client, _RUNTIME_CLASSES)
    return {each["metadata"]["name"]: str(each.get("handler", "")) for each in found}


async def _webhooks(client: Client) -> list[Mapping[str, Any]]:
    return [
        {**webhook, "configuration": each["metadata"]["name"]}
        for each in await _items(client, _WEBHOOKS)
        for webhook in each.get("webhooks") or ()
    ]


async def _namespace_labels(client: Client, wanted: Iterable[Manifest]) -> dict[str, str]:
    """The labels of KubeShare's namespace, as it is or as it will be."""
    name = {"kubernetes.io/metadata.name": NAMESPACE}
    try:
        found: Raw | None = await client.get(NAMESPACES, NAMESPACE)
    except NotFoundError:
        found = next(
            (each for each in wanted if object_key(each) == ("Namespace", "", NAMESPACE)), None
        )
    return {**((found or {}).get("metadata", {}).get("labels") or {}), **name}


async def _objects(
    client: Client, wanted: Iterable[Manifest]
) -> dict[ObjectKey, Mapping[str, Any]]:
    """The objects of KubeShare, of all kinds that it installs."""
    objects: dict[ObjectKey, Mapping[str, Any]] = {}
    for resource in {resource_of(manifest): None for manifest in wanted}:
        found = await client.list(resource, labels=_OURS)
        objects.update((object_key(each), each) for each in found.items)
    # One that Helm or an administrator made has no label of ours.
    with suppress(NotFoundError):
        own = await client.get(NAMESPACES, NAMESPACE)
        objects[object_key(own)] = own
    return objects


async def _configuration(client: Client) -> str | None:
    kind = CONFIG_MAPS.into(configuration.ConfigMap)
    try:
        found = await client.get(kind, configuration.NAME, NAMESPACE)
    except NotFoundError:
        return None
    return found.data.get(configuration.KEY, "")

"""Reads KubeShare's objects, events, logs and metrics into an archive.

What cannot be read is noted and the rest is gathered: a cluster that needs this is not well.
Secrets are never asked for.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from kubeshare.api import configuration
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.api.types.gpu_quota import GPUQUOTAS
from kubeshare.api.types.share_usage import SHARE_USAGES
from kubeshare.api.types.v1 import GPUNODES, SHAREPODS, VGPUS
from kubeshare.install.must_gather.archive import Archive
from kubeshare.install.must_gather.redaction import concerns_shares, has_share, redacted
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import ApiError, UnreachableError
from kubeshare.kube.resources import (
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    LEASES,
    NODES,
    PODS,
    RESOURCE_SLICES,
    Raw,
    Resource,
)

MAX_OBJECTS: Final = 10_000
"""Objects of one kind; of more, the first ones."""
MAX_NODES: Final = 20
"""Nodes whose programs' logs are read where none is named: first those with one that fails."""
LOG_BYTES: Final = 4 << 20
"""Of one container, its last lines."""
METRICS_BYTES: Final = 16 << 20
MOST_SILENT: Final = 3
"""Programs whose metrics do not arrive; no further ones are asked for, since each takes a while."""
_FAILED: Final = 500
_LOG_LINES: Final = 20_000
_PROGRAMS: Final = "app.kubernetes.io/part-of=kubeshare,app.kubernetes.io/component"
_OURS: Final = "app.kubernetes.io/part-of=kubeshare"
_PORT: Final = 8080
_OWN: Final = (SHAREPODS, VGPUS, GPUNODES, GPUQUOTAS, SHARE_USAGES)
_OWN_KINDS: Final = tuple(resource.kind for resource in _OWN)

NEVER: Final = """\
Not in this archive, in no case: Secrets; the values of environment variables, of users' pods and of
KubeShare's own programs; of users' pods and SharePods also commands, arguments, probes, volumes,
what containers wrote, and all annotations but KubeShare's own; addresses of nodes; events of users'
pods but those about scheduling, shares and eviction; logs of other programs than KubeShare's.

Names are in it: of namespaces, pods, nodes, images and labels. Logs of KubeShare name them too.

Not in this archive, this time:"""


async def gather(client: Client, archive: Archive, nodes: Sequence[str]) -> None:
    """Fill an archive; what cannot be read is noted in it.

    Args:
        client: the cluster.
        archive: is filled.
        nodes: whose programs' logs and metrics are read; those of :data:`MAX_NODES` if empty.
    """
    await _configuration(client, archive)
    for resource in _OWN:
        await _objects(client, archive, resource)
    for resource, namespace, labels in (
        (DEPLOYMENTS, NAMESPACE, _OURS),
        (DAEMON_SETS, NAMESPACE, _OURS),
        (LEASES, NAMESPACE, ""),
        (NODES, "", ""),
        (RESOURCE_SLICES, "", ""),
    ):
        await _objects(client, archive, resource, namespace=namespace, labels=labels)
    await _objects(client, archive, PODS, wanted=has_share)
    await _objects(
        client, archive, EVENTS, wanted=lambda each: concerns_shares(each, NAMESPACE, _OWN_KINDS)
    )
    await _programs(client, archive, nodes)


async def _configuration(client: Client, archive: Archive) -> None:
    name = "configuration.yaml"
    try:
        found = await client.get(
            CONFIG_MAPS.into(configuration.ConfigMap), configuration.NAME, NAMESPACE
        )
    except ApiError as error:
        archive.leave_out(name, error.message)
    else:
        archive.add(name, found.data.get(configuration.KEY, "").encode())


async def _objects(  # noqa: PLR0913 - a selection
    client: Client,
    archive: Archive,
    resource: Resource[Any],
    *,
    namespace: str = "",
    labels: str = "",
    wanted: Callable[[Raw], bool] = lambda _: True,
) -> None:
    """Write the objects of a kind as one list."""
    name, beyond = f"objects/{resource.plural}.json", 0
    found: list[Raw] = []
    as_raw: Resource[Raw] = resource.into(dict[str, Any])

    def keep(each: Raw) -> None:
        nonlocal beyond
        named = {"apiVersion": resource.api_version, "kind": resource.kind} | each
        if not wanted(named):
            return
        if len(found) < MAX_OBJECTS:
            found.append(redacted(named))
        else:
            beyond += 1

    try:
        await client.list_each(as_raw, keep, namespace, labels=labels)
    except ApiError as error:
        archive.leave_out(name, error.message)
        return
    if beyond:
        archive.leave_out(name, f"{beyond} more than {MAX_OBJECTS} objects")
    archive.add(name, _json({"apiVersion": "v1", "kind": "List", "items": found}))


async def _programs(client: Client, archive: Archive, nodes: Sequence[str]) -> None:
    """Write the logs and metrics of KubeShare's programs."""
    try:
        as_raw: Resource[Raw] = PODS.into(dict[str, Any])
        pods = (await client.list(as_raw, NAMESPACE, labels=_PROGRAMS)).items
    except ApiError as error:
        archive.leave_out("programs", error.message)
        return
    archive.add(
        "objects/programs.json",
        _json({"apiVersion": "v1", "kind": "List", "items": [_as_pod(each) for each in pods]}),
    )
    silent = 0
    chosen = set(nodes) or _failing_first(pods)
    for pod in pods:
        node = pod.get("spec", {}).get("nodeName", "")
        if _is_of_node(pod) and node not in chosen:
            archive.leave_out(f"programs/{pod['metadata']['name']}", f"node {node} was not chosen")
        elif node:
            await _logs(client, archive, pod)
            silent += not await _metrics(client, archive, pod, asks=silent < MOST_SILENT)


async def _logs(client: Client, archive: Archive, pod: Raw) -> None:
    name = pod["metadata"]["name"]
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}"
    folder = f"programs/{name}"
    for container in pod.get("status", {}).get("containerStatuses") or ():
        query = {"container": container["name"], "tailLines": str(_LOG_LINES)}
        query |= {"limitBytes": str(LOG_BYTES), "timestamps": "true"}
        log = _Text(f"{path}/log", LOG_BYTES, query)
        await _text(client, archive, f"{folder}/log.txt", log)
        if container.get("restartCount"):
            before = _Text(f"{path}/log", LOG_BYTES, query | {"previous": "true"})
            await _text(client, archive, f"{folder}/previous.txt", before)


async def _metrics(client: Client, archive: Archive, pod: Raw, *, asks: bool) -> bool:
    """Write the metrics of a program, which the API server reads from its port.

    Returns:
        whether the API server got an answer.
    """
    name = pod["metadata"]["name"]
    written = f"programs/{name}/metrics.txt"
    if not asks:
        words = f"not asked for, since {MOST_SILENT} programs did not answer on port {_PORT}: "
        archive.leave_out(written, words + "a NetworkPolicy has to admit the API server")
        return False
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}:{_PORT}/proxy/metrics"
    error = await _text(client, archive, written, _Text(path, METRICS_BYTES))
    return error is None or not (isinstance(error, UnreachableError) or error.status >= _FAILED)


class _Text(Struct, frozen=True):
    path: str
    limit: int
    query: Mapping[str, str] = {}


async def _text(client: Client, archive: Archive, name: str, text: _Text) -> ApiError | None:
    """Write a text, or that it cannot be read; returns why."""
    try:
        answer = await client.read(text.path, limit=text.limit, **text.query)
    except ApiError as error:
        archive.leave_out(name, error.message)
        return error
    archive.add(name, answer.body)
    return None


def _as_pod(pod: Raw) -> Raw:
    return redacted({"apiVersion": "v1", "kind": "Pod"} | pod)


def _is_of_node(pod: Raw) -> bool:
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(owner.get("kind") == "DaemonSet" for owner in owners)


def _failing_first(pods: Sequence[Raw]) -> set[str]:
    """The nodes to look at: first those with a program that is not ready, or was restarted."""
    failing: dict[str, bool] = {}
    for pod in pods:
        if _is_of_node(pod) and (node := pod.get("spec", {}).get("nodeName", "")):
            statuses = pod.get("status", {}).get("containerStatuses") or ()
            well = bool(statuses) and all(
                each.get("ready") and not each.get("restartCount") for each in statuses
            )
            failing[node] = failing.get(node, False) or not well
    order = sorted(failing, key=lambda node: (not failing[node], node))
    return set(order[:MAX_NODES])


def _json(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"

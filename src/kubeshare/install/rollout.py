"""Applies the manifests and waits until each program is up."""

import asyncio
from collections.abc import Callable
from typing import Any

from kubeshare.install.checks.cluster_reader import read_required
from kubeshare.install.checks.finding import failed, run
from kubeshare.install.checks.platform import REQUIRED
from kubeshare.install.manifests import Manifest, resource_of
from kubeshare.install.readiness import WORKLOADS, established, rolled_out
from kubeshare.install.rollback import not_understood
from kubeshare.install.stored_versions import skipped_release
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import (
    AlreadyExistsError,
    ApiError,
    NotFoundError,
    UnreachableError,
)
from kubeshare.kube.clock import utc_now
from kubeshare.kube.resources import CLUSTER_ROLE_BINDINGS, RESOURCE_QUOTAS

FIELD_MANAGER = "kubeshare-install"
_QUOTA = "ResourceQuota"
_THEIRS = {"ConfigMap", _QUOTA}
"""Kinds that are created once and then belong to the administrator."""
TOKEN_DAEMON = "kubeshare-token-daemon"  # noqa: S105  not that kind of token
_UPGRADED_FIRST = {TOKEN_DAEMON}
"""Programs that understand earlier versions of the others, but not later ones."""
_FORMER = "kube-system"
"""The namespace of versions 1 and 2, which this one cannot have."""
_POLL_SECONDS = 0.25
_POLLS_OF_A_QUOTA = 20

Say = Callable[[str], None]


class RolloutError(Exception):
    """A program did not come up in time; the message says which, and its state."""

    exit_code = 1


async def install(client: Client, manifests: list[Manifest], *, deadline: float, say: Say) -> None:
    """Apply everything (again), and wait until it runs.

    In an upgrade the token daemon comes first: it reads the grants of an older node agent, but
    not those of a newer one.

    Args:
        client: the cluster.
        manifests: from ``manifests.load``.
        deadline: seconds that each workload may take to come up.
        say: shown a line for each step.

    Raises:
        RolloutError: the cluster lacks what KubeShare requires, has holders that this version
            does not understand, or KubeShare in another namespace; a manifest was refused, or a
            program is not up within the deadline.
        UnreachableError: the API server does not answer.
    """
    facts = await read_required(client, manifests, utc_now)
    if lacking := failed(run(REQUIRED, facts, facts.unread)):
        words = "; ".join(f"{each.seen} ({each.fix})" for each in lacking)
        raise RolloutError(f"nothing was changed: {words}")
    elsewhere = await _other_namespace(client, manifests)
    if elsewhere == _FORMER:
        raise RolloutError(
            f"nothing was changed: namespace {_FORMER} has version 1 or 2 of KubeShare: run "
            "`kubeshare migrate kubeshare --plan` first"
        )
    if elsewhere:
        raise RolloutError(
            f"nothing was changed: this cluster has KubeShare in namespace {elsewhere}, and can "
            f"have it once: upgrade it there (KUBESHARE_NAMESPACE={elsewhere}), or uninstall it "
            "first"
        )
    await check(client, manifests)
    first = [m for m in manifests if m["kind"] not in {*WORKLOADS, _QUOTA}]
    await _apply_all(client, first, say)
    crds = [m for m in manifests if m["kind"] == "CustomResourceDefinition"]
    await asyncio.gather(*(_wait(client, crd, established, deadline) for crd in crds))
    workloads = [m for m in manifests if m["kind"] in WORKLOADS]
    for daemon in [m for m in workloads if m["metadata"]["name"] in _UPGRADED_FIRST]:
        if await _exists(client, daemon):
            await _apply_all(client, [daemon], say)
            await _wait(client, daemon, rolled_out, deadline)
    await _apply_all(client, workloads, say)
    for workload in workloads:
        await _wait(client, workload, rolled_out, deadline)
        say(f"{workload['metadata']['name']} is up")
    for quota in [m for m in manifests if m["kind"] == _QUOTA and not await _exists(client, m)]:
        await _apply_all(client, [quota], say)
        await _wait_until_counted(client, quota, deadline, say)


async def check(client: Client, manifests: list[Manifest]) -> None:
    """See whether these manifests can replace what is installed.

    Raises:
        RolloutError: the cluster has objects of versions that this one does not have, or holders
            that it does not understand.
        UnreachableError: the API server does not answer.
    """
    for why_not in (skipped_release, not_understood):
        if refused := await why_not(client, manifests):
            raise RolloutError(refused)


async def _other_namespace(client: Client, manifests: list[Manifest]) -> str:
    """The namespace that has KubeShare already, if these manifests are for another one."""
    for manifest in manifests:
        if manifest["kind"] == CLUSTER_ROLE_BINDINGS.kind:
            try:
                found = await client.get(CLUSTER_ROLE_BINDINGS, manifest["metadata"]["name"])
            except NotFoundError:
                return ""
            [ours], [theirs] = manifest["subjects"], found["subjects"]
            same = ours["namespace"] == theirs["namespace"]
            return "" if same else str(theirs["namespace"])
    return ""


async def _apply_all(client: Client, manifests: list[Manifest], say: Say) -> None:
    for manifest in manifests:
        name = manifest["metadata"]["name"]
        try:
            if manifest["kind"] in _THEIRS:
                await _create(client, manifest)
            else:
                await client.apply(
                    resource_of(manifest), manifest, field_manager=FIELD_MANAGER, force=True
                )
        except UnreachableError:
            raise
        except ApiError as error:
            raise RolloutError(f"{manifest['kind']} {name}: {error}") from error
    say(f"{len(manifests)} objects applied")


async def _exists(client: Client, manifest: Manifest) -> bool:
    metadata = manifest["metadata"]
    try:
        await client.get(resource_of(manifest), metadata["name"], metadata.get("namespace", ""))
    except NotFoundError:
        return False
    return True


async def _create(client: Client, manifest: Manifest) -> None:
    try:
        await client.create(resource_of(manifest), manifest, field_manager=FIELD_MANAGER)
    except AlreadyExistsError:
        return


async def _wait(
    client: Client, manifest: Manifest, done: Callable[[dict[str, Any]], str], deadline: float
) -> None:
    resource, metadata = resource_of(manifest), manifest["metadata"]
    name, namespace = metadata["name"], metadata.get("namespace", "")
    missing = "it was not read yet"
    try:
        async with asyncio.timeout(deadline):
            while True:
                found = await client.get(resource, name, namespace)
                missing = done(found)
                if not missing:
                    return
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        within = f" -n {namespace}" if namespace else ""
        raise RolloutError(
            f"{resource.kind} {name} is not up after {deadline:.0f} s: {missing}; "
            f"see `kubectl describe {resource.plural} {name}{within}`"
        ) from None


async def _wait_until_counted(client: Client, quota: Manifest, deadline: float, say: Say) -> None:
    """Wait until Kubernetes counts what a quota limits; until then it refuses these objects.

    It learns of a new kind within 30 s, and looks at a quota of before then only minutes later:
    so the quota is created again.
    """
    metadata, limited = quota["metadata"], quota["spec"]["hard"].keys()
    name, namespace = metadata["name"], metadata["namespace"]
    loop = asyncio.get_running_loop()
    end = loop.time() + deadline
    while loop.time() < end:
        for _ in range(_POLLS_OF_A_QUOTA):
            found = await client.get(RESOURCE_QUOTAS, name, namespace)
            if limited <= found.get("status", {}).get("used", {}).keys():
                return
            await asyncio.sleep(_POLL_SECONDS)
        await client.delete(RESOURCE_QUOTAS, name, namespace)
        await _create(client, quota)
    say(
        f"ResourceQuota {name} in namespace {namespace}: Kubernetes does not count SharePods yet, "
        f"and refuses them there until it does; see `kubectl describe quota -n {namespace}`"
    )

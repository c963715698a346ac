"""Stops versions 1 and 2, and replaces their CRD under its SharePods.

No pod with a share is ended, and no object is deleted that holds one. Each step may be cut off, and
is repeated without effect.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.cli.migrate.cluster_reader import WaitedError
from kubeshare.cli.migrate.published.model import Former, SharePodFound
from kubeshare.cli.migrate.published.programs import (
    KUBE_SYSTEM,
    REPLICAS,
    STATUS_KEYS,
    STOPPED,
    Program,
)
from kubeshare.cli.migrate.published.reading import CRD, read_former
from kubeshare.cli.migrate.recording import FIELD_MANAGER, Say
from kubeshare.install import manifests
from kubeshare.install.readiness import established
from kubeshare.install.rollout import FIELD_MANAGER as INSTALLER
from kubeshare.kube.client.errors import InvalidError, NotFoundError
from kubeshare.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    PODS,
)

if TYPE_CHECKING:
    from kubeshare.kube.client.client import Client

SECONDS: Final = 60.0
"""Seconds that a stopped program, or the API server with the CRD, may take."""
_POLL_SECONDS: Final = 0.5
_CONTROLLERS: Final = "app in (kubeshare-scheduler,kubeshare-device-manager)"


async def replace_former(client: "Client", say: Say) -> Former:
    """Do the steps of the plan; returns what is left then.

    Raises:
        WaitedError: a former controller is still there, or the CRD is not served in time.
        ApiError: the API server cannot be reached, or refuses.
    """
    former = await read_former(client)
    if former.placing:
        await _stop_all(client, former.placing, say)
        # They would go on to write the old keys, and make placeholders.
        await _until(lambda: _controllers_are_gone(client), "a former controller still runs")
        # Until now, pods may have started that need what serves them.
        former = await read_former(client)
    await _stop_all(client, former.to_stop, say)
    if former.kind == "old" and not former.foreign_versions:
        await _replace_kind(client)
        say(f"the CRD {CRD} is replaced")
        for sharepod in former.sharepods:
            await _drop_keys(client, sharepod, say)
    for placeholder in former.unused_placeholders:
        _, _, name = placeholder.title.partition("/")
        with suppress(NotFoundError):
            await client.delete(PODS, name, KUBE_SYSTEM)
        say(f"pod {placeholder.title} is deleted: no pod uses its GPU")
    for name in former.bindings:
        with suppress(NotFoundError):
            await client.delete(CLUSTER_ROLE_BINDINGS, name)
        say(f"ClusterRoleBinding {name} is removed")
    return await read_former(client)


async def _stop_all(client: "Client", programs: Iterable[Program], say: Say) -> None:
    for program in programs:
        await _stop(client, program)
        say(f"{program.title} is stopped")


async def _stop(client: "Client", program: Program) -> None:
    resource, name = program.resource, program.name
    with suppress(NotFoundError):
        if program.resource == PODS:
            await client.delete(resource, name, KUBE_SYSTEM)
        elif program.resource == DEPLOYMENTS:
            found = await client.get(resource, name, KUBE_SYSTEM)
            note = {REPLICAS: str(found["spec"].get("replicas", 1))}
            patch = {"metadata": {"annotations": note}, "spec": {"replicas": 0}}
            await client.merge_patch(
                resource, name, patch, KUBE_SYSTEM, field_manager=FIELD_MANAGER
            )
        else:
            selected = {"spec": {"nodeSelector": {STOPPED: "true"}}}
            patch = {"spec": {"template": selected}}
            await client.merge_patch(
                resource, name, patch, KUBE_SYSTEM, field_manager=FIELD_MANAGER
            )


async def _controllers_are_gone(client: "Client") -> bool:
    return not (await client.list(PODS, KUBE_SYSTEM, labels=_CONTROLLERS)).items


async def _replace_kind(client: "Client") -> None:
    loaded = manifests.load(manifests.Options())
    [ours] = [each for each in loaded if each["metadata"]["name"] == CRD]
    # A CRD of before Kubernetes 1.22 keeps unknown fields, and may then have no defaults.
    body = ours | {"spec": ours["spec"] | {"preserveUnknownFields": False}}
    await client.apply(CUSTOM_RESOURCE_DEFINITIONS, body, field_manager=INSTALLER, force=True)

    async def served() -> bool:
        found = await client.get(CUSTOM_RESOURCE_DEFINITIONS, CRD)
        return not established(found)

    await _until(served, "the API server does not serve the CRD")


async def _drop_keys(client: "Client", sharepod: SharePodFound, say: Say) -> None:
    """Have an object written again, without what the schema does not have.

    Not by its subresource: until the API server has taken the CRD over, there may be none.
    """
    patch = {"status": dict.fromkeys(STATUS_KEYS)}
    try:
        await client.merge_patch(
            SHAREPODS, sharepod.name, patch, sharepod.namespace, field_manager=FIELD_MANAGER
        )
    except NotFoundError:
        return
    except InvalidError as error:
        say(f"SharePod {sharepod.title} is left as it is: {error.message}")


async def _until(reached: Callable[[], Awaitable[bool]], what: str) -> None:
    try:
        async with asyncio.timeout(SECONDS):
            while True:
                if await reached():
                    return
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError as error:
        raise WaitedError(
            f"{what} after {SECONDS:.0f} s: see `kubectl -n {KUBE_SYSTEM} get pods`, and run the "
            "same command again"
        ) from error

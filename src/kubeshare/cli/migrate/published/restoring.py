"""Undoes what can be undone of a replacement."""

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from kubeshare.cli.migrate.cluster_reader import MigrationError
from kubeshare.cli.migrate.published.programs import (
    BINDINGS,
    KUBE_SYSTEM,
    REPLICAS,
    STOPPED,
    Program,
)
from kubeshare.cli.migrate.published.reading import CRD, read_former
from kubeshare.cli.migrate.recording import FIELD_MANAGER, Say
from kubeshare.install import manifests
from kubeshare.kube.client.errors import AlreadyExistsError, NotFoundError
from kubeshare.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    SERVICE_ACCOUNTS,
    Raw,
    Resource,
)

if TYPE_CHECKING:
    from kubeshare.kube.client.client import Client

_DEVICE_MANAGER: Final = "kubeshare-device-manager"
_MANIFESTS: Final = {
    "kubeshare-scheduler": "deploy/scheduler.yaml",
    "kubeshare-device-manager": "deploy/device-manager.yaml",
}
_OPEN: Final = {
    "name": "v1",
    "served": True,
    "storage": True,
    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
}
"""Earlier versions write any status, by no subresource."""


class Restored(Struct, frozen=True):
    """What is undone.

    Attributes:
        done: a line for each step.
        next: the commands that are left to the administrator.
    """

    done: tuple[str, ...]
    next: tuple[str, ...]


async def restore_former(client: "Client", say: Say) -> Restored:
    """Start the former programs again, with a CRD that takes their status.

    Raises:
        MigrationError: KubeShare is installed.
        ApiError: the API server cannot be reached, or refuses.
    """
    former = await read_former(client)
    accounts = [
        name for name in BINDINGS if await _exists(client, SERVICE_ACCOUNTS, name, KUBE_SYSTEM)
    ]
    if former.installed and (former.programs or accounts):
        raise MigrationError(
            "KubeShare is installed, and would give out the same GPUs: run `kubeshare uninstall` "
            "first, then this again"
        )
    done: list[str] = []

    def did(line: str) -> None:
        done.append(line)
        say(line)

    if former.kind == "replaced" and accounts:
        await _open_kind(client)
        did(f"the CRD {CRD} takes any status again")
    if former.kind == "absent" and _DEVICE_MANAGER in accounts:
        await _create_kind(client)
        did(f"the CRD {CRD} is there again, without SharePods")
    for name in accounts:
        if await _bind(client, name):
            did(f"ClusterRoleBinding {name} is there again")
    # The node programs first: pods that the controllers make need them.
    for program in reversed(former.programs):
        if program not in former.running and await _start(client, program):
            did(f"{program.title} is started")
    there = {program.name for program in former.programs}
    left = [
        f"kubectl apply -f {_MANIFESTS[name]}"
        for name in accounts
        # A bare pod, or the rights that went with this version's.
        if name not in there or not await _exists(client, CLUSTER_ROLES, name)
    ]
    return Restored(tuple(done), tuple(left))


async def _exists(
    client: "Client", resource: Resource[Raw], name: str, namespace: str = ""
) -> bool:
    try:
        await client.get(resource, name, namespace)
    except NotFoundError:
        return False
    return True


async def _create_kind(client: "Client") -> None:
    """Version 1's CRD in today's form: its manifest is of one that Kubernetes 1.22 removed."""
    [ours] = [one for one in manifests.load(manifests.Options()) if one["metadata"]["name"] == CRD]
    body = {"metadata": {"name": CRD}, "spec": ours["spec"] | {"versions": [_OPEN]}}
    head = {"apiVersion": ours["apiVersion"], "kind": ours["kind"]}
    await client.create(CUSTOM_RESOURCE_DEFINITIONS, head | body, field_manager=FIELD_MANAGER)


async def _open_kind(client: "Client") -> None:
    patch = {
        "metadata": {"labels": {"app.kubernetes.io/part-of": None}},
        "spec": {"versions": [_OPEN]},
    }
    await client.merge_patch(CUSTOM_RESOURCE_DEFINITIONS, CRD, patch, field_manager=FIELD_MANAGER)


async def _bind(client: "Client", name: str) -> bool:
    group = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": KUBE_SYSTEM}],
    }
    try:
        await client.create(CLUSTER_ROLE_BINDINGS, binding, field_manager=FIELD_MANAGER)
    except AlreadyExistsError:
        return False
    return True


async def _start(client: "Client", program: Program) -> bool:
    """Start a stopped program; False where it was not stopped by ``--apply``."""
    place = program.resource, program.name
    if program.resource == DEPLOYMENTS:
        found = await client.get(*place, KUBE_SYSTEM)
        noted = (found["metadata"].get("annotations") or {}).get(REPLICAS, "")
        if not noted.isdecimal():
            return False
        patch = {
            "metadata": {"annotations": {REPLICAS: None}},
            "spec": {"replicas": int(noted)},
        }
    else:
        patch = {"spec": {"template": {"spec": {"nodeSelector": {STOPPED: None}}}}}
    await client.merge_patch(*place, patch, KUBE_SYSTEM, field_manager=FIELD_MANAGER)
    return True

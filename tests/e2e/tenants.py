"""Acts in a namespace with the roles of its tenants, and times what KubeShare says to them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Final, Literal, TypeAlias, get_args

from e2e.space import Space
from e2e.stage import Raw, Stage, eventually
from e2e.stalls import Stalls
from kubeshare.lab.errors import LabError

Role: TypeAlias = Literal["edit", "admin"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)
"""Of the cluster, for who has no rights beyond a namespace."""

TOO_LARGE: Final = "characters are more than the 131072 that a SharePod may have"
"""Of a SharePod's ``spec``."""

TRUTH_SECONDS: Final = 5.0
"""Seconds in which the conditions of a new SharePod say what becomes of it."""
RESOLUTION_SECONDS: Final = 1.0
"""Of the times that the API server writes."""

_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


def tenant_of(space: Space, role: Role = "edit") -> Space:
    """The namespace as a ServiceAccount uses it that has one of the cluster's roles there.

    The ServiceAccount is named as the role, so several tenants may try the same side by side.
    """
    user = f"system:serviceaccount:{space.name}:{role}"
    space.create(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": f"tenant-{role}"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": role,
            },
            "subjects": [{"kind": "ServiceAccount", "name": role, "namespace": space.name}],
        }
    )
    asked = {
        "namespace": space.name,
        "verb": "create",
        "group": "kubeshare.nthu",
        "resource": "sharepods",
    }
    review = {"spec": {"user": user, "resourceAttributes": asked}}
    eventually(
        lambda: space.stage.lab.api.send("POST", _REVIEWS, review)["status"]["allowed"],
        "the tenant to have its rights",
    )
    return Space(space.stage, space.name, user)


@contextmanager
def without_policy(stage: Stage, name: str) -> Iterator[None]:
    """Take an admission policy out of force, which the API server notices a moment later."""
    which = ("validatingadmissionpolicybinding", name)
    binding = json.loads(stage.kubectl("get", *which, "-o", "json"))
    for field in ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"):
        binding["metadata"].pop(field, None)
    stage.kubectl("delete", *which)
    try:
        yield
    finally:
        stage.kubectl("create", "-f", "-", stdin=json.dumps(binding))


def refusal(tenant: Space, manifest: Raw) -> str:
    """Why a tenant may not create an object; empty if it was created."""
    try:
        tenant.create(manifest)
    except LabError as error:
        return str(error)
    return ""


def waits_in_time(
    space: Space, stalls: Stalls, name: str, reason: str, kind: str = "Scheduled"
) -> str:
    """Wait as :meth:`Space.waits` does, and check that the condition came in time.

    The times are those of the API server: when the SharePod was created, and when the condition was
    written last. What it stood still in between does not count.
    """
    said = space.waits(name, reason, kind)
    sharepod = space.sharepod(name)
    assert sharepod is not None
    created, written = created_at(sharepod), written_at(sharepod, kind)
    took = written - created - stalls.seconds_between(created, written)
    assert took <= TRUTH_SECONDS + RESOLUTION_SECONDS, space.describe(name)
    return said


def created_at(obj: Raw) -> float:
    """When an object was created, in seconds since the epoch."""
    return _seconds(obj["metadata"]["creationTimestamp"])


def written_at(obj: Raw, kind: str) -> float:
    """When the writer of a condition wrote its part of the status last; see :func:`created_at`.

    ``lastTransitionTime`` stays where only reason and message change.
    """
    key = "k:" + json.dumps({"type": kind}, separators=(",", ":"))
    times = [
        _seconds(entry["time"])
        for entry in obj["metadata"]["managedFields"]
        if key in entry["fieldsV1"].get("f:status", {}).get("f:conditions", {})
    ]
    assert times, f"nobody has written the condition {kind}"
    return max(times)


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()

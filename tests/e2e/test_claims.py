"""The claims that kube-scheduler makes for pods that share come and go with these pods."""

from uuid import uuid4

import pytest

from e2e.space import REST, Space
from e2e.stage import Stage, eventually

pytestmark = pytest.mark.lab

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims"


def claims(space: Space) -> list[str]:
    return [one["metadata"]["name"] for one in space.stage.items(CLAIMS.format(space.name))]


def until_free(space: Space) -> None:
    """Wait until no claim and no share of a namespace is left."""
    eventually(
        lambda: not claims(space), "the claims to be gone", explain=lambda: str(claims(space))
    )
    eventually(lambda: not held(space), "the shares to be given back")


def held(space: Space) -> list[str]:
    return [
        holder["name"]
        for vgpu in space.stage.vgpus()
        for holder in vgpu["status"].get("holders", [])
        if holder["namespace"] == space.name
    ]


def test_the_claim_of_a_pod_that_completes_goes(space: Space) -> None:
    space.plain("short", "0.3", ("sleep", "1"), restartPolicy="Never")
    space.until_phase("short", "Succeeded")
    until_free(space)


def test_the_claim_of_a_pod_that_is_deleted_goes(space: Space) -> None:
    space.plain("long", "0.3", REST)
    space.until_phase("long", "Running")
    (name,) = claims(space)
    assert name.startswith("long-extended-resources-")
    space.delete("pod", "long")
    until_free(space)


def test_a_pod_whose_claim_is_orphaned_goes_and_its_claim_can_be_deleted(space: Space) -> None:
    space.plain("long", "0.3", REST)
    space.until_phase("long", "Running")
    (name,) = claims(space)
    space.stage.kubectl("delete", "pod", "long", "-n", space.name, "--cascade=orphan")
    eventually(lambda: space.find_pod("long") is None, "the pod to be gone")
    space.stage.kubectl("delete", "resourceclaim", name, "-n", space.name)
    until_free(space)


def test_a_namespace_with_pods_that_share_can_be_deleted(stage: Stage) -> None:
    space = Space(stage, f"test-{uuid4().hex[:8]}")
    stage.kubectl("create", "namespace", space.name)
    accounts = f"/api/v1/namespaces/{space.name}/serviceaccounts"
    eventually(lambda: stage.items(accounts), "the default ServiceAccount")
    space.share("trainer", {"request": "0.3"}, REST)
    space.plain("server", "0.3", REST)
    space.ready("trainer")
    space.until_phase("server", "Running")
    assert len(claims(space)) == 2

    stage.kubectl("delete", "namespace", space.name, "--wait=false")

    eventually(
        lambda: stage.find("/api/v1/namespaces", space.name) is None, "the namespace to be gone"
    )
    until_free(space)

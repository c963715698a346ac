"""KubeShare evicts pods that share a GPU, and no others."""

import json
from collections.abc import Iterator
from uuid import uuid4

import pytest

from deploy.pod_namespace import DEVICES, SCHEDULER, SHARE, Namespace, limited, sharepod_owner
from deploy.rights import every_right
from kubeshare.api.types.constants import LABEL_ROLE, ROLE_SHAREPOD
from kubeshare.lab.control_plane.api_server import ApiServer, wait_until
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.apiserver

OTHER = "another-controller"
RIGHTS = "evictions-test"


@pytest.fixture(autouse=True, scope="module")
def everybody_may_evict(cluster: ApiServer) -> Iterator[None]:
    """Give all of them every right, so that what refuses them is the policy alone."""
    with every_right(cluster, RIGHTS, DEVICES, SCHEDULER, OTHER):
        yield


def refusal(
    cluster: ApiServer, space: Namespace, name: str, by: str, labels: dict[str, str] | None = None
) -> str:
    """Why a pod would not be evicted; ``""`` if it would."""
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "labels": labels or {}},
        "deleteOptions": {"dryRun": ["All"]},
    }
    path = f"/api/v1/namespaces/{space.name}/pods/{name}/eviction"
    try:
        cluster.kubectl(
            "create", "--raw", path, "-f", "-", f"--as={by}", stdin=json.dumps(eviction)
        )
    except LabError as error:
        return str(error)
    return ""


def of_sharepod(cluster: ApiServer, space: Namespace) -> str:
    """The name of a pod that the device manager has made for a SharePod."""
    name = f"p-{uuid4().hex[:8]}"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {LABEL_ROLE: ROLE_SHAREPOD},
            "ownerReferences": [sharepod_owner(name)],
        },
        "spec": {"containers": [{"name": "main", "image": "x"}]},
    }
    words = ("create", "-n", space.name, "-f", "-", f"--as={DEVICES}")
    cluster.kubectl(*words, stdin=json.dumps(pod))
    return name


def test_only_pods_that_share_a_gpu_are_evicted(cluster: ApiServer, space: Namespace) -> None:
    other = space.create()["metadata"]["name"]
    sharing = [
        space.create(SHARE)["metadata"]["name"],
        of_sharepod(cluster, space),
        # As gpushare had it before KubeShare, without the label.
        space.create(by=DEVICES, containers=[limited("main", mem="3")])["metadata"]["name"],
    ]
    words = f"KubeShare evicts pods that share a GPU, and pod {other} does not"

    for account in (DEVICES, SCHEDULER):
        # The policy reads pods from a cache of the API server.
        wait_until(
            lambda account=account: words in refusal(cluster, space, other, account),  # type: ignore[misc]
            "the policy to know the pod",
        )
        assert [refusal(cluster, space, name, account) for name in sharing] == ["", "", ""]
    assert refusal(cluster, space, other, OTHER) == ""


def test_nobody_else_marks_an_eviction_as_one_of_kubeshare(
    cluster: ApiServer, space: Namespace
) -> None:
    name = space.create(SHARE)["metadata"]["name"]
    said = refusal(cluster, space, name, OTHER, {LABEL_ROLE: "eviction"})
    assert "kubeshare.nthu/role is written by KubeShare alone" in said

"""What a SharePod asks of a GPU cannot be changed once it has that; what is not decided can."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from fakes import manifests
from kubeshare.lab.control_plane.api_server import ApiServer
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.apiserver

Create = Callable[[dict[str, Any]], str]
Patch = Callable[..., str]

# Only KubeShare's programs write a decision.
AS_SCHEDULER = (
    "--as=system:serviceaccount:kubeshare-system:kubeshare-scheduler",
    "--as-group=system:masters",
)
DECIDED = {"request": "0.3", "memory": "1Gi", "id": "x", "attempt": 1}
GRACE = "spec.terminationGracePeriodSeconds: "
KEEPS = "the pod of the SharePod keeps what it was created with"
ANEW = "delete the SharePod and create it again"


def sharepod(gpu: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return manifests.sharepod("probe", gpu, **spec)


@pytest.fixture
def create(cluster: ApiServer, namespace: str) -> Create:
    """Create a SharePod as the scheduler leaves it."""

    def _create(manifest: dict[str, Any]) -> str:
        words = ("create", "-n", namespace, "-f", "-", *AS_SCHEDULER)
        return cluster.kubectl(*words, stdin=json.dumps(manifest))

    return _create


@pytest.fixture
def patch(cluster: ApiServer, namespace: str) -> Patch:
    """Merge something into the test's SharePod; what is refused raises LabError."""

    def _patch(change: dict[str, Any], *options: str) -> str:
        words = ("patch", "shp/probe", "-n", namespace, "--type=merge", "-p", json.dumps(change))
        return cluster.kubectl(*words, *options)

    return _patch


REFUSED = {
    "its request": ({"spec": {"gpu": {"request": "0.5"}}}, "spec.gpu.request: "),
    "a limit that it had not": ({"spec": {"gpu": {"limit": "0.5"}}}, "spec.gpu.limit: "),
    "memory that it has no more": ({"spec": {"gpu": {"memory": None}}}, "spec.gpu.memory: "),
    "its request by annotation": (
        {
            "metadata": {
                "annotations": {
                    "kubeshare/gpu_request": "0.3",
                    "kubeshare/gpu_limit": "0.4",
                    "kubeshare/gpu_mem": "1Gi",
                }
            }
        },
        "kubeshare/gpu_request, kubeshare/gpu_limit, kubeshare/gpu_mem: ",
    ),
    "another GPU": ({"spec": {"gpu": {"id": "y"}}}, "spec.gpu.id, "),
    "another node": ({"spec": {"nodeName": "n2"}}, "spec.nodeName: "),
}

ACCEPTED: dict[str, dict[str, Any]] = {
    "its labels": {"metadata": {"labels": {"a": "b"}}},
    "what is the pod's": {"spec": {"terminationGracePeriodSeconds": 1}},
    "the decision taken back": {"spec": {"nodeName": None, "gpu": {"id": None}}},
}


@pytest.mark.parametrize(("change", "named"), REFUSED.values(), ids=REFUSED.keys())
def test_what_it_has_stays_as_it_is(
    change: dict[str, Any], named: str, create: Create, patch: Patch
) -> None:
    create(sharepod(DECIDED, nodeName="n1"))

    with pytest.raises(LabError) as refused:
        patch(change)

    assert named in str(refused.value)
    assert ANEW in str(refused.value)


@pytest.mark.parametrize("change", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_all_else_may_change(change: dict[str, Any], create: Create, patch: Patch) -> None:
    create(sharepod(DECIDED, nodeName="n1"))

    assert "patched" in patch(change)


LATE: dict[str, tuple[dict[str, Any], str]] = {
    "the image": ({"spec": {"containers": [{"name": "main", "image": "b"}]}}, "spec.containers: "),
    "a field that it had not": ({"spec": {"terminationGracePeriodSeconds": 1}}, GRACE),
    "a field that it has no more": (
        {"spec": {"restartPolicy": None, "terminationGracePeriodSeconds": 1}},
        f"{GRACE[:-2]}, spec.restartPolicy: ",
    ),
}
WITHOUT_WARNING: dict[str, dict[str, Any]] = {
    "its labels": {"metadata": {"labels": {"a": "b"}}},
    "the decision taken back": ACCEPTED["the decision taken back"],
}


@pytest.fixture
def running(create: Create, cluster: ApiServer, namespace: str) -> None:
    """The SharePod has a pod."""
    create(sharepod(DECIDED, nodeName="n1", restartPolicy="Never"))
    which = ("patch", "shp/probe", "-n", namespace, "--subresource=status", "--type=merge")
    cluster.kubectl(*which, "-p", json.dumps({"status": {"phase": "Running"}}))


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize(("change", "named"), LATE.values(), ids=LATE.keys())
def test_what_its_pod_does_not_get_any_more_is_said_and_not_refused(
    change: dict[str, Any], named: str, patch: Patch, cluster: ApiServer, namespace: str
) -> None:
    said = f"{re.escape(named)}.*{KEEPS}"
    # The edit is accepted, and kubectl fails on its warning alone.
    with pytest.raises(LabError, match=rf"(?s)Warning: [^\n]*{said}.*1 warning received"):
        patch(change, "--warnings-as-errors")
    spec = json.loads(cluster.kubectl("get", "shp/probe", "-n", namespace, "-o", "json"))["spec"]
    assert {field: spec.get(field) for field in change["spec"]} == change["spec"]


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize("change", WITHOUT_WARNING.values(), ids=WITHOUT_WARNING.keys())
def test_of_other_edits_nothing_is_said(change: dict[str, Any], patch: Patch) -> None:
    assert "patched" in patch(change, "--warnings-as-errors")


def test_nothing_is_said_before_there_is_a_pod(create: Create, patch: Patch) -> None:
    create(sharepod(DECIDED, nodeName="n1"))

    assert "patched" in patch(
        {"spec": {"terminationGracePeriodSeconds": 1}}, "--warnings-as-errors"
    )


def test_it_may_ask_otherwise_as_long_as_nothing_is_decided(create: Create, patch: Patch) -> None:
    create(sharepod({"request": "0.3", "memory": "1Gi"}))

    assert "patched" in patch({"spec": {"gpu": {"request": "0.5", "model": "V100"}}})


def test_a_decision_may_be_written(create: Create, patch: Patch) -> None:
    create(sharepod({"request": "0.3", "memory": "1Gi", "attempt": 1}))

    decision = {"spec": {"nodeName": "n1", "gpu": {"id": "x", "attempt": 2}}}
    assert "patched" in patch(decision, *AS_SCHEDULER)


def test_a_gpu_that_its_author_named_may_be_named_otherwise_until_it_is_there(
    create: Create, patch: Patch, cluster: ApiServer, namespace: str
) -> None:
    create(sharepod({"request": "0.3", "memory": "1Gi", "id": "x"}, nodeName="n1"))
    assert "patched" in patch({"spec": {"gpu": {"id": "y"}}})

    there = {
        "type": "Allocated",
        "status": "True",
        "reason": "Allocated",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    cluster.kubectl(
        *("patch", "shp/probe", "-n", namespace, "--subresource=status", "--type=merge"),
        *("-p", json.dumps({"status": {"conditions": [there]}})),
    )
    with pytest.raises(LabError, match=r"spec\.gpu\.id"):
        patch({"spec": {"gpu": {"id": "z"}}})


def published(gpu: dict[str, Any]) -> dict[str, Any]:
    """A decided SharePod in the published spelling, with the GPUID that the scheduler wrote."""
    annotations = {
        "kubeshare/gpu_request": "0.3",
        "kubeshare/gpu_limit": "0.4",
        "kubeshare/gpu_mem": "1Gi",
        "kubeshare/GPUID": "x",
    }
    metadata = {"annotations": annotations}
    return manifests.sharepod(
        "probe", {"id": "x", "attempt": 1, **gpu}, metadata=metadata, nodeName="n1"
    )


NO_GPUID = {"metadata": {"annotations": {"kubeshare/GPUID": None}}}


def test_the_gpuid_that_the_scheduler_wrote_goes_with_its_decision(
    create: Create, patch: Patch
) -> None:
    create(published({}))
    with pytest.raises(LabError, match="kubeshare/GPUID"):
        patch(NO_GPUID)
    assert "patched" in patch({**NO_GPUID, "spec": {"nodeName": None, "gpu": {"id": None}}})


def test_the_gpuid_that_the_author_gave_stays(create: Create, patch: Patch) -> None:
    create(published({"idGiven": True}))
    with pytest.raises(LabError, match="kubeshare/GPUID"):
        patch({**NO_GPUID, "spec": {"nodeName": None, "gpu": {"id": None}}})

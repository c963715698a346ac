"""What nothing forbids to try, since the node believes nothing of it.

What the API server refuses the administrator of a namespace is in
``tests/deploy/test_namespace_admin.py``; that a second claim of a pod is no second part, in
``tests/node/dra/test_prepare.py``.
"""

import json
from typing import Any

import pytest

from e2e.space import BURN, REST, Space, container
from e2e.stage import Place, Stage, eventually

pytestmark = pytest.mark.lab

Raw = dict[str, Any]

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims"
LIST_DEVICES = ("sh", "-c", "ls /dev /run /opt; env; cat /etc/ld.so.preload; true")


@pytest.fixture(scope="module")
def victim(shared_space: Space) -> Place:
    """Where a SharePod runs of which others want a part, or the whole GPU."""
    shared_space.share("victim", {"request": "0.3"}, REST)
    return shared_space.ready("victim")


@pytest.fixture(scope="module")
def claim(shared_space: Space, victim: Place) -> Raw:
    """The claim by which the victim's containers have their part."""
    (only,) = shared_space.stage.items(CLAIMS.format(shared_space.name))
    return only


def test_devices_named_in_annotations_are_not_given(
    shared_space: Space, victim: Place, claim: Raw
) -> None:
    space, uid = shared_space, claim["metadata"]["uid"]
    annotations = {
        "cdi.k8s.io/gpu": f"nvidia.com/gpu={victim.uuid}",
        "cdi.k8s.io/claim": f"kubeshare.nthu/claim={uid}",
    }
    visible = {"name": "NVIDIA_VISIBLE_DEVICES", "value": victim.uuid}
    space.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "annotated", "annotations": annotations},
            "spec": {
                "restartPolicy": "Never",
                "nodeSelector": {"kubernetes.io/hostname": victim.node},
                "containers": [container(LIST_DEVICES, env=[visible])],
            },
        }
    )

    space.until_phase("annotated", "Succeeded", "Failed")

    seen = space.log("annotated").splitlines()
    assert "null" in seen
    assert not [line for line in seen if line.startswith("nvidia")]
    assert not [line for line in seen if "kubeshare" in line and "=" not in line]


def test_a_part_stays_held_though_its_claim_is_torn_away(stage: Stage, space: Space) -> None:
    space.share("runs", {"request": "0.5"}, BURN)
    place = space.ready("runs")
    (claim,) = stage.items(CLAIMS.format(space.name))
    name = claim["metadata"]["name"]
    no_finalizers = json.dumps({"metadata": {"finalizers": None}})

    stage.kubectl("delete", "resourceclaim", "-n", space.name, name, "--wait=false")
    stage.kubectl(
        *("patch", "resourceclaim", "-n", space.name, name),
        *("--type=merge", "-p", no_finalizers),
    )
    eventually(lambda: not stage.items(CLAIMS.format(space.name)), "the claim to be gone")

    stage.works_for(place, "runs")
    assert "runs" in stage.holders(place.gpuid)
    space.delete("sharepod", "runs")
    eventually(
        lambda: "runs" not in stage.holders(place.gpuid),
        "its part to be given back",
        explain=lambda: str(stage.holders(place.gpuid)),
    )
    assert stage.processes("runs") == []

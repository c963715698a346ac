"""LimitRanges and ResourceQuotas bound pods that share as they bound all others."""

import pytest

from e2e.manifests import deployment, quota, template
from e2e.space import REST, Space, container
from e2e.stage import Raw, Stage, eventually
from kubeshare.api.types.constants import VGPU_RESOURCE
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.lab

DEFAULTS = {"cpu": "200m", "memory": "256Mi"}
LEAST = {"cpu": "50m", "memory": "64Mi"}
LIMITS = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "limits"},
    "spec": {
        "limits": [
            {
                "type": "Container",
                "default": DEFAULTS,
                "defaultRequest": LEAST,
                "max": {"cpu": "500m", "memory": "1Gi"},
            }
        ]
    },
}
TOO_MUCH = "maximum cpu usage per Container is 500m"


def resources(space: Space, name: str) -> Raw:
    pod = space.find_pod(name)
    assert pod is not None
    found: Raw = pod["spec"]["containers"][0]["resources"]
    return found


def requests_held(space: Space) -> list[int]:
    """What the pods of the namespace hold, in millionths of a GPU."""
    return sorted(one["requestMicros"] for parts in space.parts().values() for one in parts)


def test_a_limit_range_gives_its_defaults_to_pods_that_share_and_refuses_too_much(
    stage: Stage, space: Space
) -> None:
    space.create(LIMITS)
    space.plain("pod", "0.3")
    space.share("sharepod", {"request": "0.3"}, REST)
    space.ready("sharepod")
    space.until_phase("pod", "Running")

    for name in ("pod", "sharepod"):
        assert resources(space, name) == {
            "limits": {**DEFAULTS, VGPU_RESOURCE: "1"},
            "requests": {**LEAST, VGPU_RESOURCE: "1"},
        }
    greedy = [container(REST, resources={"limits": {"cpu": "600m"}})]
    with pytest.raises(LabError, match=TOO_MUCH):
        space.plain("greedy", "0.3", containers=greedy)
    space.share("greedy", {"request": "0.3"}, containers=greedy)
    eventually(
        lambda: space.condition("greedy", "Ready").get("reason") == "PodForbidden",
        "the refusal to be reported",
        explain=lambda: space.describe("greedy"),
    )
    assert TOO_MUCH in space.condition("greedy", "Ready")["message"]

    stage.kubectl("delete", "limitrange/limits", "-n", space.name)
    space.ready("greedy")
    assert resources(space, "greedy")["limits"] == {"cpu": "600m", VGPU_RESOURCE: "1"}


def test_what_goes_beyond_a_quota_waits_for_what_ends(stage: Stage, space: Space) -> None:
    space.create(quota("gpus", **{"requests.kubeshare.nthu/gpu": "600m", "pods": "3"}))
    space.create(deployment("serve", template("serve", "0.3"), replicas=2))
    served = space.until_running(2, app="serve")
    space.plain("third", "0.3")
    said = space.pod_waits("third", "QuotaExceeded")
    assert "0.6" in said
    with pytest.raises(LabError, match="exceeded quota: gpus"):
        space.plain("fourth", "0")
    space.share("late", {"request": "0", "memory": "64Mi"}, REST)
    eventually(
        lambda: "exceeded quota: gpus" in space.condition("late", "Ready").get("message", ""),
        "the refusal to be reported",
        explain=lambda: space.describe("late"),
    )
    assert space.until_running(2, app="serve") == served

    stage.kubectl("scale", "deployment/serve", "-n", space.name, "--replicas=1")

    space.until_phase("third", "Running")
    space.ready("late")
    eventually(
        lambda: requests_held(space) == [0, 300_000, 300_000],
        "the part of the one that ended to be given back",
        explain=lambda: str(requests_held(space)),
    )

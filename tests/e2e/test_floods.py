"""What one tenant creates in large numbers stops no program of KubeShare and nobody's pod.

Afterwards all is as before, without a hand. ``tests/deploy`` has what is refused at once.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from e2e.space import REST, Space, container
from e2e.stage import DEVICE_MANAGER, SCHEDULER, Place, Raw, Stage, eventually
from e2e.stalls import Stalls
from e2e.tenants import tenant_of
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.core.quota.slots import MAX_SLOTS
from kubeshare.lab.control_plane import audit

pytestmark = [pytest.mark.lab, pytest.mark.exhaustive]

LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/kubeshare-"
NOWHERE = {"request": "0.01", "memory": "1Mi", "model": "none"}
"""What no GPU here can give, so that no pod is created."""
SLOTS = 127
"""As many as all slots of a vGPU but that of its first holder."""
STARTED = 10
"""Those of them with a pod that runs: a kubelet admits fewer pods than a vGPU has slots."""
LARGE = 200
CHARACTERS = 120_000
"""Nearly as many as the spec of a SharePod may have."""
MEMBERS = 400


@pytest.fixture(scope="module")
def victim(shared_space: Space) -> Place:
    """Where the pod of another tenant runs."""
    shared_space.share("victim", {"request": "0.3"}, REST)
    return shared_space.ready("victim")


@pytest.fixture
def tenant(request: pytest.FixtureRequest, space: Space) -> Space:
    """The namespace of the flood as its tenant uses it, by default with the role ``edit``."""
    return tenant_of(space, getattr(request, "param", "edit"))


@pytest.fixture(autouse=True)
def _undisturbed(shared_space: Space, victim: Place, stage: Stage) -> Iterator[None]:
    """The pod of the other tenant runs on with its share, and no program lacked memory."""
    before = shared_space.lives("victim")
    yield
    assert shared_space.lives("victim") == before
    assert "victim" in stage.holders(victim.gpuid)
    ended = [reason for reason, _ in last_ends(stage).values()]
    assert "OOMKilled" not in ended


@pytest.fixture
def steady(stage: Stage, stalls: Stalls) -> Iterator[None]:
    """No program ends or loses its Lease, unless the machine stood still."""
    before, stalled = (leases(stage), last_ends(stage)), len(stalls.spans)
    yield
    if len(stalls.spans) == stalled:
        assert (leases(stage), last_ends(stage)) == before


def leases(stage: Stage) -> dict[str, tuple[str, int]]:
    """Program -> who leads, and how often that has changed."""
    specs = {one: stage.lab.api.get(LEASES + one)["spec"] for one in (SCHEDULER, DEVICE_MANAGER)}
    return {
        component: (spec["holderIdentity"], spec.get("leaseTransitions", 0))
        for component, spec in specs.items()
    }


def last_ends(stage: Stage) -> dict[str, tuple[str, str]]:
    """Pod of KubeShare -> why and when its container ended last, if it did."""
    return {
        pod["metadata"]["name"]: (ended["reason"], ended["finishedAt"])
        for pod in stage.items(f"/api/v1/namespaces/{NAMESPACE}/pods")
        for status in pod["status"].get("containerStatuses", [])
        if (ended := status.get("lastState", {}).get("terminated"))
    }


def flood(space: Space, numbers: Iterable[int], gpu: Raw, **more: Any) -> None:
    """Create SharePods named ``flood-NUMBER``; ``more`` is their ``labels`` and PodSpec."""
    labels = more.pop("labels", {})
    spec = {"terminationGracePeriodSeconds": 1, "containers": [container(REST)], **more}
    for number in numbers:
        space.create(
            {
                "apiVersion": "kubeshare.nthu/v1",
                "kind": "SharePod",
                "metadata": {"name": f"flood-{number}", "labels": labels},
                "spec": {"gpu": gpu, **spec},
            }
        )


def pending(space: Space, reason: str) -> set[str]:
    """The SharePods that wait for a reason."""
    return {
        each["metadata"]["name"]
        for each in space.sharepods()
        for condition in each.get("status", {}).get("conditions", [])
        if (condition["status"], condition["reason"]) == ("False", reason)
    }


def until_pending(space: Space, count: int, reason: str) -> None:
    eventually(lambda: len(pending(space, reason)) >= count, f"{count} SharePods to be {reason}")


def until_gone(space: Space) -> None:
    """Delete all SharePods in one request, and wait."""
    space.delete_sharepods()
    eventually(lambda: not space.sharepods(), "the SharePods to go")


def writes_of_holders(stage: Stage, gpuid: str) -> list[audit.Request]:
    """What KubeShare's programs wrote into the status of a vGPU."""
    return [
        request
        for request in audit.read(stage.lab.layout.folder)
        if request.verb == "patch"
        and (target := request.target) is not None
        and (target.resource, target.name, target.subresource) == ("vgpus", gpuid, "status")
    ]


@pytest.mark.parametrize("tenant", ["edit", "admin"], indirect=True)
@pytest.mark.usefixtures("steady")
def test_a_tenant_takes_a_quarter_of_the_slots_of_a_gpu_and_leaves_them_at_once(
    stage: Stage, tenant: Space, victim: Place
) -> None:
    nothing = {"request": "0", "memory": "16Mi", "id": victim.gpuid}
    flood(tenant, range(STARTED), nothing, nodeName=victim.node)
    for number in range(STARTED):
        tenant.ready(f"flood-{number}")
    gates = [{"name": "example.org/hold"}]
    flood(tenant, range(STARTED, SLOTS), nothing, nodeName=victim.node, schedulingGates=gates)
    eventually(
        lambda: (
            len({*stage.holders(victim.gpuid)} - {"victim"} | pending(tenant, "NoRoom")) == SLOTS
        ),
        "each to hold a slot or to wait for one",
    )
    held = len(stage.holders(victim.gpuid))
    assert held == MAX_SLOTS + 1
    before = len(writes_of_holders(stage, victim.gpuid))

    until_gone(tenant)

    eventually(lambda: set(stage.holders(victim.gpuid)) == {"victim"}, "the slots to be free")
    writes = writes_of_holders(stage, victim.gpuid)[before:]
    # Both programs release many with one write, and so they seldom refuse each other's.
    assert len(writes) <= held
    assert 0 < sum(write.account == "kubeshare-node-agent" for write in writes) <= 2 * STARTED


def test_the_largest_sharepods_are_read_by_new_leaders(stage: Stage, tenant: Space) -> None:
    environment = [{"name": "LARGE", "value": "x" * CHARACTERS}]
    flood(tenant, range(LARGE), NOWHERE, containers=[container(REST, env=environment)])
    until_pending(tenant, LARGE, "NeverFits")

    for component in (SCHEDULER, DEVICE_MANAGER):
        stage.replace_leader(component)
    tenant.share("beside", {"request": "0.1"}, REST)

    tenant.ready("beside")
    until_gone(tenant)
    tenant.share("after", {"request": "0.1"}, REST)
    tenant.ready("after")


@pytest.mark.usefixtures("steady")
def test_a_gang_of_hundreds_waits(tenant: Space) -> None:
    labels = {"sharedgpu/group_name": "large", "sharedgpu/min_available": str(MEMBERS)}
    flood(tenant, range(MEMBERS), {"request": "0.02"}, labels=labels)
    until_pending(tenant, MEMBERS // 8, "GangNoRoom")

    tenant.share("beside", {"request": "0.1"}, REST)

    tenant.ready("beside")
    until_gone(tenant)

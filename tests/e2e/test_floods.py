"""What tenants create in large numbers stops no program of KubeShare and nobody's pod.

Afterwards all is as before, without a hand. ``tests/deploy`` has what is refused at once. Two
ServiceAccounts, with the roles ``edit`` and ``admin``, create each flood by turns.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from e2e.space import REST, Space, container
from e2e.stage import DEVICE_MANAGER, SCHEDULER, Place, Raw, Stage, eventually
from e2e.stalls import Stalls
from e2e.tenants import TOO_LARGE, Role, refusal, without_policy
from kubeshare.api.types.constants import GROUP, NAMESPACE
from kubeshare.core.quota.slots import MAX_SLOTS
from kubeshare.lab.control_plane import audit

pytestmark = [pytest.mark.lab, pytest.mark.exhaustive]

LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/kubeshare-"
PROGRAMS = (SCHEDULER, DEVICE_MANAGER)
NOWHERE = {"request": "0.01", "memory": "1Mi", "model": "none"}
"""What no GPU here can give, so that no pod is created."""
HOLD: Raw = {"schedulingGates": [{"name": "example.org/hold"}]}
REFUSED = 400
"""From this HTTP status on, a write has changed nothing."""
SLOTS = 127
"""As many as all slots of a vGPU but that of its first holder."""
STARTED = 10
"""Those of them with a pod that runs: a kubelet admits fewer pods than a vGPU has slots."""
LARGE = 200
CHARACTERS = 120_000
"""Nearly as many as the spec of a SharePod may have."""
BEFORE = 300
"""SharePods of a megabyte that are older than the policy for their size."""
BEFORE_WITH_PODS = 30
MEGABYTE = [{"name": f"LARGE_{number:>04}", "value": "x" * 64} for number in range(10_000)]
MEMBERS = 400
TOO_MANY = 5_000
GANG_MEMBERS = 512
"""The default of ``gangMembers``."""
PART = 25
"""SharePods that are deleted in one request."""
PROBE_SECONDS = 10.0
"""How long a kubelet waits for ``/livez``."""
FLOOD_SECONDS = 900.0
"""For what is to happen to each of a flood: a failure takes so long, and nothing else."""


@pytest.fixture(scope="module")
def victim(shared_space: Space) -> Place:
    """Where the pod of another tenant runs."""
    shared_space.share("victim", {"request": "0.3"}, REST)
    return shared_space.ready("victim")


@pytest.fixture(autouse=True)
def _undisturbed(shared_space: Space, victim: Place, stage: Stage) -> Iterator[None]:
    """The pod of the other tenant runs on with its share, and no program lacked memory."""
    before = shared_space.lives("victim")
    yield
    assert shared_space.lives("victim") == before
    assert "victim" in stage.holders(victim.gpuid)
    ended = [reason for reason, _ in last_ends(stage).values()]
    assert "OOMKilled" not in ended


@contextmanager
def steady(stage: Stage, stalls: Stalls) -> Iterator[None]:
    """No program ends, loses its Lease or leaves its kubelet without an answer meanwhile.

    A stall of the API server excuses the first two; the last only one that is as long as a probe
    waits, since the whole machine stood still then.
    """
    before, probes = (leases(stage), last_ends(stage)), failed_probes(stage)
    known = len(stalls.spans)
    yield
    longest = max((end - begin for begin, end in stalls.spans[known:]), default=0.0)
    if longest < PROBE_SECONDS:
        # Events go after a while.
        assert all(times <= probes.get(pod, 0) for pod, times in failed_probes(stage).items())
    if not longest:
        assert (leases(stage), last_ends(stage)) == before


def leases(stage: Stage) -> dict[str, tuple[str, int]]:
    """Program -> who leads, and how often that has changed."""
    specs = {one: stage.lab.api.get(LEASES + one)["spec"] for one in PROGRAMS}
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


def failed_probes(stage: Stage) -> dict[str, int]:
    """Pod of the scheduler or the device manager -> how often ``/livez`` did not answer."""
    prefixes = tuple(f"kubeshare-{program}-" for program in PROGRAMS)
    return {
        event["involvedObject"]["name"]: event.get("count", 1)
        for event in stage.items(f"/api/v1/namespaces/{NAMESPACE}/events")
        if event["reason"] == "Unhealthy"
        and event["message"].startswith("Liveness")
        and event["involvedObject"]["name"].startswith(prefixes)
    }


def flood(
    tenants: dict[Role, Space],
    numbers: Iterable[int],
    gpu: Raw,
    labels: Raw | None = None,
    **spec: Any,
) -> None:
    """Create SharePods named ``flood-NUMBER``, by turns of the tenants; ``spec`` is of the pod."""
    takers = list(tenants.values())
    for number in numbers:
        takers[number % len(takers)].create(sharepod(number, gpu, labels, **spec))


def sharepod(number: int, gpu: Raw, labels: Raw | None = None, **spec: Any) -> Raw:
    """One of a flood."""
    part = {"part": str(number // PART)}
    pod = {"terminationGracePeriodSeconds": 1, "containers": [container(REST)], **spec}
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "SharePod",
        "metadata": {"name": f"flood-{number}", "labels": part | (labels or {})},
        "spec": {"gpu": gpu, **pod},
    }


def pending(space: Space, reason: str) -> set[str]:
    """The SharePods that wait for a reason."""
    return {
        each["metadata"]["name"] for each in space.sharepods() if (reason in reasons(each).values())
    }


def reasons(sharepod: Raw) -> dict[str, str]:
    """Condition that is false -> why."""
    return {
        condition["type"]: condition["reason"]
        for condition in sharepod.get("status", {}).get("conditions", [])
        if condition["status"] == "False"
    }


def until_all_wait(space: Space, numbers: Iterable[int], reason: str) -> None:
    """Wait until each of a flood waits for a reason; they may be too large to be listed."""
    for number in numbers:
        eventually(
            partial(waits, space, number, reason),
            f"flood-{number} to be {reason}",
            seconds=FLOOD_SECONDS,
        )


def waits(space: Space, number: int, reason: str) -> bool:
    """Whether one of a flood is not scheduled for a reason."""
    path = f"/apis/{GROUP}/v1/namespaces/{space.name}/sharepods/flood-{number}"
    return reasons(space.stage.lab.api.get(path)).get("Scheduled") == reason


def until_pending(space: Space, count: int, reason: str) -> None:
    eventually(lambda: len(pending(space, reason)) >= count, f"{count} SharePods to be {reason}")


def delete_flood(tenants: dict[Role, Space], count: int) -> None:
    """Delete a flood in requests that are answered in time, by turns of the tenants."""
    takers = list(tenants.values())
    for part in range(-(-count // PART)):
        takers[part % len(takers)].delete_sharepods(f"part={part}")


def until_gone(space: Space) -> None:
    """Wait until nothing of a flood is left."""
    path = f"/apis/{GROUP}/v1/namespaces/{space.name}/sharepods?labelSelector=part&limit=1"
    eventually(lambda: not space.stage.items(path), "the SharePods to go", seconds=FLOOD_SECONDS)


def until_served(space: Space, name: str) -> None:
    """Another SharePod of the namespace starts."""
    space.share(name, {"request": "0.1"}, REST)
    space.ready(name)


def writes_of_holders(stage: Stage, gpuid: str) -> list[audit.Request]:
    """What KubeShare's programs wrote into the status of a vGPU."""
    return [
        request
        for request in audit.read(stage.lab.layout.folder)
        if request.verb == "patch"
        and (target := request.target) is not None
        and (target.resource, target.name, target.subresource) == ("vgpus", gpuid, "status")
    ]


def test_tenants_take_a_quarter_of_the_slots_of_a_gpu_and_leave_them_at_once(
    stage: Stage, space: Space, tenants: dict[Role, Space], victim: Place, stalls: Stalls
) -> None:
    nothing = {"request": "0", "memory": "16Mi", "id": victim.gpuid}
    with steady(stage, stalls):
        flood(tenants, range(STARTED), nothing, nodeName=victim.node)
        for number in range(STARTED):
            space.ready(f"flood-{number}")
        flood(tenants, range(STARTED, SLOTS), nothing, nodeName=victim.node, **HOLD)
        eventually(
            lambda: (
                len({*stage.holders(victim.gpuid)} - {"victim"} | pending(space, "NoRoom")) == SLOTS
            ),
            "each to hold a slot or to wait for one",
        )
        held = len(stage.holders(victim.gpuid))
        assert held == MAX_SLOTS + 1
        before = len(writes_of_holders(stage, victim.gpuid))

        tenants["edit"].delete_sharepods()
        until_gone(space)

        eventually(lambda: set(stage.holders(victim.gpuid)) == {"victim"}, "the slots to be free")
    writes = writes_of_holders(stage, victim.gpuid)[before:]
    # Both programs release many with one write, and so they seldom refuse each other's. Those that
    # waited may have a slot for a moment, until they are deleted as well.
    assert len(writes) <= SLOTS
    assert sum(write.answer.code >= REFUSED for write in writes) <= held
    assert 0 < sum(write.account == "kubeshare-node-agent" for write in writes) <= 2 * STARTED


def test_the_largest_sharepods_are_read_by_new_leaders(
    stage: Stage, space: Space, tenants: dict[Role, Space]
) -> None:
    environment = [{"name": "LARGE", "value": "x" * CHARACTERS}]
    flood(tenants, range(LARGE), NOWHERE, containers=[container(REST, env=environment)])
    until_all_wait(space, range(LARGE), "NeverFits")

    for component in PROGRAMS:
        stage.replace_leader(component)

    until_served(space, "beside")
    delete_flood(tenants, LARGE)
    until_gone(space)
    until_served(space, "after")


def test_sharepods_of_a_megabyte_from_before_the_policy_are_read_and_deleted(
    stage: Stage, space: Space, tenants: dict[Role, Space], stalls: Stalls
) -> None:
    # The API server stands still for seconds itself, with 300 MB to list: a Lease that is lost then
    # is excused. An end for lack of memory never is.
    containers = [container(REST, env=MEGABYTE)]
    small = {"request": "0.001", "memory": "1Mi"}
    last = sharepod(BEFORE - 1, NOWHERE, containers=containers)
    (taker, *_) = tenants.values()
    assert TOO_LARGE in refusal(taker, last)
    with steady(stage, stalls):
        with without_policy(stage, "kubeshare-sharepod-size"):
            eventually(lambda: not refusal(taker, last), "the policy to be gone")
            flood(tenants, range(BEFORE_WITH_PODS), small, containers=containers, **HOLD)
            flood(tenants, range(BEFORE_WITH_PODS, BEFORE - 1), NOWHERE, containers=containers)
        until_all_wait(space, range(BEFORE_WITH_PODS, BEFORE), "NeverFits")
        eventually(
            lambda: len(pods_of(space)) == BEFORE_WITH_PODS,
            "the pods of those that fit",
        )
        until_served(space, "beside")

    for component in PROGRAMS:
        stage.replace_leader(component)
    until_served(space, "again")

    with steady(stage, stalls):
        delete_flood(tenants, BEFORE)
        until_gone(space)
        until_served(space, "after")


def pods_of(space: Space) -> list[Raw]:
    """The pods of a flood."""
    return [pod for pod in space.pods() if pod["metadata"]["name"].startswith("flood-")]


def test_a_gang_of_hundreds_waits(
    stage: Stage, space: Space, tenants: dict[Role, Space], stalls: Stalls
) -> None:
    gang = {"sharedgpu/group_name": "large", "sharedgpu/min_available": str(MEMBERS)}
    with steady(stage, stalls):
        flood(tenants, range(MEMBERS), {"request": "0.02"}, gang)
        until_pending(space, MEMBERS // 8, "GangNoRoom")

        until_served(space, "beside")
        delete_flood(tenants, MEMBERS)
        until_gone(space)


def test_a_gang_of_thousands_is_refused(
    stage: Stage, space: Space, tenants: dict[Role, Space], stalls: Stalls
) -> None:
    gang = {"sharedgpu/group_name": "huge", "sharedgpu/min_available": str(GANG_MEMBERS)}
    with steady(stage, stalls):
        flood(tenants, range(TOO_MANY), {"request": "0.02"}, gang)
        until_all_wait(space, range(TOO_MANY), "Invalid")

        until_served(space, "beside")
        delete_flood(tenants, TOO_MANY)
        until_gone(space)
        until_served(space, "after")

"""Volcano decides when jobs begin, kube-scheduler on which node, and KubeShare on which GPU."""

from collections.abc import Iterator

import pytest

from e2e import volcano
from e2e.booting import GPUS
from e2e.space import REST, Space
from e2e.stage import Stage, eventually

pytestmark = [pytest.mark.lab, pytest.mark.exhaustive]

WORK = ("sh", "-c", "until [ -e /tmp/end ]; do sleep 0.2; done")
BY_KUBE_SCHEDULER = "default-scheduler"


@pytest.fixture(scope="module", autouse=True)
def _volcano(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with volcano.installed(stage, tmp_path_factory.mktemp("volcano")):
        yield


def until_phase(stage: Stage, space: Space, job: str, phase: str) -> None:
    """Wait until a Job of Volcano is in a phase."""
    eventually(
        lambda: volcano.phase(stage, space.name, job) == phase,
        f"job {job} to be {phase}",
        explain=lambda: volcano.phase(stage, space.name, job) + space.describe(f"{job}-{job}-0"),
    )


def test_a_job_that_kube_scheduler_binds_runs_on_shares_and_completes(
    stage: Stage, space: Space
) -> None:
    """Volcano creates its pods, and counts them."""
    volcano.create_job(space, "pair", "0.4", WORK, members=2, scheduler=BY_KUBE_SCHEDULER)
    space.until_running(2, app="pair")
    shares = [share for held in space.parts(app="pair").values() for share in held]
    assert [share["requestMicros"] for share in shares] == [400_000, 400_000]
    until_phase(stage, space, "pair", "Running")
    for pod in space.pods(app="pair"):
        space.end_with(pod["metadata"]["name"], "/tmp/end")
    until_phase(stage, space, "pair", "Completed")


def test_a_job_in_a_full_queue_has_no_pod_and_holds_nothing(stage: Stage, space: Space) -> None:
    """A queue limits CPU and memory of the templates, of which a share is no part."""
    with volcano.queue(stage, "narrow", {"cpu": "100m"}):
        volcano.create_job(
            space, "wide", "0.4", WORK, scheduler=BY_KUBE_SCHEDULER, queue="narrow", cpu="200m"
        )
        until_phase(stage, space, "wide", "Pending")
        volcano.create_job(
            space, "slim", "0.4", WORK, scheduler=BY_KUBE_SCHEDULER, queue="narrow", cpu="50m"
        )
        space.until_running(1, app="slim")
        assert space.pods(app="wide") == []
        holders = [one for vgpu in stage.vgpus() for one in vgpu["status"]["holders"]]
        assert [one["name"] for one in holders] == ["slim-slim-0"]
        space.delete("jobs.batch.volcano.sh", "slim")
        space.delete("jobs.batch.volcano.sh", "wide")
        eventually(lambda: space.pods() == [], "the jobs' pods to be gone")


def test_members_start_without_the_others_where_kube_scheduler_binds_them(
    stage: Stage, space: Space
) -> None:
    """Volcano looks at ``minAvailable`` before it creates the pods, and never again."""
    members = GPUS + 1
    volcano.create_job(space, "many", "1", WORK, members=members, scheduler=BY_KUBE_SCHEDULER)
    space.until_running(GPUS, app="many")
    eventually(lambda: len(space.pods(app="many")) == members, "Volcano to create all pods")
    (waiting,) = (pod for pod in space.pods(app="many") if pod["status"]["phase"] == "Pending")
    assert "nodeName" not in waiting["spec"]
    assert volcano.phase(stage, space.name, "many") == "Pending"


def test_volcanos_own_scheduler_binds_no_pod_that_shares(stage: Stage, space: Space) -> None:
    """It knows the resource from nodes only, of which none has it, so its queue has none."""
    volcano.create_job(space, "without", "", REST)
    space.until_running(1, app="without")

    volcano.create_job(space, "own", "0.4", REST)
    given_up = space.event("own-own-0", "NodeFull")
    assert "pod group is not ready" in given_up
    assert "it is deleted so that its controller makes another" in given_up
    refused = "Queue <default> is overused when considering task <own-own-0>"
    eventually(
        lambda: refused in volcano.scheduler_log(stage),
        refused,
        explain=lambda: volcano.scheduler_log(stage),
    )
    assert all("nodeName" not in pod["spec"] for pod in space.pods(app="own"))


def test_a_pod_by_itself_keeps_its_share_beside_volcanos_scheduler(
    stage: Stage, space: Space
) -> None:
    """Nothing would make another one, so KubeShare says what to do."""
    space.plain("bare", "0.4", schedulerName="volcano")
    assert "it keeps its share of vGPU" in space.event("bare", "Unschedulable")
    holders = [one for vgpu in stage.vgpus() for one in vgpu["status"]["holders"]]
    assert [one["name"] for one in holders] == ["bare"]
    pod = space.find_pod("bare")
    assert pod is not None
    assert "nodeName" not in pod["spec"]

"""Every kind of workload shares GPUs by what its pod template says, and all at the same time.

Four GPUs are asked for more than they have: what does not fit waits for what ends.
"""

import json
from pathlib import Path

import pytest

from e2e.space import Space
from e2e.stage import Raw, Stage, eventually

pytestmark = pytest.mark.lab

EXAMPLES = Path(__file__).parents[2] / "examples"
KINDS = ("pod", "deployment", "statefulset", "daemonset", "cronjob", "job", "gang")
SECONDS = "--timeout=180s"


@pytest.fixture(scope="module", autouse=True)
def applied(stage: Stage, shared_space: Space) -> None:
    """All of them in one namespace."""
    for kind in KINDS:
        stage.kubectl("apply", "-n", shared_space.name, "-f", str(EXAMPLES / f"{kind}.yaml"))
    stage.kubectl(
        *("create", "job", "now", "-n", shared_space.name, "--from=cronjob/nightly"),
    )


def describe(space: Space) -> str:
    return space.stage.kubectl("describe", "pods", "-n", space.name)


def rolled_out(space: Space, what: str) -> None:
    space.stage.kubectl("rollout", "status", what, "-n", space.name, SECONDS)


def complete(space: Space, job: str) -> None:
    space.stage.kubectl("wait", f"job/{job}", "-n", space.name, "--for=condition=complete", SECONDS)


def placed_at(pod: Raw) -> str:
    """When it was bound to its node, which is when it had its part."""
    conditions = pod["status"]["conditions"]
    (scheduled,) = [one for one in conditions if one["type"] == "PodScheduled"]
    return str(scheduled["lastTransitionTime"])


def test_of_a_pod_the_named_container_has_the_gpu_and_no_other(shared_space: Space) -> None:
    shared_space.until_phase("notebook", "Succeeded", "Failed")
    log = ("logs", "-n", shared_space.name, "notebook", "-c")

    assert "kernels" in shared_space.stage.kubectl(*log, "main")
    assert "nvidia" not in shared_space.stage.kubectl(*log, "aside")


def test_a_job_runs_eight_at_once_on_two_gpus_or_more(shared_space: Space) -> None:
    complete(shared_space, "sweep")

    found = shared_space.pods(**{"batch.kubernetes.io/job-name": "sweep"})
    assert [pod["status"]["phase"] for pod in found] == ["Succeeded"] * 8


def test_a_gang_runs_whole(shared_space: Space) -> None:
    complete(shared_space, "train")

    found = shared_space.pods(**{"batch.kubernetes.io/job-name": "train"})
    ends = [pod["status"]["containerStatuses"][0]["state"]["terminated"] for pod in found]
    assert len(ends) == 4
    last = max(placed_at(pod) for pod in found)
    assert last <= min(end["finishedAt"] for end in ends), "all were placed before one had ended"


def test_a_cron_jobs_job_runs(shared_space: Space) -> None:
    complete(shared_space, "now")


def test_a_daemon_set_has_a_part_on_each_node(shared_space: Space) -> None:
    rolled_out(shared_space, "daemonset/probe")

    nodes = {pod["spec"]["nodeName"] for pod in shared_space.pods(app="probe")}
    assert nodes == {"node-1", "node-2"}
    assert sum(map(len, shared_space.parts(app="probe").values())) == 2


def test_the_pods_of_a_stateful_set_are_kept_apart(shared_space: Space) -> None:
    rolled_out(shared_space, "statefulset/shard")

    held = shared_space.parts(app="shard")
    assert sorted(len(holders) for holders in held.values()) == [1, 1]
    names = {holder["name"] for holders in held.values() for holder in holders}
    assert names == {"shard-0", "shard-1"}


def test_a_deployment_is_rolled_and_scaled_as_ever(stage: Stage, shared_space: Space) -> None:
    here = ("deployment/serve", "-n", shared_space.name)
    rolled_out(shared_space, "deployment/serve")
    first = {pod["metadata"]["uid"] for pod in shared_space.pods(app="serve")}

    stage.kubectl("rollout", "restart", *here)
    rolled_out(shared_space, "deployment/serve")
    stage.kubectl("scale", *here, "--replicas=3")
    rolled_out(shared_space, "deployment/serve")

    def held() -> list[Raw]:
        return [one for holders in shared_space.parts(app="serve").values() for one in holders]

    eventually(lambda: len(held()) == 3, "three parts", explain=lambda: json.dumps(held()))
    assert first.isdisjoint(one["podUid"] for one in held())
    assert {(one["requestMicros"], one["memoryBytes"]) for one in held()} == {(300_000, 2 << 30)}


def test_deleted_they_leave_nothing(stage: Stage, shared_space: Space) -> None:
    for kind in KINDS:
        stage.kubectl(
            *("delete", "-n", shared_space.name, "-f", str(EXAMPLES / f"{kind}.yaml")),
            "--wait=false",
        )

    eventually(
        lambda: not shared_space.pods(), "all pods to go", explain=lambda: describe(shared_space)
    )
    eventually(lambda: not stage.vgpus(), "all GPUs to be given back")

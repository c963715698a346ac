"""Parts of GPUs while pods fail and are tried again."""

import pytest

from e2e.manifests import job, template
from e2e.space import Space, container
from e2e.stage import Stage, eventually

pytestmark = pytest.mark.lab

SECONDS = "--timeout=180s"
FAILS_ONCE = ("sh", "-c", "test -e /kept/tried && exit 0; touch /kept/tried; exit 3")
KEPT = {"name": "kept", "emptyDir": {}}


@pytest.fixture(scope="module", autouse=True)
def failing(shared_space: Space) -> None:
    """Pods that fail; Kubernetes makes its pauses before others while the tests go on."""
    fails = template("fails", "0.5", ("sh", "-c", "exit 3"), restartPolicy="Never")
    shared_space.create(job("fails", fails, backoffLimit=1))


def test_a_container_that_is_started_again_keeps_its_part(stage: Stage, space: Space) -> None:
    mounted = {"name": "kept", "mountPath": "/kept"}
    space.share(
        "again",
        {"request": "0.5", "id": "again"},
        restartPolicy="OnFailure",
        volumes=[KEPT],
        containers=[container(FAILS_ONCE, volumeMounts=[mounted])],
    )

    space.until_phase("again", "Succeeded", "Failed")

    assert space.phase("again") == "Succeeded"
    assert space.lives("again")[1] == 1
    eventually(lambda: not stage.holders("again"), "its part to be given back")


def test_each_pod_of_a_job_that_fails_gives_its_part_back(
    stage: Stage, shared_space: Space
) -> None:
    stage.kubectl("wait", "job/fails", "-n", shared_space.name, "--for=condition=Failed", SECONDS)

    found = shared_space.pods(**{"batch.kubernetes.io/job-name": "fails"})
    ended = [pod["status"]["containerStatuses"][0]["state"]["terminated"] for pod in found]
    assert [state["exitCode"] for state in ended] == [3, 3]
    assert all("kubeshare.nthu/gpuids" in pod["metadata"]["annotations"] for pod in found)
    eventually(lambda: not stage.vgpus(), "their parts to be given back")

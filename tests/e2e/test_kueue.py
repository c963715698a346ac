"""Kueue decides when jobs and pods begin, and KubeShare on which GPU they run."""

from collections.abc import Iterator

import pytest

from e2e import kueue
from e2e.manifests import job, template
from e2e.space import REST, Space
from e2e.stage import Raw, Stage, eventually

pytestmark = [pytest.mark.lab, pytest.mark.exhaustive]

WORK = ("sh", "-c", "until [ -e /tmp/end ]; do sleep 0.2; done")


@pytest.fixture(scope="module", autouse=True)
def _kueue(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with kueue.installed(stage, tmp_path_factory.mktemp("kueue")):
        yield


def create_job(space: Space, name: str, queue: str, pods: Raw) -> None:
    """A Job in a queue."""
    manifest = job(name, pods)
    manifest["metadata"]["labels"] = {kueue.QUEUE_LABEL: queue}
    space.create(manifest)


def until_waits(stage: Stage, space: Space, owner: str, words: str) -> None:
    """Wait until the Workload of an object has no quota for a reason."""
    path = f"the workload of {owner} to wait: {words}"

    def said() -> list[str]:
        return [
            condition["message"]
            for one in kueue.workloads(stage, space.name)
            if one["metadata"]["ownerReferences"][0]["name"] == owner
            for condition in one.get("status", {}).get("conditions", [])
            if condition["type"] == "QuotaReserved" and condition["status"] == "False"
        ]

    eventually(
        lambda: any(words in message for message in said()), path, explain=lambda: str(said())
    )


def test_a_job_without_quota_holds_nothing_until_another_one_has_ended(
    stage: Stage, space: Space
) -> None:
    """The template of a Job has annotations only: Kueue counts its pods."""
    kueue.queue(stage, space.name, "jobs", {"pods": "1"})
    create_job(space, "first", "jobs", template("first", "0.5", WORK, restartPolicy="Never"))
    space.until_running(1, app="first")
    create_job(space, "second", "jobs", template("second", "0.3", WORK, restartPolicy="Never"))
    until_waits(stage, space, "second", "insufficient unused quota for pods")
    assert space.pods(app="second") == []
    ((share,),) = space.parts(app="first").values()
    assert share["requestMicros"] == 500_000

    (pod,) = space.pods(app="first")
    space.end_with(pod["metadata"]["name"], "/tmp/end")
    space.until_running(1, app="second")
    ((share,),) = space.parts(app="second").values()
    assert share["requestMicros"] == 300_000


def test_kueue_counts_the_share_that_is_added_to_a_pod(stage: Stage, space: Space) -> None:
    """A pod without quota is gated by both, and holds nothing."""
    kueue.queue(stage, space.name, "no-shares", {"pods": "9"})
    kueue.queue(stage, space.name, "shares", {"kubeshare.nthu/vgpu": "1"})
    for name, queue in (("uncovered", "no-shares"), ("first", "shares")):
        space.plain(name, "0.3", REST, labels={kueue.QUEUE_LABEL: queue})
    until_waits(stage, space, "uncovered", "resource kubeshare.nthu/vgpu unavailable")
    space.until_phase("first", "Running")
    space.plain("second", "0.3", REST, labels={kueue.QUEUE_LABEL: "shares"})
    until_waits(stage, space, "second", "insufficient unused quota for kubeshare.nthu/vgpu")
    assert kueue.GATE in space.pod_waits("second", "Postponed")
    assert [holder["name"] for vgpu in stage.vgpus() for holder in vgpu["status"]["holders"]] == [
        "first"
    ]

    space.delete("pod", "first")
    space.until_phase("second", "Running")


def test_kueue_counts_the_cores_of_gaias_pods(stage: Stage, space: Space) -> None:
    """Hundredths of a GPU are a resource of the container there."""
    names = ("tencent.com/vcuda-core", "tencent.com/vcuda-memory")
    kueue.queue(stage, space.name, "cores", {names[0]: "50", names[1]: "60"})
    for name, cores in (("first", 30), ("second", 30)):
        pods = template(name, "", REST, restartPolicy="Never")
        (container,) = pods["spec"]["containers"]
        container["resources"] = {"limits": dict(zip(names, (cores, 10), strict=True))}
        create_job(space, name, "cores", pods)
        eventually(lambda: space.pods(app="first"), "the pod of the first job")
    until_waits(stage, space, "second", "insufficient unused quota for tencent.com/vcuda-core")
    assert space.pods(app="second") == []

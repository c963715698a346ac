"""A part of a GPU is given back when its containers have stopped, the GPU after the last part."""

import json

import pytest

from e2e.pages import run
from e2e.space import BURN, REST, Space
from e2e.stage import Place, Stage, eventually
from wakeups import Wakeups

pytestmark = pytest.mark.lab

ACCOUNT_TOLERANCE = 0.001
"""Of what was charged, from what the GPU worked by its own log."""
BEFORE_AND_AFTER_NS = 250_000_000
"""What else is charged to one process: until its first kernel, and from its last one to its end.
It is some milliseconds on a machine with nothing else to do, and longer by what this one loses."""

LIST_EVERYTHING = """
import json, os, pynvml
pynvml.nvmlInit()
gpus = [pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(pynvml.nvmlDeviceGetCount())]
print(json.dumps({
    "gpus": sorted(pynvml.nvmlDeviceGetUUID(gpu) for gpu in gpus),
    "memory": pynvml.nvmlDeviceGetMemoryInfo(gpus[0]).total,
    "ours": [p for p in ("/run/kubeshare", "/opt/kubeshare", "/etc/ld.so.preload")
             if os.path.exists(p)],
    "mapped": "kubeshare" in open("/proc/self/maps").read(),
}))
"""


def test_a_job_that_is_done_gives_its_gpu_back_and_stays_to_be_read(
    stage: Stage, space: Space
) -> None:
    """And there is an account of it, which is what the GPU worked for it."""
    # With kernels in flight while a busy machine lets it wait.
    job = ("burn", "--seconds", "5", "--inflight", "32")
    with Wakeups() as wakeups:
        space.share("job", {"request": "0.5"}, job, restartPolicy="Never")
        eventually(
            lambda: space.status("job").get("phase") == "Succeeded",
            "SharePod job to have succeeded",
            explain=lambda: space.describe("job"),
        )
    eventually(lambda: not stage.vgpus(), "its vGPU to be given back")

    assert space.phase("job") == "Succeeded"
    assert "kernels" in space.log("job")
    assert space.condition("job", "Allocated")["reason"] == "Released"
    assert stage.placeholders() == []

    path = f"/apis/kubeshare.nthu/v1/namespaces/{space.name}/shareusages"
    (account,) = eventually(lambda: stage.items(path), "the account of the job")
    status, (share,) = account["status"], account["status"]["shares"]
    assert (status["pod"], status["ended"], status["complete"]) == ("job", True, True)
    assert share["requestMicros"] == 500_000
    place = Place(status["nodeName"], "", share["uuid"])
    worked_ns = stage.meter(place, ["job"]).sample().busy_ns["job"]
    assert share["usedNs"] >= worked_ns * (1 - ACCOUNT_TOLERANCE)
    beyond = share["usedNs"] - worked_ns * (1 + ACCOUNT_TOLERANCE)
    assert beyond < BEFORE_AND_AFTER_NS + wakeups.lost_seconds * 1e9
    assert share["usedNs"] < status["durationNs"]
    told = json.loads(run(stage, f"kubeshare usage -n {space.name} --by pod -o json"))
    assert told["complete"]
    assert told["rows"][0]["pod"] == "job"
    assert told["rows"][0]["usedGpuSeconds"] == pytest.approx(share["usedNs"] / 1e9)


def test_a_part_is_held_until_its_containers_have_stopped(stage: Stage, space: Space) -> None:
    # Its first process ignores the polite signal, and works on until the test lets it end.
    script = "trap '' TERM; burn --seconds 3600 & until [ -e /tmp/end ]; do sleep 0.1; done"
    stubborn = ("sh", "-c", script)
    space.share("slow", {"request": "0.5"}, stubborn, terminationGracePeriodSeconds=3600)
    place = space.ready("slow")
    stage.works_for(place, "slow")

    space.delete("sharepod", "slow")
    eventually(
        lambda: (pod := space.find_pod("slow")) and "deletionTimestamp" in pod["metadata"],
        "its pod to be deleted",
    )
    assert stage.processes("slow"), "the container runs on for its grace"
    assert space.sharepod("slow") is not None, "it goes after its pod"
    assert "slow" in stage.holders(place.gpuid)
    space.end_with("slow", "/tmp/end")
    eventually(lambda: "slow" not in stage.holders(place.gpuid), "its part to be given back")
    assert stage.processes("slow") == []
    eventually(lambda: space.find_pod("slow") is None, "its pod to be gone")
    eventually(lambda: space.sharepod("slow") is None, "SharePod slow to be gone")
    eventually(lambda: not stage.placeholders(), "its placeholder to be gone")
    eventually(lambda: not stage.vgpus(), "its vGPU to be gone")


@pytest.mark.parametrize("cascade", ["background", "foreground"])
def test_a_deletion_waits_for_the_containers(stage: Stage, space: Space, cascade: str) -> None:
    stubborn = ("sh", "-c", "trap '' TERM; burn --seconds 3600; true")
    space.share("waited", {"request": "0.5"}, stubborn, terminationGracePeriodSeconds=2)
    space.ready("waited")

    stage.kubectl("delete", "shp", "waited", "-n", space.name, f"--cascade={cascade}")

    assert space.find_pod("waited") is None
    assert stage.processes("waited") == []


def test_a_native_pod_gets_a_released_gpu_and_meets_nothing_of_ours(
    stage: Stage, space: Space
) -> None:
    space.share("first", {"request": "0.1"}, BURN)
    place = space.ready("first")
    here = {"kubernetes.io/hostname": place.node}
    look = ("python3", "-c", LIST_EVERYTHING)
    space.pod("native", {"nvidia.com/gpu": "2"}, look, nodeSelector=here, restartPolicy="Never")
    assert "Insufficient nvidia.com/gpu" in space.event("native", "FailedScheduling")

    space.delete("sharepod", "first")
    space.until_phase("native", "Succeeded", "Failed")

    seen = json.loads(space.log("native"))
    assert place.uuid in seen["gpus"]
    assert len(seen["gpus"]) == 2
    assert seen["memory"] == 16 << 30
    assert (seen["ours"], seen["mapped"]) == ([], False)


def test_a_sharepod_whose_name_comes_again_is_another(space: Space) -> None:
    space.share("again", {"request": "0.5"}, REST)
    space.ready("again")
    before = space.lives("again")
    space.delete("sharepod", "again")
    eventually(lambda: space.sharepod("again") is None, "SharePod again to be gone")

    space.share("again", {"request": "0.5"}, REST)

    eventually(
        lambda: (pod := space.find_pod("again")) and pod["metadata"]["uid"] != before[0],
        "another pod",
        explain=lambda: space.describe("again"),
    )
    space.ready("again")


def test_the_pod_of_a_sharepod_deleted_alone_goes_on_and_keeps_its_part(
    stage: Stage, space: Space
) -> None:
    space.share("alone", {"request": "0.5"}, BURN)
    place = space.ready("alone")
    before = space.lives("alone")

    stage.kubectl("delete", "shp", "-n", space.name, "alone", "--cascade=orphan")

    assert space.sharepod("alone") is None
    stage.works_for(place, "alone")
    assert space.lives("alone") == before
    assert set(stage.holders(place.gpuid)) == {"alone"}
    assert "ownerReferences" not in (space.find_pod("alone") or {})["metadata"]
    space.delete("pod", "alone")
    eventually(lambda: not stage.vgpus(), "its vGPU to be given back")

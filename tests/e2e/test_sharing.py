"""Three pods share one GPU: what each object says, what each container sees, who gets how much."""

import json
from typing import Any

import pytest

from e2e import trio
from e2e.space import Space
from e2e.stage import Place, Stage
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.lab

GIB = 1 << 30
LOOK_AROUND = """
import ctypes, errno, json, os, pynvml
pynvml.nvmlInit()
gpus = [pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(pynvml.nvmlDeviceGetCount())]
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
free, total, device_total = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_size_t()
cuda.cuInit(0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuCtxSetCurrent(context)
cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
cuda.cuDeviceTotalMem_v2(ctypes.byref(device_total), 0)
def refused(path, flags):
    try:
        os.close(os.open(path, flags))
    except OSError as error:
        return errno.errorcode[error.errno]
    return "it can be done"
print(json.dumps({
    "gpus": [pynvml.nvmlDeviceGetUUID(gpu) for gpu in gpus],
    "totals": [pynvml.nvmlDeviceGetMemoryInfo(gpus[0]).total, total.value, device_total.value],
    "write page": refused("/run/kubeshare/claim/page", os.O_RDWR),
    "new file": refused("/run/kubeshare/claim/mine", os.O_WRONLY | os.O_CREAT),
    "write preload": refused("/etc/ld.so.preload", os.O_WRONLY),
    "write library": refused("/opt/kubeshare/libkubeshare-vgpu.so", os.O_WRONLY),
    "claims": sorted(os.listdir("/run/kubeshare/claim")),
    "user": os.getuid(),
}))
"""


@pytest.fixture(scope="module")
def place(shared_space: Space) -> Place:
    """The three of the figure run, and this is where."""
    return trio.come(shared_space)


@pytest.fixture(scope="module")
def seen(shared_space: Space, place: Place) -> dict[str, Any]:
    """What root in the container of ``a`` finds there."""
    found: dict[str, Any] = json.loads(shared_space.run("a", "python3", "-c", LOOK_AROUND))
    return found


def test_the_vgpu_lists_its_three_holders_and_their_pods(
    stage: Stage, shared_space: Space, place: Place
) -> None:
    vgpu, holders = stage.vgpu(place.gpuid), stage.holders(place.gpuid)

    assert vgpu is not None
    assert (vgpu["status"]["phase"], vgpu["spec"]["uuid"]) == ("Active", place.uuid)
    assert {name: holder["requestMicros"] for name, holder in holders.items()} == {
        "a": 300_000,
        "b": 400_000,
        "c": 300_000,
    }
    assert {holder["memoryBytes"] for holder in holders.values()} == {GIB}
    for name, holder in holders.items():
        assert holder["podUid"] == shared_space.lives(name)[0]


def test_one_placeholder_keeps_the_gpu(stage: Stage, place: Place) -> None:
    assert stage.placeholders() == [f"kubeshare-vgpu-{place.gpuid}"]


def test_kubectl_get_tells_it_at_a_glance(stage: Stage, shared_space: Space, place: Place) -> None:
    def lines(*kind: str) -> dict[str, list[str]]:
        printed = stage.kubectl("get", *kind, "--no-headers").splitlines()
        return {words[0]: words[1:] for words in map(str.split, printed)}

    sharepods = lines("shp", "-n", shared_space.name)
    assert {name: words[:4] for name, words in sharepods.items()} == {
        pod: ["Running", "True", place.gpuid, place.node] for pod in trio.PODS
    }
    assert lines("vgpu")[place.gpuid][:6] == ["Active", place.node, "3", "1", "3Gi", place.uuid]
    assert {name: words[0] for name, words in lines("gpunode").items()} == {
        "node-1": "2",
        "node-2": "2",
    }


def test_kubectl_describe_tells_how_it_came_about(shared_space: Space, place: Place) -> None:
    described = shared_space.describe("a")

    assert f"vGPU {place.gpuid} on node {place.node}" in described
    assert f"share of {place.gpuid} ({place.uuid})" in described


def test_a_container_sees_one_gpu_and_its_own_memory_as_all_there_is(
    seen: dict[str, Any], place: Place
) -> None:
    assert seen["gpus"] == [place.uuid]
    assert seen["totals"] == [GIB] * 3


def test_not_even_root_in_the_container_can_change_its_limits(seen: dict[str, Any]) -> None:
    assert seen["user"] == 0
    assert seen["claims"] == ["page", "socket"]
    attempts = ("write page", "new file", "write preload", "write library")
    assert {one: seen[one] for one in attempts} == dict.fromkeys(attempts, "EROFS")


def test_each_has_the_share_that_follows_from_the_requests(
    shared_space: Space, place: Place
) -> None:
    trio.assert_shares(shared_space, place)


def test_nobody_can_promise_more_of_the_gpu_than_is_left(stage: Stage, place: Place) -> None:
    holder = {
        "demand": "forged",
        "name": "forged",
        "requestMicros": 1,
        "limitMicros": 1,
        "memoryBytes": 0,
    }
    patch = [{"op": "add", "path": "/status/holders/-", "value": holder}]

    with pytest.raises(LabError, match="would be more than one GPU"):
        stage.kubectl(
            *("patch", "vgpu", place.gpuid, "--subresource=status", "--type=json"),
            *("-p", json.dumps(patch)),
        )

    assert set(stage.holders(place.gpuid)) == set(trio.PODS)

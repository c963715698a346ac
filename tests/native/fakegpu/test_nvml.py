"""NVML as nvidia-ml-py, NVIDIA's own Python client, sees it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fakes.gpu_client import Client, drive
from kubeshare import fakegpu, native

pytestmark = pytest.mark.native

GIB = 1 << 30


def nvml(state: Path, profile: str | Path, script: str, extra: dict[str, str] | None = None) -> Any:
    """What a script, run in a process of its own, puts into `answer`."""
    program = f"import json, pynvml as nvml\nnvml.nvmlInit()\n{script}\nprint(json.dumps(answer))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **fakegpu.environment(profile, state), **(extra or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


HANDLES = "all = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]\n"


def test_gpus_are_found_by_index_uuid_and_bus(tmp_path: Path) -> None:
    answer = nvml(
        tmp_path,
        "V100x2",
        HANDLES + "uuids = [nvml.nvmlDeviceGetUUID(h) for h in all]\n"
        "buses = [nvml.nvmlDeviceGetPciInfo(h).busId for h in all]\n"
        "by_uuid = [nvml.nvmlDeviceGetHandleByUUID(u) for u in uuids]\n"
        "by_bus = [nvml.nvmlDeviceGetHandleByPciBusId(b) for b in buses]\n"
        "answer = [uuids, [nvml.nvmlDeviceGetIndex(h) for h in by_uuid],"
        " [nvml.nvmlDeviceGetMinorNumber(h) for h in by_bus],"
        " [nvml.nvmlDeviceGetName(h) for h in all], nvml.nvmlSystemGetDriverVersion()]",
    )
    uuids = [gpu.uuid for gpu in fakegpu.gpus("V100x2")]
    assert answer[:4] == [uuids, [0, 1], [0, 1], ["Tesla V100-SXM2-16GB"] * 2]
    assert answer[4].startswith("615.")


def test_memory_and_processes_are_those_of_the_engine(tmp_path: Path) -> None:
    with Client(tmp_path) as client:
        client("allocate", 3 * GIB)
        answer = nvml(
            tmp_path,
            "V100x1",
            HANDLES + "gpu = all[0]\n"
            "old, new = (nvml.nvmlDeviceGetMemoryInfo(gpu),"
            " nvml.nvmlDeviceGetMemoryInfo(gpu, version=nvml.nvmlMemory_v2))\n"
            "versions = (nvml.nvmlDeviceGetComputeRunningProcesses_v2,"
            " nvml.nvmlDeviceGetComputeRunningProcesses_v3)\n"
            "answer = [[old.total, old.used, old.free], [new.total, new.used, new.free],"
            " *[[[p.pid, p.usedGpuMemory] for p in version(gpu)] for version in versions]]",
        )
        process = [client.pid, 3 * GIB]
        memory = [16 * GIB, 3 * GIB, 13 * GIB]
        assert answer == [memory, memory, [process], [process]]


def test_details_of_processes_are_given_by_mode(tmp_path: Path) -> None:
    with Client(tmp_path) as client:
        client("allocate", 3 * GIB)
        answer = nvml(
            tmp_path,
            "V100x1",
            HANDLES + "gpu = all[0]\n"
            "ask = nvml.nvmlDeviceGetRunningProcessDetailList\n"
            "lists = [ask(gpu, nvml.nvmlProcessDetailList_v1, mode) for mode in range(4)]\n"
            "bar1 = nvml.nvmlDeviceGetBAR1MemoryInfo(gpu)\n"
            "answer = [[[[p.pid, p.usedGpuMemory] for p in found] for found in lists],"
            " bar1.bar1Total, bar1.bar1Total - bar1.bar1Free - bar1.bar1Used]",
        )
        process = [client.pid, 3 * GIB]
        assert answer == [[[process], [], [], [process]], 16 * GIB, 0]


def test_the_driver_and_nvml_agree_about_every_kind_of_memory(tmp_path: Path) -> None:
    script = """
        import pynvml
        pynvml.nvmlInit()
        gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
        stream = good(d.cuStreamCreate(0))
        props = d.CUmemAllocationProp()
        props.type = d.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        props.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        shape = d.CUDA_ARRAY3D_DESCRIPTOR()
        shape.Width = shape.Height = 1024
        shape.Format, shape.NumChannels = d.CUarray_format.CU_AD_FORMAT_FLOAT, 1
        kinds = [lambda: d.cuMemAlloc(3 << 20), lambda: d.cuMemAllocPitch(100, 100, 4),
                 lambda: d.cuMemAllocManaged(3 << 20, 1), lambda: d.cuMemAllocAsync(100, stream),
                 lambda: d.cuMemCreate(2 << 20, props, 0), lambda: d.cuArray3DCreate(shape),
                 lambda: d.cuCtxSetLimit(d.CUlimit.CU_LIMIT_STACK_SIZE, 2048),
                 lambda: d.cuMemHostAlloc(1 << 20, 0)]
        told = [used()]
        for kind in kinds:
            good(kind())
            told.append(used())
            memory = pynvml.nvmlDeviceGetMemoryInfo(gpu)
            [process] = pynvml.nvmlDeviceGetComputeRunningProcesses(gpu)
            assert told[-1] == memory.used == memory.total - memory.free == process.usedGpuMemory
        answer = [later - earlier for earlier, later in zip(told, told[1:])]
    """
    assert drive(tmp_path, script) == [
        4 << 20,
        100 * 512,
        4 << 20,
        32 << 20,
        2 << 20,
        4 << 20,
        1024 * 80 * 2048,
        0,
    ]


def test_the_driver_and_nvml_live_in_one_process(tmp_path: Path) -> None:
    """NVML's end must not take the driver's locks with it, by which the driver is known to live."""
    answer = nvml(
        tmp_path,
        "V100x1",
        HANDLES + "import ctypes, os\ncuda = ctypes.CDLL('libcuda.so.1')\n"
        "context = ctypes.c_void_p()\n"
        "results = [cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)]\n"
        "nvml.nvmlShutdown()\nnvml.nvmlInit()\n"
        "found = nvml.nvmlDeviceGetComputeRunningProcesses(all[0])\n"
        "answer = results + [p.pid == os.getpid() for p in found]",
    )
    assert answer == [0, 0, True]


@pytest.mark.parametrize(
    ("profile", "ancestors", "links"),
    [
        ("v100-16g-x4-nvlink.profile", [10, 50, 50], 6),
        ("v100-16g-x2-pcie.profile", [50], 0),
    ],
)
def test_topology_comes_from_the_profile(
    tmp_path: Path, profile: str, ancestors: list[int], links: int
) -> None:
    answer = nvml(
        tmp_path,
        native.path("fakegpu/profiles") / profile,
        HANDLES + "first, *others = all\n"
        "def links():\n"
        "    try:\n"
        "        return sum(nvml.nvmlDeviceGetNvLinkState(first, i) for i in range(6))\n"
        "    except nvml.NVMLError_NotSupported:\n"
        "        return 0\n"
        "answer = [[nvml.nvmlDeviceGetTopologyCommonAncestor(first, o) for o in others], links(),"
        " [list(nvml.nvmlDeviceGetMemoryAffinity(gpu, 1, 0)) for gpu in (first, others[-1])]]",
    )
    assert answer == [ancestors, links, [[0b01], [0b10]]]


def test_a_gpu_whose_memory_is_no_numa_node_has_none_of_its_own(tmp_path: Path) -> None:
    """As real drivers answer, but on machines such as Grace Hopper."""
    answer = nvml(
        tmp_path,
        "V100x1",
        HANDLES + "try:\n"
        "    answer = nvml.nvmlDeviceGetNumaNodeId(all[0])\n"
        "except nvml.NVMLError_NotSupported:\n"
        "    answer = 'not supported'",
    )
    assert answer == "not supported"


def test_the_other_ends_of_nvlinks_are_the_peers_in_order(tmp_path: Path) -> None:
    answer = nvml(
        tmp_path,
        "V100x4",
        HANDLES + "buses = {nvml.nvmlDeviceGetPciInfo(h).busId: i for i, h in enumerate(all)}\n"
        "answer = [buses[nvml.nvmlDeviceGetNvLinkRemotePciInfo(all[1], i).busId]"
        " for i in range(6)]",
    )
    assert answer == [0, 0, 2, 2, 3, 3]


def test_where_device_nodes_count_a_machine_without_them_has_no_gpu(tmp_path: Path) -> None:
    assert not Path("/dev/nvidia0").exists()
    script = "answer = nvml.nvmlDeviceGetCount()"
    assert nvml(tmp_path, "V100x2", script, {"FAKEGPU_DEVICE_NODES": "1"}) == 0


def test_nvml_works_in_the_child_of_a_fork(tmp_path: Path) -> None:
    answer = nvml(
        tmp_path,
        "V100x1",
        HANDLES + "import os\nchild = os.fork()\n"
        "if child == 0:\n"
        "    os._exit(nvml.nvmlDeviceGetMemoryInfo(all[0]).total >> 30)\n"
        "answer = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])",
    )
    assert answer == 16


def test_mig_devices_have_handles_of_their_own(tmp_path: Path) -> None:
    profile = tmp_path / "cut.profile"
    profile.write_text("model = V100\nmig.0 = 2\n")
    answer = nvml(
        tmp_path / "state",
        profile,
        HANDLES + "mig = nvml.nvmlDeviceGetMigDeviceHandleByIndex(all[0], 1)\n"
        "uuid = nvml.nvmlDeviceGetUUID(mig)\n"
        "again = nvml.nvmlDeviceGetHandleByUUID(uuid)\n"
        "answer = [nvml.nvmlDeviceGetMigMode(all[0]), nvml.nvmlDeviceIsMigDeviceHandle(mig).value,"
        " uuid[:4], nvml.nvmlDeviceGetUUID(again) == uuid,"
        " nvml.nvmlDeviceGetMemoryInfo(mig).total >> 30,"
        " nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig))[:4]]",
    )
    assert answer == [[1, 1], 1, "MIG-", True, 8, "GPU-"]


def test_where_mps_serves_every_process_is_its_client(tmp_path: Path) -> None:
    profile = tmp_path / "mps.profile"
    profile.write_text("model = V100\nmps = 1\ncompute_mode = exclusive_process\n")
    with Client(tmp_path / "state", str(profile)) as client:
        client("synchronize")
        answer = nvml(
            tmp_path / "state",
            profile,
            HANDLES + "answer = [[p.pid for p in"
            " nvml.nvmlDeviceGetMPSComputeRunningProcesses_v3(all[0])],"
            " nvml.nvmlDeviceGetComputeMode(all[0])]",
        )
        assert answer == [[client.pid], 3]


def test_the_gpus_near_a_cpu_are_found(tmp_path: Path) -> None:
    profile = tmp_path / "two.profile"
    profile.write_text(
        "model = V100\ncount = 3\nnuma.1 = 1\nnuma.2 = 1\ncpus.0 = 0-3\ncpus.1 = 4-7\n"
    )
    answer = nvml(
        tmp_path / "state",
        profile,
        HANDLES + "index = {nvml.nvmlDeviceGetUUID(h): i for i, h in enumerate(all)}\n"
        "answer = [[index[nvml.nvmlDeviceGetUUID(h)] for h in"
        " nvml.nvmlSystemGetTopologyGpuSet(cpu)] for cpu in (2, 5, 9)]"
        " + [nvml.nvmlDeviceOnSameBoard(all[0], all[1])]",
    )
    assert answer == [[0], [1, 2], [], 0]

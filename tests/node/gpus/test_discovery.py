"""Discovery through the fake NVML, installed like a driver's."""

import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from core.topology.topologies import DGX_1
from deadlines import DEADLINE_S
from kubeshare import native
from kubeshare.api.link_matrix import matrix
from kubeshare.api.topology.drawings import matrix_text
from kubeshare.api.topology.node_topology import NodeTopology
from kubeshare.api.types.v1 import GPUNodeSpec
from kubeshare.core.topology import Level, nvlink, read_matrix, read_notation
from kubeshare.fakegpu import gpus, write_sysfs
from kubeshare.node.gpus.discovery import DiscoveryError, NvmlGpus, find_nvml

SHIPPED = Path(__file__).parents[3] / "native/fakegpu/profiles"

# A process of its own: a library, once loaded, stays for the life of a process.
_READ = """
import sys
from pathlib import Path
import msgspec
from kubeshare.node.gpus.discovery import DiscoveryError, NvmlGpus
gpus = NvmlGpus(Path(sys.argv[1]))
try:
    first = gpus.read()
except DiscoveryError as error:
    sys.exit(str(error))
gpus.close()
assert gpus.read() == first
sys.stdout.buffer.write(msgspec.json.encode(first))
"""


@pytest.fixture
def driver_root(tmp_path: Path) -> Path:
    """A driver's root with the fake NVML and a profile beside it."""
    libraries = tmp_path / "usr/lib/x86_64-linux-gnu"
    libraries.mkdir(parents=True)
    shutil.copy(native.path("fakegpu/libnvidia-ml.so.1"), libraries)
    shutil.copy(SHIPPED / "v100-16g-x2-pcie.profile", libraries / "fakegpu.profile")
    return tmp_path


def read(driver_root: Path) -> subprocess.CompletedProcess[bytes]:
    state = driver_root / "state"
    return subprocess.run(
        [sys.executable, "-c", _READ, str(driver_root)],
        env={"PYTHONPATH": ":".join(sys.path), "FAKEGPU_STATE": str(state)},
        capture_output=True,
        check=False,
        timeout=DEADLINE_S,
    )


@pytest.mark.native
def test_the_gpus_of_the_drivers_root_are_found_with_memory_and_link(driver_root: Path) -> None:
    result = read(driver_root)
    assert result.returncode == 0, result.stderr.decode()
    found = msgspec.json.decode(result.stdout, type=GPUNodeSpec)
    profile = driver_root / "usr/lib/x86_64-linux-gnu/fakegpu.profile"
    assert [device.uuid for device in found.devices] == [gpu.uuid for gpu in gpus(profile)]
    assert all(device.healthy for device in found.devices)
    assert {device.memory_bytes for device in found.devices} == {16 << 30}
    assert [device.minor for device in found.devices] == [0, 1]
    (link,) = found.links
    assert (link.a, link.b) == (0, 1)
    assert link.link in {"PIX", "PXB", "PHB", "NODE", "SYS"}
    assert found.driver_version


@pytest.mark.native
def test_each_kind_of_link_is_found_and_becomes_the_level_that_placement_goes_by(
    driver_root: Path,
) -> None:
    """Of four GPUs, each pair has another kind of link."""
    profile = driver_root / "usr/lib/x86_64-linux-gnu/fakegpu.profile"
    links = {"0.1": "NV2", "0.2": "PIX", "0.3": "PXB", "1.2": "PHB", "1.3": "NODE", "2.3": "SYS"}
    lines = [f"link.{pair} = {link}" for pair, link in links.items()]
    profile.write_text("\n".join(["model = V100", "count = 4", *lines, ""]))
    result = read(driver_root)
    assert result.returncode == 0, result.stderr.decode()
    found = msgspec.json.decode(result.stdout, type=GPUNodeSpec)
    assert {f"{each.a}.{each.b}": each.link for each in found.links} == links
    assert matrix(found) == (
        (Level.SELF, nvlink(2), Level.PIX, Level.PXB),
        (nvlink(2), Level.SELF, Level.PHB, Level.NODE),
        (Level.PIX, Level.PHB, Level.SELF, Level.SYS),
        (Level.PXB, Level.NODE, Level.SYS, Level.SELF),
    )


PROFILES = {
    "p4-8g-x8-pcie": read_notation(
        "SYS(PHB(PXB(PIX(0,1),2),3),NODE(PIX(4,5),PIX(6,7)))", "the tree"
    ),
    "dgx-1": DGX_1,
    "dgx-a100": read_notation("NV12(0..7)", "the tree"),
    "dgx-h100": read_notation("NV18(0..7)", "the tree"),
    "v100-mixed-x3": read_notation("PHB(0..2)", "the tree"),
}
"""The links of machines of each kind."""


@pytest.mark.native
@pytest.mark.parametrize("name", PROFILES)
def test_the_links_of_machines_are_known_and_shown_as_nvidia_smi_does(
    name: str, driver_root: Path
) -> None:
    profile = driver_root / "usr/lib/x86_64-linux-gnu/fakegpu.profile"
    shutil.copy(SHIPPED / f"{name}.profile", profile)
    write_sysfs(profile, driver_root / "sys")
    result = read(driver_root)
    assert result.returncode == 0, result.stderr.decode()
    found = msgspec.json.decode(result.stdout, type=GPUNodeSpec)
    assert matrix(found) == PROFILES[name]
    assert [gpu.model for gpu in found.devices] == [gpu.model for gpu in gpus(profile)]
    smi = subprocess.run(
        [native.path("fakegpu/nvidia-smi"), "topo", "-m"],
        env={
            "LD_LIBRARY_PATH": str(profile.parent),
            "FAKEGPU_STATE": str(driver_root / "state"),
        },
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    assert read_matrix(smi.stdout, "nvidia-smi") == PROFILES[name]
    if "cpus." in profile.read_text():  # which are all CPUs of this machine otherwise
        shown = [row.split("\t") for row in matrix_text(NodeTopology("n1", found)).splitlines()]
        printed = [row.split("\t") for row in smi.stdout.splitlines()]
        assert shown[1:] == [row[: len(shown[1])] for row in printed[1 : len(shown)]]


@pytest.mark.native
def test_numa_nodes_and_cpus_are_those_of_sysfs(driver_root: Path) -> None:
    profile = driver_root / "usr/lib/x86_64-linux-gnu/fakegpu.profile"
    profile.write_text(
        "model = V100\ncount = 3\nnuma.1 = 1\nnuma.2 = 1\ncpus.0 = 0-3,8\ncpus.1 = 4-7\n"
    )
    write_sysfs(profile, driver_root / "sys")
    result = read(driver_root)
    assert result.returncode == 0, result.stderr.decode()
    found = msgspec.json.decode(result.stdout, type=GPUNodeSpec)
    near = [(device.numa_node, device.cpu_list) for device in found.devices]
    assert near == [(0, "0-3,8"), (1, "4-7"), (1, "4-7")]


@pytest.mark.native
def test_what_sysfs_does_not_know_is_unknown(driver_root: Path) -> None:
    """The fake GPUs are on no bus of this machine."""
    (driver_root / "sys").mkdir()
    found = msgspec.json.decode(read(driver_root).stdout, type=GPUNodeSpec)
    near = {(device.numa_node, device.cpu_list) for device in found.devices}
    assert near == {(-1, "")}


def test_a_library_that_cannot_be_loaded_is_an_error_with_its_path(tmp_path: Path) -> None:
    folder = tmp_path / "usr/lib64"
    folder.mkdir(parents=True)
    (folder / "libnvidia-ml.so.1").write_text("not a library")
    result = read(tmp_path)
    assert result.returncode == 1
    assert f"{folder}/libnvidia-ml.so.1 cannot be loaded" in result.stderr.decode()


def test_a_node_without_a_driver_says_where_it_was_sought(tmp_path: Path) -> None:
    with pytest.raises(DiscoveryError, match=r"usr/lib64.*--driver-root"):
        NvmlGpus(tmp_path).read()


@pytest.mark.parametrize(
    "folder",
    [
        "usr/lib64",
        "usr/lib/x86_64-linux-gnu",
        "usr/lib/aarch64-linux-gnu",
        "usr/local/nvidia/lib64",
    ],
)
def test_nvml_is_found_in_each_of_the_usual_folders(tmp_path: Path, folder: str) -> None:
    library = tmp_path / folder / "libnvidia-ml.so.1"
    library.parent.mkdir(parents=True)
    library.touch()
    assert find_nvml(tmp_path) == library


# Reads, has errors happen, and reads again; says of each GPU whether it is healthy, and why not.
_READ_TWICE = """
import subprocess, sys
from pathlib import Path
from kubeshare.node.gpus.discovery import NvmlGpus
_, root, stat, state, *errors = sys.argv
gpus = NvmlGpus(Path(root))
assert all(device.healthy for device in gpus.read().devices)
for error in errors:
    subprocess.run([stat, "--raise", error, "--state", state], check=True, capture_output=True)
for device in gpus.read().devices:
    print(device.index, device.healthy, device.message)
gpus.close()
"""


def after(driver_root: Path, *errors: str) -> list[str]:
    """The messages of both GPUs after these errors (GPU:XID)."""
    state = driver_root / "state"
    stat = str(native.path("fakegpu-stat"))
    return subprocess.run(
        [sys.executable, "-c", _READ_TWICE, str(driver_root), stat, str(state), *errors],
        env={"PYTHONPATH": ":".join(sys.path), "FAKEGPU_STATE": str(state)},
        capture_output=True,
        check=True,
        text=True,
        timeout=DEADLINE_S,
    ).stdout.splitlines()


@pytest.mark.native
def test_a_gpu_of_which_the_driver_reports_an_error_is_unhealthy(driver_root: Path) -> None:
    assert after(driver_root, "1:48", "1:13") == [
        "0 True ",
        "1 False its driver has reported XID 48",
    ]


@pytest.mark.native
def test_an_error_of_a_program_leaves_the_gpu_healthy(driver_root: Path) -> None:
    assert after(driver_root, "1:13", "1:31", "0:43") == ["0 True ", "1 True "]


@pytest.mark.native
def test_a_gpu_that_has_fallen_off_the_bus_is_unhealthy(
    driver_root: Path,
) -> None:
    assert after(driver_root, "0:79") == ["0 False GPU is lost", "1 True "]

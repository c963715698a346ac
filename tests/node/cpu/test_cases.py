"""Gaia's cases N1 to N5, from the sysfs of a machine to the cgroups of its containers.

Machines have two sockets and two threads a core. The first GPU is at the first socket, the second
at the second one; of the third the firmware says nothing, so the kernel lists all CPUs for it.

In the lab, with a real container's own cpuset, are N1 (``e2e/test_several_shares.py``, with two
fake sockets of one CPU each), N3 and N4 (``e2e/owned/test_vcuda.py``). N2 and N5 are here alone: on
such a machine they leave a container all CPUs, as if nothing was done.
"""

from pathlib import Path

import msgspec
import pytest

from fakes.node import A_GPU, OTHER_GPU, FixedGpus
from kubeshare.core.topology.cpus import Cpus, read_cpu_list
from kubeshare.node.cpu.cores import read_cores
from kubeshare.node.gpus.sysfs import PciDevices
from node.cpu.machine import Machine

LOST_GPU = msgspec.structs.replace(A_GPU, uuid=f"{A_GPU.uuid[:-1]}c", index=2, minor=2)
GPUS = (A_GPU, OTHER_GPU, LOST_GPU)
FIRST, SECOND, LOST = (gpu.uuid for gpu in GPUS)


def bus_id(number: int) -> str:
    return f"00000000:{number + 0x1A:02X}:00.0"


def write_sysfs(folder: Path, cores: int) -> None:
    """Write the sysfs of a machine with so many cores at each of its two sockets."""
    everything = 4 * cores
    for cpu in range(everything):
        topology = folder / f"devices/system/cpu/cpu{cpu}/topology"
        topology.mkdir(parents=True)
        siblings = sorted([cpu, (cpu + 2 * cores) % everything])
        (topology / "thread_siblings_list").write_text(",".join(map(str, siblings)) + "\n")
    for number, (node, cpus) in enumerate(
        [
            (0, f"0-{cores - 1},{2 * cores}-{3 * cores - 1}"),
            (1, f"{cores}-{2 * cores - 1},{3 * cores}-{everything - 1}"),
            (-1, f"0-{everything - 1}"),
        ]
    ):
        device = folder / f"bus/pci/devices/{bus_id(number)[4:].lower()}"
        device.mkdir(parents=True)
        (device / "numa_node").write_text(f"{node}\n")
        (device / "local_cpulist").write_text(f"{cpus}\n")


@pytest.fixture(scope="module", params=[14, 64], ids=lambda cores: f"{4 * cores} CPUs")
def cores(request: pytest.FixtureRequest) -> int:
    """Of each socket."""
    found: int = request.param
    return found


@pytest.fixture(scope="module")
def sysfs(tmp_path_factory: pytest.TempPathFactory, cores: int) -> Path:
    folder = tmp_path_factory.mktemp("sysfs")
    write_sysfs(folder, cores)
    return folder


@pytest.fixture
def gpus(sysfs: Path) -> FixedGpus:
    pci = PciDevices(sysfs)
    return FixedGpus(
        tuple(
            msgspec.structs.replace(gpu, cpu_list=pci.cpu_list(bus_id(gpu.index))) for gpu in GPUS
        )
    )


@pytest.fixture(params=[1, 2], ids=lambda version: f"v{version}")
def machine(machine: Machine, sysfs: Path, cores: int, request: pytest.FixtureRequest) -> Machine:
    machine.cores = sorted(read_cores(sysfs / "devices/system/cpu"), key=min)
    machine.cgroups.cpus = f"0-{4 * cores - 1}"
    if request.param == 1:
        machine.use_version_1(machine.cgroups.cpus)
    return machine


def bound(machine: Machine) -> dict[str, Cpus]:
    """Container → the CPUs that it is bound to, after a look."""
    machine.look()
    return {name: read_cpu_list(cpus, name) for name, cpus in machine.cpus().items()}


def socket(number: int, cores: int) -> Cpus:
    near = range(number * cores, (number + 1) * cores)
    return frozenset([*near, *(cpu + 2 * cores for cpu in near)])


def test_n1_a_container_runs_near_its_gpu(machine: Machine, cores: int) -> None:
    machine.add("a", {"main": [FIRST]})
    machine.add("b", {"main": [SECOND]})
    assert bound(machine) == {"a/main": socket(0, cores), "b/main": socket(1, cores)}


def test_n2_with_gpus_on_two_sockets_it_runs_near_both(machine: Machine, cores: int) -> None:
    machine.add("a", {"main": [FIRST, SECOND]}, cores="1")
    assert bound(machine) == {"a/main": frozenset([0, cores, 2 * cores, 3 * cores])}


def test_n3_with_a_number_it_has_so_many_whole_cores(machine: Machine, cores: int) -> None:
    machine.add("a", {"main": [SECOND]}, cores="2")
    found = bound(machine)["a/main"]
    assert found < socket(1, cores)
    assert {core for core in machine.cores if core & found} == {
        core for core in machine.cores if core <= found
    }
    assert len(found) == 4


def test_n4_tenants_of_a_gpu_have_different_cores_while_there_are_enough(
    machine: Machine, cores: int
) -> None:
    each = cores // 2
    for name in "ab":
        machine.add(name, {"main": [FIRST]}, cores=str(each))
    first, second = bound(machine).values()
    assert not first & second
    assert first | second == socket(0, cores)
    machine.add("c", {"main": [FIRST]}, cores="1")
    third = bound(machine)["c/main"]
    assert third < first | second, "it shares one"
    assert len(third) == 2


def test_n5_near_an_unknown_place_nothing_changes(machine: Machine) -> None:
    machine.add("a", {"main": [LOST]})
    machine.look()
    unchanged = machine.cgroups.cpus if machine.cgroups.version == 1 else ""
    assert machine.cpus() == {"a/main": unchanged}

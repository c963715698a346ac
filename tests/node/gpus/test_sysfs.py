"""NUMA nodes and CPUs of GPUs, as the kernel gives them."""

from pathlib import Path

import pytest

from kubeshare.node.gpus.sysfs import PciDevices, find_sysfs

BUS_ID = "00000000:3B:00.0"


def sysfs(folder: Path, address: str = "0000:3b:00.0", **files: str) -> PciDevices:
    device = folder / "bus/pci/devices" / address
    device.mkdir(parents=True)
    for name, text in files.items():
        (device / name).write_text(text)
    return PciDevices(folder)


def test_a_gpu_is_found_by_the_address_that_the_kernel_spells(tmp_path: Path) -> None:
    pci = sysfs(tmp_path, numa_node="1\n", local_cpulist="14-27,42-55\n")
    assert pci.numa_node(BUS_ID) == 1
    assert pci.cpu_list(BUS_ID) == "14-27,42-55"


@pytest.mark.parametrize(
    ("bus_id", "address"),
    [("00000001:3B:00.0", "0001:3b:00.0"), ("00010000:0F:10.1", "10000:0f:10.1")],
)
def test_the_domain_has_four_digits_or_as_many_as_it_needs(
    tmp_path: Path, bus_id: str, address: str
) -> None:
    assert sysfs(tmp_path, address, numa_node="3").numa_node(bus_id) == 3


@pytest.mark.parametrize("text", ["-1\n", "", "none"])
def test_a_node_that_the_firmware_does_not_report_is_unknown(tmp_path: Path, text: str) -> None:
    assert sysfs(tmp_path, numa_node=text).numa_node(BUS_ID) == -1


@pytest.mark.parametrize("bus_id", ["", "no bus", "00000000:3C:00.0"])
def test_a_device_that_is_not_there_is_unknown(tmp_path: Path, bus_id: str) -> None:
    pci = sysfs(tmp_path, numa_node="1", local_cpulist="0-3")
    assert (pci.numa_node(bus_id), pci.cpu_list(bus_id)) == (-1, "")


@pytest.mark.parametrize(
    "content", [b"9" * 20, b"\xff\xfe", b"0-\n", b"3-1", b"1\x00", b"nonsense"]
)
def test_what_is_neither_a_node_nor_a_list_of_cpus_is_unknown(
    tmp_path: Path, content: bytes
) -> None:
    """A GPUNode with it would be refused, or would say what nothing can use."""
    pci = sysfs(tmp_path)
    for file in ("numa_node", "local_cpulist"):
        (tmp_path / "bus/pci/devices/0000:3b:00.0" / file).write_bytes(content)
    assert (pci.numa_node(BUS_ID), pci.cpu_list(BUS_ID)) == (-1, "")


def test_what_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    pci = sysfs(tmp_path)
    for file in ("numa_node", "local_cpulist"):
        (tmp_path / "bus/pci/devices/0000:3b:00.0" / file).mkdir()
    assert (pci.numa_node(BUS_ID), pci.cpu_list(BUS_ID)) == (-1, "")


def test_a_list_of_cpus_that_no_gpunode_can_hold_is_unknown(tmp_path: Path) -> None:
    cpus = ",".join(str(cpu) for cpu in range(0, 800, 2))
    assert len(cpus) > 1024
    assert sysfs(tmp_path, local_cpulist=cpus).cpu_list(BUS_ID) == ""


def test_the_sysfs_of_the_drivers_root_goes_before_this_machines(tmp_path: Path) -> None:
    assert find_sysfs(tmp_path) == Path("/sys")
    (tmp_path / "sys").mkdir()
    assert find_sysfs(tmp_path) == Path("/sys")
    sysfs(tmp_path / "sys")
    assert find_sysfs(tmp_path) == tmp_path / "sys"

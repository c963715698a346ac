"""What a node of the lab gets for its fake GPUs."""

from pathlib import Path

import pytest

from kubeshare.lab import layout
from kubeshare.lab.layout import Layout, NodeLayout
from kubeshare.lab.node import gpus
from kubeshare.node.gpus.sysfs import PciDevices, find_sysfs


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NodeLayout:
    """A node whose GPUs nobody has installed yet."""
    monkeypatch.setattr(layout, "STATE_ROOT", tmp_path / "state")
    monkeypatch.setattr(layout, "SHARED_MEMORY_ROOT", tmp_path / "memory")
    return NodeLayout(Layout("test"), 1)


@pytest.mark.native
def test_the_driver_of_a_node_has_the_names_of_a_real_one(node: NodeLayout, tmp_path: Path) -> None:
    profile = tmp_path / "two.profile"
    for release in (550, 535, 535):
        profile.write_text(f"model = V100\ncount = 2\ndriver_version = {release}\n")
        gpus.install(node, str(profile))
    folder = node.folder / "driver/usr/lib64"
    files = {each.name: each.is_symlink() and str(each.readlink()) for each in folder.iterdir()}
    assert files == {
        "fakegpu.profile": False,
        "libcuda.so.1": "libcuda.so.535.71.05",
        "libcuda.so.535.71.05": False,
        "libnvidia-ml.so.1": "libnvidia-ml.so.535.71.05",
        "libnvidia-ml.so.535.71.05": False,
        "nvidia-smi": False,
    }
    made = [line.split()[2] for line in gpus.mount_script(node) if "mknod" in line]
    assert [Path(path).name for path in made] == ["nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1"]


@pytest.mark.native
def test_the_sysfs_of_a_node_has_its_fake_gpus(node: NodeLayout, tmp_path: Path) -> None:
    profile = tmp_path / "two.profile"
    profile.write_text("model = V100\ncount = 2\nnuma.1 = 1\ncpus.0 = 0-3\ncpus.1 = 4-7,12\n")
    gpus.install(node, str(profile))
    sysfs = PciDevices(find_sysfs(node.folder / "driver"))
    buses = ("00000000:1A:00.0", "00000000:1B:00.0")
    assert [(sysfs.numa_node(bus), sysfs.cpu_list(bus)) for bus in buses] == [
        (0, "0-3"),
        (1, "4-7,12"),
    ]

"""What a node of the lab gets for its fake GPUs."""

from pathlib import Path

import pytest

from kubeshare.lab import layout
from kubeshare.lab.layout import Layout, NodeLayout
from kubeshare.lab.node import gpus
from kubeshare.node.gpus.sysfs import PciDevices, find_sysfs


@pytest.mark.native
def test_the_sysfs_of_a_node_has_its_fake_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "STATE_ROOT", tmp_path / "state")
    monkeypatch.setattr(layout, "SHARED_MEMORY_ROOT", tmp_path / "memory")
    profile = tmp_path / "two.profile"
    profile.write_text("model = V100\ncount = 2\nnuma.1 = 1\ncpus.0 = 0-3\ncpus.1 = 4-7,12\n")
    node = NodeLayout(Layout("test"), 1)
    gpus.install(node, str(profile))
    sysfs = PciDevices(find_sysfs(node.folder / "driver"))
    buses = ("00000000:1A:00.0", "00000000:1B:00.0")
    assert [(sysfs.numa_node(bus), sysfs.cpu_list(bus)) for bus in buses] == [
        (0, "0-3"),
        (1, "4-7,12"),
    ]

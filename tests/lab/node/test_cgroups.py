"""Control groups, on folders that look like the kernel's."""

import shutil
import threading
from pathlib import Path

import pytest

from kubeshare.lab.node import cgroups


@pytest.fixture
def version_1(tmp_path: Path) -> Path:
    for controller in ("memory", "pids"):
        (tmp_path / controller).mkdir()
    return tmp_path


@pytest.fixture
def version_2(tmp_path: Path) -> Path:
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    (tmp_path / "cgroup.subtree_control").write_text("")
    return tmp_path


def test_version_1_has_the_group_in_every_hierarchy(version_1: Path) -> None:
    cgroups.make("lab/demo", version_1)

    assert not cgroups.unified(version_1)
    assert (version_1 / "memory/lab/demo").is_dir()
    assert (version_1 / "pids/lab/demo").is_dir()


def test_version_2_has_it_once_and_hands_controllers_down(version_2: Path) -> None:
    cgroups.make("lab/demo", version_2)

    assert cgroups.unified(version_2)
    assert (version_2 / "lab/demo").is_dir()
    assert (version_2 / "cgroup.subtree_control").read_text() == "+memory"


def test_the_members_of_a_group_are_those_of_all_below(version_1: Path) -> None:
    cgroups.make("lab/demo/pod", version_1)
    (version_1 / "pids/lab/demo/cgroup.procs").write_text("1\n2\n")
    (version_1 / "memory/lab/demo/pod/cgroup.procs").write_text("3\n")

    assert cgroups.members("lab/demo", version_1) == {1, 2, 3}


def test_groups_may_vanish_while_their_members_are_counted(version_1: Path) -> None:
    group = version_1 / "pids/lab/demo"
    group.mkdir(parents=True)
    (group / "cgroup.procs").write_text("1\n")
    done = threading.Event()

    def come_and_go() -> None:
        while not done.is_set():
            for number in range(50):
                (group / f"pod{number}" / "container").mkdir(parents=True)
            for number in range(50):
                shutil.rmtree(group / f"pod{number}")

    pods = threading.Thread(target=come_and_go)
    pods.start()
    try:
        assert {frozenset(cgroups.members("lab/demo", version_1)) for _ in range(200)} == {
            frozenset({1})
        }
    finally:
        done.set()
        pods.join()


def test_removing_a_group_takes_its_empty_parents_along(version_1: Path) -> None:
    cgroups.make("lab/demo/pod", version_1)

    cgroups.remove("lab/demo", version_1)

    assert not cgroups.exists("lab", version_1)


def test_the_group_of_another_lab_stays(version_1: Path) -> None:
    cgroups.make("lab/one", version_1)
    cgroups.make("lab/two", version_1)

    cgroups.remove("lab/one", version_1)

    assert cgroups.exists("lab/two", version_1)

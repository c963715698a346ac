"""CPU sets in cgroups of version 1 and 2, on a machine with 56 CPUs."""

import os
from pathlib import Path

import pytest

from fakes.node.cgroups import CGROUPFS, CONTAINERD, CRIO, KIND, FakeCgroups, container_id
from kubeshare.core.topology.cpus import read_cpu_list
from kubeshare.node.cpu.cpusets import MARK, Container, Cpuset, Cpusets

POD = "00000000-0000-0000-0000-0000000000aa"
OTHER = "00000000-0000-0000-0000-0000000000bb"
ID, SECOND = container_id(1), container_id(2)
ALL = read_cpu_list("0-55", "cpus")
SOME = read_cpu_list("0-1,28-29", "cpus")

both_versions = pytest.mark.parametrize("version", [1, 2])


@pytest.mark.parametrize("layout", [CONTAINERD, CRIO, CGROUPFS, KIND])
@both_versions
def test_containers_are_found_as_each_runtime_and_driver_names_them(
    tmp_path: Path, version: int, layout: str
) -> None:
    cgroups = FakeCgroups(tmp_path / "cgroup", version, layout=layout)
    folder = cgroups.add(POD, ID)
    (cgroups.top / "system.slice" / f"docker-{SECOND}.scope").mkdir(parents=True)
    cpusets = Cpusets(cgroups.root)
    assert cpusets.containers() == [Container(POD, ID, folder)]
    assert cpusets.read(Container(POD, ID, folder)) == Cpuset(allowed=ALL)


def test_a_container_cannot_pretend_to_be_another_by_cgroups_of_its_own(tmp_path: Path) -> None:
    cgroups = FakeCgroups(tmp_path / "cgroup", 2)
    folder = cgroups.add(POD, ID)
    cgroups.add(OTHER, SECOND, inside=folder)
    assert Cpusets(cgroups.root).containers() == [Container(POD, ID, folder)]


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    cgroups = FakeCgroups(tmp_path / "cgroup", 2)
    (cgroups.top / "loop").symlink_to(cgroups.top)
    assert Cpusets(cgroups.root).containers() == []


@pytest.mark.parametrize("folders", [["memory"], []])
def test_without_a_cpuset_controller_there_are_no_containers(
    tmp_path: Path, folders: list[str]
) -> None:
    for folder in folders:
        (tmp_path / folder / f"pod{POD}" / ID).mkdir(parents=True)
    assert Cpusets(tmp_path).containers() == []


@both_versions
def test_a_container_is_bound_and_released(tmp_path: Path, version: int) -> None:
    cgroups = FakeCgroups(tmp_path / "cgroup", version)
    container = Container(POD, ID, cgroups.add(POD, ID))
    cpusets = Cpusets(cgroups.root)
    cpusets.bind(container, SOME)
    assert cgroups.cpus_of(container.folder) == "0-1,28-29"
    # Another start of the program knows it from the cgroup alone.
    assert Cpusets(cgroups.root).read(container) == Cpuset(allowed=ALL, bound=SOME)
    cpusets.release(container)
    assert cgroups.cpus_of(container.folder) == ("0-55" if version == 1 else "")
    assert cpusets.read(container) == Cpuset(allowed=ALL)
    assert MARK not in os.listxattr(container.folder)


def test_a_released_container_has_the_cpus_of_its_pod(tmp_path: Path) -> None:
    """A pod may have fewer CPUs than its node; with cgroups of version 2 they are inherited."""
    cgroups = FakeCgroups(tmp_path / "cgroup", 2)
    container = Container(POD, ID, cgroups.add(POD, ID))
    cgroups.set(container.folder.parent, "0-27")
    cpusets = Cpusets(cgroups.root)
    cpusets.bind(container, SOME)
    cpusets.release(container)
    assert cgroups.cpus_of(container.folder) == ""


@both_versions
def test_what_another_program_sets_is_not_ours(tmp_path: Path, version: int) -> None:
    cgroups = FakeCgroups(tmp_path / "cgroup", version)
    container = Container(POD, ID, cgroups.add(POD, ID))
    cpusets = Cpusets(cgroups.root)
    cgroups.set(container.folder, "3")
    assert cpusets.read(container) == Cpuset(allowed=ALL, foreign=frozenset([3]))
    cgroups.set(container.folder, "0-55" if version == 1 else "")
    cpusets.bind(container, SOME)
    cgroups.set(container.folder, "0")
    assert cpusets.read(container) == Cpuset(allowed=ALL, foreign=frozenset([0]))


@both_versions
@pytest.mark.parametrize("written", [False, True])
def test_a_crash_while_binding_leaves_a_set_of_ours(
    tmp_path: Path, version: int, *, written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cgroups = FakeCgroups(tmp_path / "cgroup", version)
    container = Container(POD, ID, cgroups.add(POD, ID))
    cpusets = Cpusets(cgroups.root)
    cpusets.bind(container, SOME)
    marked = os.setxattr
    marks = []

    def crash(*arguments: object) -> None:
        marks.append(arguments)
        if len(marks) > 1:
            raise KeyboardInterrupt
        marked(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "setxattr", crash)
    with pytest.raises(KeyboardInterrupt):
        cpusets.bind(container, frozenset([7]))
    if not written:
        cgroups.set(container.folder, "0-1,28-29")
    expected = frozenset([7]) if written else SOME
    assert cpusets.read(container) == Cpuset(allowed=ALL, bound=expected)


def test_a_cpu_that_goes_offline_leaves_a_set_of_ours(tmp_path: Path) -> None:
    cgroups = FakeCgroups(tmp_path / "cgroup", 1)
    container = Container(POD, ID, cgroups.add(POD, ID))
    cpusets = Cpusets(cgroups.root)
    cpusets.bind(container, SOME)
    cgroups.set(container.folder.parent, "0-27,29-55")
    cgroups.set(container.folder, "0-1,29")
    assert cpusets.read(container).bound == SOME - {28}


def test_a_container_that_has_ended_is_an_error(tmp_path: Path) -> None:
    cgroups = FakeCgroups(tmp_path / "cgroup", 2)
    container = Container(POD, ID, cgroups.top / "gone" / ID)
    cpusets = Cpusets(cgroups.root)
    for act in (lambda: cpusets.read(container), lambda: cpusets.bind(container, SOME)):
        with pytest.raises(FileNotFoundError):
            act()
    assert container.pids() == []


def test_processes_may_be_in_cgroups_below(tmp_path: Path) -> None:
    cgroups = FakeCgroups(tmp_path / "cgroup", 2, layout=CRIO)
    container = Container(POD, ID, cgroups.add(POD, ID))
    (container.folder / "container").mkdir()
    (container.folder / "container" / "cgroup.procs").write_text("12\n13\n")
    assert container.pids() == [12, 13]
    (container.folder / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in range(100)))
    assert container.pids() == list(range(16))

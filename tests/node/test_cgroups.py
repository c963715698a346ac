"""The pod and container of a process, by its cgroup path."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeshare.node.cgroups import CgroupIds, parse_cgroup

POD = "0f3a7c1e-5b6d-4e8f-9a0b-1c2d3e4f5a6b"
UNDERSCORED = POD.replace("-", "_")
ID = "ab" * 32
OTHER = "cd" * 32


BURSTABLE = "/kubepods.slice/kubepods-burstable.slice"
KUBELET = "/kubelet.slice/kubelet-kubepods.slice"


@pytest.mark.parametrize(
    "path",
    [
        f"/kubepods/burstable/pod{POD}/{ID}",
        f"/kubepods/pod{POD}/{ID}",
        f"{BURSTABLE}/kubepods-burstable-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope",
        f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/crio-{ID}.scope",
        f"/system.slice/containerd.service/kubepods-pod{UNDERSCORED}.slice:cri-containerd:{ID}",
        f"/../../burstable/pod{POD}/{ID}",
        f"{KUBELET}/kubelet-kubepods-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope",
    ],
)
def test_pod_and_container_are_read_from_the_paths_that_runtimes_make(path: str) -> None:
    assert parse_cgroup(f"0::{path}\n") == CgroupIds((ID,), (POD,))


def test_of_several_hierarchies_all_are_read_and_none_twice() -> None:
    text = (
        f"9:name=systemd:/kubepods/pod{POD}/{ID}\n8:memory:/kubepods/pod{POD}/{ID}\n"
        f"2:cpu,cpuacct:/kubepods/pod{POD}/{ID}\n0::/\n"
    )
    assert parse_cgroup(text) == CgroupIds((ID,), (POD,))


def test_what_a_container_makes_within_its_own_comes_after_it() -> None:
    text = f"0::/kubepods/pod{POD}/{ID}/mine/{OTHER}/init.scope\n"
    assert parse_cgroup(text).containers == (ID, OTHER)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0::/\n",
        "0::/user.slice/user-1000.slice/session-1.scope\n",
        f"0::/docker/{ID[:-1]}\n",
        f"0::/docker/{ID}0\n",
        f"0::/kubepods/pod{POD[:-1]}/x\n",
        "not a cgroup file",
    ],
)
def test_a_process_of_no_container_has_no_place(text: str) -> None:
    assert parse_cgroup(text) == CgroupIds()


@settings(deadline=None)
@given(st.text())
def test_no_text_is_too_strange_to_read(text: str) -> None:
    parse_cgroup(text)

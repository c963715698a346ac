"""Whatever was killed and however: after `down` nothing of a lab is left."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from kubeshare.lab import requirements
from kubeshare.lab.cluster import Lab, Shape
from kubeshare.lab.control_plane.api_server import wait_until
from kubeshare.lab.images import binaries
from kubeshare.lab.node import cgroups, machine
from kubeshare.lab.progress import Progress
from labs import GONE, lab_of_this_run

pytestmark = pytest.mark.lab

SHAPE = Shape(nodes=1, gpus="none")


def _mounts() -> set[str]:
    """The mounts of this machine, without the counters that change by themselves."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return {" ".join(line.split()[3:]) for line in lines}


def _has_link(lab: Lab) -> bool:
    return Path("/sys/class/net", lab.layout.host_link).exists()


def _network_namespaces() -> set[str]:
    found = set()
    for link in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            found.add(os.readlink(link))  # noqa: PTH115 - a link to no path
        except OSError:
            continue
    return found


class Before:
    """This machine as it was without the lab."""

    def __init__(self, lab: Lab) -> None:
        assert not lab.exists()
        self.lab = lab
        self.mounts = _mounts()
        self.settings = self._settings()
        self.namespaces = _network_namespaces()

    @staticmethod
    def _settings() -> list[str]:
        files = ("net/ipv4/ip_forward", "vm/overcommit_memory", "kernel/panic")
        return [Path("/proc/sys", file).read_text() for file in files]

    def assert_the_same_now(self, of_the_lab: set[str]) -> None:
        """Compare, with the network namespaces that the lab had meanwhile."""
        lab = self.lab
        assert not machine.find_processes(lab.layout)
        assert not lab.exists()
        new = _mounts() - self.mounts
        assert [mount for mount in new if lab.name in mount] == []
        assert not _has_link(lab)
        assert self._settings() == self.settings
        assert not _network_namespaces() & of_the_lab
        assert not list(Path("/sys/fs/cgroup").glob(f"**/{lab.layout.cgroup}"))


@pytest.fixture(scope="module")
def before() -> Iterator[Before]:
    lab = lab_of_this_run(GONE)
    # What the first boot here builds takes longer than any of these tests waits for.
    requirements.check(Progress())
    binaries.everything(Progress())
    yield Before(lab)
    lab.down()


@contextmanager
def _own_namespaces(before: Before) -> Iterator[set[str]]:
    """The lab's network namespaces, kept until then: the number of one that ends is given on."""
    with ExitStack() as kept:
        found = set()
        for process in machine.find_processes(before.lab.layout):
            file = kept.enter_context(Path(f"/proc/{process.pid}/ns/net").open())
            found.add(os.readlink(f"/proc/self/fd/{file.fileno()}"))  # noqa: PTH115 - a link to no path
        yield found - before.namespaces


def test_after_up_itself_was_killed_halfway(before: Before) -> None:
    command = ["lab", "up", "--name", before.lab.name, "--nodes", "1", "--gpus", "none"]
    program = [sys.executable, "-m", "kubeshare.cli.main", *command]
    child = subprocess.Popen(program, stderr=subprocess.DEVNULL)
    booting = {"node-1/pause", "control-plane/kube-apiserver"}
    wait_until(lambda: booting <= machine.find_parts(before.lab.layout).keys(), "a half-booted lab")
    child.send_signal(signal.SIGKILL)
    child.wait()
    with _own_namespaces(before) as namespaces:
        before.lab.down()

        before.assert_the_same_now(namespaces)


def test_a_lab_that_was_cut_short_is_finished_by_the_next_up(before: Before) -> None:
    lab = before.lab
    lab.up(SHAPE)
    node = machine.find_parts(lab.layout)["node-1/pause"]
    of_a_pod = f"{lab.layout.node(1).cgroup}/kubepods/pod"
    cgroups.make(of_a_pod)
    os.kill(node.pid, signal.SIGKILL)
    wait_until(lambda: "node-1/kubelet" not in machine.find_parts(lab.layout), "the node's end")

    lab.up()

    assert lab.ready_nodes() == {"node-1"}
    assert not cgroups.exists(of_a_pod)


def test_after_killing_everything_that_matters(before: Before) -> None:
    """In the lab that the test before has left, where it ran."""
    lab = before.lab
    lab.up(SHAPE)
    lab.kubectl("run", "pod", "--image=kubeshare:dev", "--command", "--", "sleep", "3600")
    pod = "/api/v1/namespaces/default/pods/pod"
    wait_until(lambda: lab.api.get(pod)["status"]["phase"] == "Running", "a pod to run")
    with _own_namespaces(before) as namespaces:
        assert len(namespaces) >= 3  # control plane, node, pod
        for part in ("node-1/containerd", "node-1/kubelet", "control-plane/kube-apiserver"):
            lab.stop_component(part, gently=False)
        lab.down()

        before.assert_the_same_now(namespaces)

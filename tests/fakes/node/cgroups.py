"""A tree of cgroups as kubelet and container runtime make it, in ordinary files."""

from pathlib import Path
from typing import Final

CONTAINERD: Final = "kubepods.slice/kubepods-pod{pod_}.slice/cri-containerd-{container}.scope"
CRIO: Final = "kubepods.slice/kubepods-pod{pod_}.slice/crio-{container}.scope"
CGROUPFS: Final = "kubepods/burstable/pod{pod}/{container}"
KIND: Final = "kubelet/kubepods/besteffort/pod{pod}/{container}"


def container_id(number: int) -> str:
    """The id of a container."""
    return f"{number:064x}"


class FakeCgroups:
    """The cgroups of one machine.

    Args:
        root: in place of ``/sys/fs/cgroup``.
        version: of the hierarchy with the cpuset controller.
        cpus: all CPUs of the machine.
        layout: the path of a container's cgroup.
    """

    def __init__(
        self, root: Path, version: int, cpus: str = "0-55", layout: str = CONTAINERD
    ) -> None:
        self.root, self.version, self.cpus, self._layout = root, version, cpus, layout
        self.top = root if version == 2 else root / "cpuset"
        self.top.mkdir(parents=True)
        if version == 2:
            (root / "cgroup.controllers").write_text("cpuset cpu memory\n")

    def add(self, pod: str, container: str, *pids: int, inside: Path | None = None) -> Path:
        """Add a container, as its runtime does, and return its cgroup."""
        path = self._layout.format(pod=pod, pod_=pod.replace("-", "_"), container=container)
        folder = (inside or self.top) / path
        folder.mkdir(parents=True)
        for each in (folder, folder.parent):
            self.set(each, "" if self.version == 2 else self.cpus)
            (each / "cpuset.cpus.effective").write_text(f"{self.cpus}\n")
        (folder / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
        return folder

    @staticmethod
    def set(folder: Path, cpus: str) -> None:
        """Set the CPUs of a cgroup."""
        (folder / "cpuset.cpus").write_text(f"{cpus}\n")

    @staticmethod
    def cpus_of(folder: Path) -> str:
        """The CPUs that are set."""
        return (folder / "cpuset.cpus").read_text().strip()

"""Boots a lab in steps; each is skipped where its result exists.

First the control plane: etcd and the API server, then the programs that exit if they start
before the API server has created the default roles. Then the nodes, in parallel. Last the
images, which take longest to build and load.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import Struct

from kubeshare.lab import configuration
from kubeshare.lab.control_plane.api_server import (
    Settings,
    api_server_arguments,
    etcd_arguments,
    ready,
    wait_until,
    write_admin_kubeconfig,
)
from kubeshare.lab.control_plane.certificates import Authority
from kubeshare.lab.control_plane.kubeconfig import write_kubeconfig
from kubeshare.lab.images import binaries, images
from kubeshare.lab.images.archive import Layer
from kubeshare.lab.layout import CONTROL_PLANE, Layout
from kubeshare.lab.node import cgroups, machine, network
from kubeshare.lab.node.machine import Machine
from kubeshare.lab.node.node import Node
from kubeshare.lab.progress import Progress

CONTROL_PLANE_PARTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


class Programs(Struct, frozen=True):
    """The programs that the lab runs.

    Args:
        kubernetes: the folder with etcd and the programs of Kubernetes.
        containerd: the folder with containerd, its shim and ``ctr``.
        pause: the program that holds namespaces.
    """

    kubernetes: Path
    containerd: Path
    pause: Path


def build_programs(progress: Progress) -> Programs:
    """Build what is not in the cache, in parallel."""
    with ThreadPoolExecutor() as pool:
        pause = pool.submit(images.pause_program, progress)
        kubernetes, containerd = binaries.everything(progress)
        return Programs(kubernetes, containerd, pause.result())


class Boot:
    """Brings the parts of one lab up.

    Args:
        layout: of the lab.
        settings: of its etcd and API server.
        programs: what to run.
        progress: reports the steps.
    """

    def __init__(
        self, layout: Layout, settings: Settings, programs: Programs, progress: Progress
    ) -> None:
        self.layout = layout
        self.settings = settings
        self.programs = programs
        self.progress = progress
        self.authority = Authority(layout.folder / "certificates")
        self.machine = Machine(layout, CONTROL_PLANE)

    def control_plane(self) -> None:
        """Start etcd, the API server, the controller manager and the scheduler."""
        settings = self.settings
        write_admin_kubeconfig(settings, self.authority, f"kubeshare-lab-{self.layout.name}")
        with self.progress.step("start etcd and the API server"):
            cgroups.make(f"{self.layout.cgroup}/system")
            self.machine.boot(self.programs.pause)
            network.set_up_control_plane(self.layout, self.machine)
            self._start(etcd_arguments(settings))
            self._start(api_server_arguments(settings, self.authority))
            self._wait_for_api()
        for argv in self._controllers():
            self._start(argv)

    def _start(self, argv: list[str]) -> None:
        self.machine.start(argv[0], [str(self.programs.kubernetes / argv[0]), *argv[1:]])

    def _wait_for_api(self) -> None:
        def died() -> str | None:
            running = machine.find_parts(self.layout)
            for part in CONTROL_PLANE_PARTS[:2]:
                if f"{CONTROL_PLANE}/{part}" not in running:
                    return f"{part} ended: {self.machine.log_tail(part)}"
            return None

        wait_until(
            lambda: ready(self.settings, self.authority.certificate),
            f"the API server at {self.settings.url}",
            still_possible=died,
        )

    def _controllers(self) -> Iterator[list[str]]:
        """The command lines of the controller manager and the scheduler."""
        accounts = self.authority.service_account_keys().key
        for program in CONTROL_PLANE_PARTS[2:]:
            pair = self.authority.identity(program, f"system:{program}")
            path = self.layout.folder / f"{program}.kubeconfig"
            url, ca = self.settings.url, self.authority.certificate
            write_kubeconfig(path, program, url, ca, pair)
            if program == "kube-scheduler":
                yield configuration.scheduler_arguments(path)
            else:
                yield configuration.controller_manager_arguments(path, ca, accounts)

    def nodes(self, nodes: Sequence[Node]) -> None:
        """Boot the nodes, connect them and start their programs."""

        def boot(node: Node) -> None:
            node.boot(self.programs.pause)
            others = [one.layout for one in nodes if one.name != node.name]
            if not node.connected():
                network.connect_node(node.layout, node.machine, self.machine, others)
            node.start(self.programs.kubernetes, self.programs.containerd)

        with self.progress.step(f"start {len(nodes)} nodes"), ThreadPoolExecutor() as pool:
            for node in nodes:
                node.prepare(self.authority, self.settings.url)
            list(pool.map(boot, nodes))

    def images(self, nodes: Sequence[Node], layers: list[Layer]) -> None:
        """Load both images into every node."""
        pause, containerd = self.programs.pause, self.programs.containerd
        with self.progress.step("load the images"), ThreadPoolExecutor() as pool:
            list(pool.map(lambda node: node.load_images(pause, layers, containerd), nodes))

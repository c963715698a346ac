"""A whole lab: boots, repairs, describes it and takes it down.

``up`` is a list of steps that are skipped where their result exists, so it also repairs;
``down`` removes whatever has the lab's name and needs no record of what was created, so it
also cleans up after any crash.
"""

import fcntl
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from kubeshare.lab import files, processes, requirements
from kubeshare.lab.boot import CONTROL_PLANE_PARTS, Boot, build_programs
from kubeshare.lab.control_plane.api_server import ApiServer, Settings, wait_until
from kubeshare.lab.errors import LabError
from kubeshare.lab.images import binaries, images
from kubeshare.lab.layout import (
    CONTROL_PLANE,
    MAX_NODES,
    SERVICE_CIDR,
    SERVICE_IP,
    STATE_ROOT,
    Layout,
)
from kubeshare.lab.node import cgroups, gpus, machine, network
from kubeshare.lab.node.machine import Machine
from kubeshare.lab.node.node import Node
from kubeshare.lab.progress import Progress

_API_PORT = 6443
_ETCD_PORT = 2379


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a lab was made with.

    Args:
        nodes: how many.
        gpus: the profile of each node's fake GPUs: a name like ``V100x2``, a
            file of the fake GPU's own format, or ``none``. Several, separated by commas, are
            those of one node each.
        dra: on how many nodes, the last ones, NVIDIA's DRA driver offers the GPUs, not its
            device plugin.
    """

    nodes: int = 2
    gpus: str = "V100x2"
    dra: int = 0

    @property
    def profiles(self) -> list[str]:
        """The profile of each node."""
        given = self.gpus.split(",")
        return given * self.nodes if len(given) == 1 else given


class Component(msgspec.Struct, frozen=True):
    """A long-running program of a lab.

    Args:
        name: machine and program: ``node-1/kubelet``.
        pid: of this machine, None when it does not run.
        log: where it writes.
    """

    name: str
    pid: int | None
    log: Path


class Lab:
    """One lab, running or not.

    Args:
        name: up to 12 lower-case letters, digits and hyphens.
        progress: reports the steps.
    """

    def __init__(self, name: str = "demo", progress: Progress | None = None) -> None:
        self.name = name
        self.layout = Layout(name)
        self.progress = progress or Progress()
        self.control_plane = Machine(self.layout, CONTROL_PLANE)
        self._api: ApiServer | None = None

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.layout.folder / "kubeconfig"

    @property
    def shape(self) -> Shape | None:
        """What it was made with; None when there is no such lab."""
        try:
            return msgspec.json.decode((self.layout.folder / "lab.json").read_bytes(), type=Shape)
        except OSError:
            return None

    @property
    def nodes(self) -> list[Node]:
        """Its nodes, running or not."""
        shape = self.shape
        if shape is None:
            return []
        first_by_claims = shape.nodes - shape.dra
        return [
            Node(self.layout.node(one + 1), profile, by_claims=one >= first_by_claims)
            for one, profile in enumerate(shape.profiles)
        ]

    def node(self, name: str) -> Node:
        """One of :attr:`nodes` by its name.

        Raises:
            LabError: there is none of that name; the message lists those there are.
        """
        self._require()
        known = {node.name: node for node in self.nodes}
        if name not in known:
            raise LabError(f"no node {name}: there are {', '.join(known)}", exit_code=2)
        return known[name]

    @property
    def settings(self) -> Settings:
        """How its etcd and API server are started."""
        return Settings(
            folder=self.layout.folder,
            address=self.layout.api_address,
            port=_API_PORT,
            etcd_port=_ETCD_PORT,
            etcd_peer_port=_ETCD_PORT + 1,
            service_cidr=SERVICE_CIDR,
            service_ip=SERVICE_IP,
            nodes=True,
        )

    @property
    def api(self) -> ApiServer:
        """Its API server, for kubectl and for kubeconfigs of any user.

        Raises:
            LabError: there is no such lab.
        """
        self._require()
        if self._api is None:
            self._api = ApiServer(self.settings, binaries.kubernetes(self.progress))
        return self._api

    def _require(self) -> Shape:
        shape = self.shape
        if shape is None:
            raise LabError(f"there is no lab {self.name}: `kubeshare lab up --name {self.name}`")
        return shape

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl as the administrator and return its standard output."""
        return self.api.kubectl(*arguments, stdin=stdin)

    # Up

    def up(self, shape: Shape | None = None) -> None:
        """Boot the lab; repair it where something of it has died.

        Args:
            shape: None keeps that of a lab that is there, else takes the default.

        Raises:
            LabError: what is wrong, and what to do.
        """
        wanted = self._checked(shape)
        requirements.check(self.progress)
        network.check_range(self.layout)
        with self._alone():
            (self.layout.folder / "lab.json").write_bytes(msgspec.json.encode(wanted))
            with ThreadPoolExecutor() as pool:
                layers = pool.submit(images.kubeshare_layers, self.layout.folder, self.progress)
                boot = self._boot()
                boot.control_plane()
                if wanted.dra:
                    self.add_gpu_class()
                boot.nodes(self.nodes)
                boot.images(self.nodes, layers.result())
            self._wait_for_nodes()

    def add_gpu_class(self) -> None:
        """Create the DeviceClass of NVIDIA's DRA driver, unless it exists."""
        path = "/apis/resource.k8s.io/v1/deviceclasses"
        known = {each["metadata"]["name"] for each in self.api.get(path)["items"]}
        if gpus.DEVICE_CLASS["metadata"]["name"] not in known:
            self.api.send("POST", path, gpus.DEVICE_CLASS)

    def _boot(self) -> Boot:
        return Boot(self.layout, self.settings, build_programs(self.progress), self.progress)

    def _checked(self, shape: Shape | None) -> Shape:
        there = self.shape
        wanted = shape or there or Shape()
        given = (
            str(Path(each).resolve()) if Path(each).is_file() else each
            for each in wanted.gpus.split(",")
        )
        wanted = msgspec.structs.replace(wanted, gpus=",".join(given))
        if there is not None and there != wanted:
            raise LabError(
                f"lab {self.name} has {there.nodes} nodes with {there.gpus} each: "
                f"`kubeshare lab down --name {self.name}` first, or use another --name",
                exit_code=2,
            )
        if not 1 <= wanted.nodes <= MAX_NODES:
            raise LabError(f"a lab has 1 to {MAX_NODES} nodes, not {wanted.nodes}", exit_code=2)
        if not 0 <= wanted.dra <= wanted.nodes:
            raise LabError(
                f"of {wanted.nodes} nodes, {wanted.dra} cannot be DRA nodes", exit_code=2
            )
        if len(wanted.profiles) != wanted.nodes:
            raise LabError(
                f"{wanted.nodes} nodes, and GPUs of {len(wanted.profiles)}: name one profile for "
                "all, or one for each node, separated by commas",
                exit_code=2,
            )
        for profile in wanted.profiles:
            gpus.check(profile)
        return wanted

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lab's lock, which the kernel releases when this process ends."""
        self.layout.folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        handle = os.open(self.layout.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LabError(
                f"another `kubeshare lab up` or `down` of {self.name} is at work: wait for it"
            ) from None
        else:
            yield
        finally:
            os.close(handle)

    def load_image(self) -> None:
        """Bring the code of this clone to every node, as the image ``kubeshare:dev``."""
        self._require()
        layers = images.kubeshare_layers(self.layout.folder, self.progress)
        self._boot().images(self.nodes, layers)

    def _wait_for_nodes(self) -> None:
        names = {node.name for node in self.nodes}
        with self.progress.step(f"wait for {len(names)} nodes to be ready"):
            wait_until(lambda: names <= self.ready_nodes(), "the nodes", still_possible=self._died)
            # The API server refuses every pod until the controller manager has created it.
            wait_until(self._has_default_account, "the default account", still_possible=self._died)

    def _has_default_account(self) -> bool:
        found = self.api.get("/api/v1/namespaces/default/serviceaccounts")["items"]
        return any(account["metadata"]["name"] == "default" for account in found)

    def _died(self) -> str | None:
        for component in self.components():
            if component.pid is None:
                return f"{component.name} ended: {processes.tail(component.log, 3)}"
        return None

    # While it runs

    def ready_nodes(self) -> set[str]:
        """The names of the nodes that are Ready and whose device plugin offers all their GPUs."""
        listed: list[dict[str, Any]] = self.api.get("/api/v1/nodes")["items"]
        expected = {node.name: node.plugged for node in self.nodes}
        ready = {node["metadata"]["name"]: _offers(node) for node in listed if _is_ready(node)}
        return {name for name, offered in ready.items() if offered == expected.get(name)}

    def components(self) -> list[Component]:
        """Every long-running program that the lab should have, running or not."""
        running = machine.find_parts(self.layout)
        expected = [(CONTROL_PLANE, part) for part in CONTROL_PLANE_PARTS]
        expected += [(node.name, part) for node in self.nodes for part in node.parts]
        found = []
        for where, part in expected:
            process = running.get(f"{where}/{part}")
            log = self.layout.folder / "logs" / where / f"{part}.log"
            found.append(Component(f"{where}/{part}", process.pid if process else None, log))
        return found

    def component(self, name: str) -> Component:
        """One of :meth:`components` by its name.

        Raises:
            LabError: there is none of that name; the message lists those there are.
        """
        self._require()
        known = {one.name: one for one in self.components()}
        if name not in known:
            raise LabError(f"no component {name}: there are {', '.join(known)}", exit_code=2)
        return known[name]

    def stop_component(self, name: str, *, gently: bool = True) -> None:
        """End one component, by SIGKILL unless gently; ``up`` starts it again."""
        where, _, part = self.component(name).name.partition("/")
        Machine(self.layout, where).stop(part, gently=gently)

    def reboot(self, node: str) -> None:
        """Power a node off and on: its processes and its memory are lost."""
        self.node(node).machine.power_off()
        with self._alone():
            boot = self._boot()
            boot.control_plane()
            boot.nodes(self.nodes)
            self._wait_for_nodes()

    def restart_component(self, name: str, *, gently: bool = False) -> None:
        """End one component, then start it and whatever else has died."""
        self.stop_component(name, gently=gently)
        with self._alone():
            boot = self._boot()
            boot.control_plane()
            boot.nodes(self.nodes)
            self._wait_for_nodes()

    # Down

    def exists(self) -> bool:
        """Whether anything of this lab exists."""
        return bool(
            self.layout.folder.exists()
            or self.layout.shared_memory.exists()
            or cgroups.exists(self.layout.cgroup)
            or network.host_link_exists(self.layout)
            or machine.find_processes(self.layout)
        )

    def down(self) -> bool:
        """Remove everything that has the lab's name; return False when there was nothing.

        Raises:
            LabError: something could not be removed.
        """
        self._api = None  # the next lab of this name has another authority
        if not self.exists():
            return False
        with self._alone(), self.progress.step(f"take down lab {self.name}"):
            machine.end_everything(self.layout)
            network.remove_host_link(self.layout)
            cgroups.remove(self.layout.cgroup)
            for folder in (self.layout.shared_memory, self.layout.folder):
                files.remove(folder)
                _remove_if_empty(folder.parent)
        return True


def _remove_if_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _is_ready(node: dict[str, Any]) -> bool:
    conditions = node["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _offers(node: dict[str, Any]) -> int:
    return int(node["status"].get("allocatable", {}).get(gpus.RESOURCE, 0))


def load_image(lab: Lab) -> None:
    """Bring the code of this clone to every node of a lab, as the image ``kubeshare:dev``."""
    lab.load_image()


def all_labs() -> list[Lab]:
    """The labs of this machine, by name."""
    try:
        names = sorted(entry.name for entry in STATE_ROOT.iterdir() if entry.is_dir())
    except OSError:
        return []
    return [Lab(name) for name in names]

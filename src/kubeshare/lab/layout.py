"""Derives a lab's names, addresses and folders from its name.

Nothing is looked up or allocated at run time, so the name of a lab is enough to know its
addresses and to take it down, without any record of it.

The network of lab ``demo``, with ``X`` from a hash of the name::

    this machine                 control plane               node-1, node-2, ...
    ks-demo 10.89.X.1 ────────── lab0 10.89.X.2 ──────────── eth0 10.89.X.11, .12, ...
                                 (a bridge; API server)      (pods: 10.244.1.0/24, ...)
"""

import hashlib
import re
from pathlib import Path

from msgspec import Struct

from kubeshare.lab.errors import LabError

STATE_ROOT = Path("/var/lib/kubeshare-lab")
SHARED_MEMORY_ROOT = Path("/dev/shm/kubeshare-lab")  # noqa: S108 - root's own folder in it
CGROUP_ROOT = "kubeshare-lab"
SERVICE_CIDR = "10.96.0.0/16"
SERVICE_IP = "10.96.0.1"
DNS_IP = "10.96.0.10"
POD_CIDR = "10.244.0.0/16"
BRIDGE = "lab0"
MAX_NODES = 100
CONTROL_PLANE = "control-plane"

_NAME = re.compile(r"[a-z][a-z0-9-]{0,10}[a-z0-9]|[a-z]")
_FIRST_NODE_ADDRESS = 10


class Layout(Struct, frozen=True):
    """Names, addresses and folders of one lab.

    Args:
        name: up to 12 lower-case letters, digits and hyphens: the name of a
            network interface has no room for more.
    """

    name: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise LabError(
                f"{self.name!r} is no name for a lab: use 1 to 12 lower-case letters, digits "
                "and hyphens, a letter first",
                exit_code=2,
            )

    @property
    def folder(self) -> Path:
        """The folder of all that persists: certificates, logs, the nodes' disks."""
        return STATE_ROOT / self.name

    @property
    def shared_memory(self) -> Path:
        """The memory of its fake GPUs."""
        return SHARED_MEMORY_ROOT / self.name

    @property
    def cgroup(self) -> str:
        """The parent of all its cgroups, in every hierarchy."""
        return f"{CGROUP_ROOT}/{self.name}"

    @property
    def host_link(self) -> str:
        """The one network interface that this machine gets."""
        return f"ks-{self.name}"

    def _address(self, last: int) -> str:
        third = hashlib.sha256(self.name.encode()).digest()[0]
        return f"10.89.{third}.{last}"

    @property
    def network(self) -> str:
        """The range that this machine, the control plane and the nodes share."""
        return f"{self._address(0)}/24"

    @property
    def host_address(self) -> str:
        """This machine's address in it."""
        return self._address(1)

    @property
    def api_address(self) -> str:
        """The control plane's address in it."""
        return self._address(2)

    def node(self, number: int) -> "NodeLayout":
        """The layout of the node with this number, counted from 1."""
        return NodeLayout(self, number)


class NodeLayout(Struct, frozen=True):
    """Names, addresses and folders of one node of a lab.

    Args:
        lab: the lab's layout.
        number: counted from 1.
    """

    lab: Layout
    number: int

    @property
    def name(self) -> str:
        """Its name in Kubernetes."""
        return f"node-{self.number}"

    @property
    def folder(self) -> Path:
        """Its disk, configuration and certificates."""
        return self.lab.folder / self.name

    @property
    def address(self) -> str:
        """Its InternalIP."""
        return self.lab._address(_FIRST_NODE_ADDRESS + self.number)  # noqa: SLF001 - its other half

    @property
    def pod_cidr(self) -> str:
        """The range of its pods."""
        return f"10.244.{self.number}.0/24"

    @property
    def cgroup(self) -> str:
        """The parent of its pods' cgroups."""
        return f"{self.lab.cgroup}/{self.name}"

    @property
    def gpu_state(self) -> Path:
        """The folder in which its fake GPUs keep their state, on shared memory."""
        return self.lab.shared_memory / self.name

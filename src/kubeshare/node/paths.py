"""Paths on a node: the kubelet's, CDI's and KubeShare's own.

The agent's pod mounts each of them at the same path as the host, because it passes these
paths to the kubelet, the container runtime and the token daemon. The four constants are
paths in a container; the device library knows the first two.
"""

from dataclasses import dataclass
from pathlib import Path

from kubeshare.api.types.constants import DRA_DRIVER

CONTAINER_CLAIM = "/run/kubeshare/claim"
CONTAINER_COUNTERS = "/run/kubeshare/counters"
CONTAINER_LIBRARY = "/opt/kubeshare/libkubeshare-vgpu.so"
CONTAINER_PRELOAD = "/etc/ld.so.preload"


@dataclass(frozen=True)
class NodePaths:
    """All paths of a node, below ``root`` (``/`` except in tests)."""

    root: Path = Path("/")

    @property
    def plugin_folder(self) -> Path:
        """The DRA driver's own folder among the kubelet's plugins."""
        return self.root / "var/lib/kubelet/plugins" / DRA_DRIVER

    @property
    def plugin_socket(self) -> Path:
        """The socket on which the kubelet calls prepare and unprepare."""
        return self.plugin_folder / "dra.sock"

    @property
    def lock(self) -> Path:
        """Held by the one agent that runs on this node."""
        return self.plugin_folder / "agent.lock"

    @property
    def registration_socket(self) -> Path:
        """The socket of the registration, in the folder that the kubelet watches."""
        return self.root / "var/lib/kubelet/plugins_registry" / f"{DRA_DRIVER}-reg.sock"

    @property
    def device_plugins_folder(self) -> Path:
        """The folder of the sockets of the kubelet and its device plugins."""
        return self.root / "var/lib/kubelet/device-plugins"

    @property
    def pod_resources_socket(self) -> Path:
        """The socket of the kubelet's PodResources API."""
        return self.root / "var/lib/kubelet/pod-resources/kubelet.sock"

    @property
    def static_cdi_folder(self) -> Path:
        """CDI specs of the machine's set-up, which the agent only reads."""
        return self.root / "etc/cdi"

    @property
    def dynamic_cdi_folder(self) -> Path:
        """Temporary CDI specs, among them those of claims."""
        return self.root / "var/run/cdi"

    @property
    def run_folder(self) -> Path:
        """The folder that agent, token daemon and containers share."""
        return self.root / "run/kubeshare"

    @property
    def library_folder(self) -> Path:
        """The device library for containers, never on a noexec file system."""
        return self.root / "var/lib/kubeshare/lib"

    @property
    def usage_folder(self) -> Path:
        """What grants have used, until the API server has it."""
        return self.root / "var/lib/kubeshare/usage"

    @property
    def cgroups(self) -> Path:
        """The control groups of the node, of version 1 or 2."""
        return self.root / "sys/fs/cgroup"

    @property
    def cpus(self) -> Path:
        """What the kernel's sysfs has about the CPUs."""
        return self.root / "sys/devices/system/cpu"

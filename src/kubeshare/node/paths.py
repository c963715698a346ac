"""Where things are on a node: the kubelet's fixed places, CDI's, and our own.

The agent's pod mounts each of them at the very same path as the host, because
the kubelet, the container runtime and the token daemon are told these paths. The
four constants are what a container sees; the device library knows the first two.
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
    """All paths of a node, below ``root`` (``/`` but in tests)."""

    root: Path = Path("/")

    @property
    def plugin_folder(self) -> Path:
        """The DRA driver's own folder among the kubelet's plugins."""
        return self.root / "var/lib/kubelet/plugins" / DRA_DRIVER

    @property
    def plugin_socket(self) -> Path:
        """Where the kubelet calls prepare and unprepare."""
        return self.plugin_folder / "dra.sock"

    @property
    def lock(self) -> Path:
        """Held by the one agent that runs on this node."""
        return self.plugin_folder / "agent.lock"

    @property
    def registration_socket(self) -> Path:
        """Where the kubelet, which watches this folder, asks who we are."""
        return self.root / "var/lib/kubelet/plugins_registry" / f"{DRA_DRIVER}-reg.sock"

    @property
    def pod_resources_socket(self) -> Path:
        """Where the kubelet says which pod has which device."""
        return self.root / "var/lib/kubelet/pod-resources/kubelet.sock"

    @property
    def static_cdi_folder(self) -> Path:
        """CDI specs of the machine's set-up; only read."""
        return self.root / "etc/cdi"

    @property
    def dynamic_cdi_folder(self) -> Path:
        """CDI specs that come and go; those of claims are written here."""
        return self.root / "var/run/cdi"

    @property
    def run_folder(self) -> Path:
        """What agent, token daemon and containers share: grants, claims, counters."""
        return self.root / "run/kubeshare"

    @property
    def library_folder(self) -> Path:
        """Where the device library lies for containers: never on a noexec file system."""
        return self.root / "var/lib/kubeshare/lib"

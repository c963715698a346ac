"""Gathers the facts of a node from its files."""

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

import yaml

from kubeshare.install.checks.container_runtime import (
    ContainerdConfig,
    accepts_visible_devices,
    containerd_config,
    imports,
)
from kubeshare.install.checks.node import NodeFacts
from kubeshare.node import host_mount
from kubeshare.node.dra import cdi
from kubeshare.node.paths import NodePaths
from kubeshare.node.run_mount import HostMounter
from kubeshare.tokens.client import ask_snapshot
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.files.statuses import DaemonMissingError

T = TypeVar("T")

_CONTAINERD: Final = (
    "etc/containerd/config.toml",
    "var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "var/lib/rancher/rke2/agent/etc/containerd/config.toml",
)
_KUBELET: Final = "var/lib/kubelet/config.yaml"
_NVIDIA_RUNTIME: Final = "etc/nvidia-container-runtime/config.toml"
_DRIVER: Final = "proc/driver/nvidia/version"
_GPUS: Final = "proc/driver/nvidia/gpus"
_BYTES: Final = 1 << 20
"""Of a file that is read."""
_FILES: Final = 64
"""Files of one kind that are read."""


class _Reader:
    """Reads facts below a root; notes those that cannot be read."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.unread: dict[str, str] = {}

    def read(self, fact: str, reading: Callable[[], T], otherwise: T) -> T:
        try:
            return reading()
        except (OSError, tomllib.TOMLDecodeError, yaml.YAMLError) as error:
            self.unread[fact] = " ".join(str(error).split())
            return otherwise


def read_node(root: Path) -> NodeFacts:
    """The facts of a node; what may not be read is noted.

    Args:
        root: the folder where the node's file system is: ``/``, or ``/host`` in a debugging pod.
    """
    paths, reader = NodePaths(root), _Reader(root)
    return NodeFacts(
        driver=reader.read("driver", lambda: _driver(root), ""),
        uuids=reader.read("uuids", lambda: list(_uuids(root)), []),
        cdi_devices=reader.read("cdi_devices", lambda: _cdi_devices(paths), {}),
        containerd=reader.read("containerd", lambda: _containerd(root), None),
        accepts_visible_devices=reader.read(
            "accepts_visible_devices", lambda: _visible_devices(root), None
        ),
        gates=reader.read("gates", lambda: _gates(root), {}),
        device_plugins=reader.read("device_plugins", lambda: _device_plugins(paths), []),
        installed=reader.read("installed", paths.library_folder.is_dir, False),
        registered=reader.read("registered", paths.registration_socket.exists, False),
        served=reader.read("served", lambda: _served(paths), False),
        bounded=reader.read("bounded", lambda: _bounded(paths), False),
        libraries=reader.read("libraries", lambda: _libraries(paths), 0),
        unread=reader.unread,
    )


def _text(path: Path) -> str | None:
    """The begin of a file; None if there is none."""
    try:
        with path.open("rb") as file:
            return file.read(_BYTES).decode(errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None


def _driver(root: Path) -> str:
    found = re.search(
        r"Kernel Module\s+(?:for \S+\s+)?(\d+(?:\.\d+)+)", _text(root / _DRIVER) or ""
    )
    return found[1] if found else ""


def _uuids(root: Path) -> Iterator[str]:
    for file in islice(sorted((root / _GPUS).glob("*/information")), _FILES):
        if found := re.search(r"GPU UUID:\s*(GPU-[0-9a-f-]+)", _text(file) or ""):
            yield found[1]


def _cdi_devices(paths: NodePaths) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for kind, names in cdi.devices([paths.static_cdi_folder, paths.dynamic_cdi_folder]):
        if kind and names:
            found[kind] = found.get(kind, frozenset()) | names
    return found


def _containerd(root: Path) -> ContainerdConfig | None:
    for name in _CONTAINERD:
        if (text := _text(root / name)) is not None:
            return containerd_config([text, *_imported(root, text)])
    return None


def _imported(root: Path, text: str) -> Iterator[str]:
    patterns = [pattern.lstrip("/") for pattern in imports(text)]
    files = (file for pattern in patterns for file in sorted(root.glob(pattern)))
    for file in islice(files, _FILES):
        yield _text(file) or ""


def _visible_devices(root: Path) -> bool | None:
    text = _text(root / _NVIDIA_RUNTIME)
    return None if text is None else accepts_visible_devices(text)


def _gates(root: Path) -> Mapping[str, bool]:
    document = yaml.safe_load(_text(root / _KUBELET) or "")
    gates = document.get("featureGates") if isinstance(document, Mapping) else None
    return gates if isinstance(gates, Mapping) else {}


def _device_plugins(paths: NodePaths) -> list[str]:
    names = sorted(each.name for each in paths.device_plugins_folder.iterdir())
    return [name for name in names if name.endswith(".sock") and name != "kubelet.sock"]


def _served(paths: NodePaths) -> bool:
    try:
        ask_snapshot(Paths(paths.run_folder))
    except DaemonMissingError:
        return False
    return True


def _bounded(paths: NodePaths) -> bool:
    mounted = HostMounter(os.getpid()).mounted(paths.run_folder)
    return mounted is not None and mounted.source == host_mount.SOURCE


def _libraries(paths: NodePaths) -> int:
    return sum(1 for _ in islice(paths.library_folder.glob("*/*.so"), _FILES))

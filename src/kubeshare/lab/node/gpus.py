"""Installs a node's fake GPUs as a GPU operator would.

The driver's libraries lie under ``/run/nvidia/driver``, where NVIDIA's GPU
operator puts them, with its sysfs beside them; ``/etc/cdi/nvidia.yaml`` says
what a container gets that is given a GPU, as ``nvidia-ctk cdi generate`` writes
it; and a device plugin offers ``nvidia.com/gpu`` to the kubelet. KubeShare finds
the same on a real node.
"""

import functools
import re
import sys
from pathlib import Path
from typing import Any, Final

import yaml

from kubeshare import fakegpu, native
from kubeshare.api.types.constants import NVIDIA_DRA_DRIVER
from kubeshare.lab.errors import LabError
from kubeshare.lab.files import replace
from kubeshare.lab.layout import NodeLayout
from kubeshare.lab.node.machine import Machine

NONE = "none"
RESOURCE = "nvidia.com/gpu"
DEVICE_PLUGIN = "gpu-plugin"
DRA_DRIVER = "gpu-dra-driver"
DRIVER_ROOT = Path("/run/nvidia/driver")

DEVICE_CLASS: Final[dict[str, Any]] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": NVIDIA_DRA_DRIVER},
    "spec": {
        "selectors": [
            {
                "cel": {
                    "expression": f"device.driver == '{NVIDIA_DRA_DRIVER}' && "
                    f"device.attributes['{NVIDIA_DRA_DRIVER}'].type == 'gpu'"
                }
            }
        ]
    },
}
"""The DeviceClass that the installation of NVIDIA's driver brings."""

_LIBRARIES = "usr/lib64"
_STATE = "run/fakegpu"
_PROFILE = "fakegpu.profile"
_DRIVER_LIBRARIES = ("libcuda.so", "libnvidia-ml.so")
_DRIVER_TOOL = "nvidia-smi"
_DEVICE_NODES = ("nvidiactl", "nvidia-uvm")
_NAME = re.compile(r"(?P<model>.+)x(?P<count>[0-9]+)")


def profile_text(profile: str, seed: str) -> str:
    """The profile of one node, in the fake GPU's own format.

    Args:
        profile: a name like ``V100x2``, or a file.
        seed: makes the node's UUIDs unlike those of others.

    Raises:
        LabError: it is neither.
    """
    named = _NAME.fullmatch(profile)
    if Path(profile).is_file():
        text = Path(profile).read_text()
    elif named:
        text = f"model = {named['model']}\ncount = {named['count']}\n"
    else:
        raise LabError(
            f"no profile {profile}: use a name like V100x2, a file, or {NONE}", exit_code=2
        )
    return f"{text}\nseed = {seed}\nstate = ../../{_STATE}\n"


def check(profile: str) -> None:
    """Refuse what names no fake GPUs at all, before anything is made.

    Raises:
        LabError: as :func:`profile_text`.
    """
    if profile != NONE:
        profile_text(profile, "")


@functools.cache
def count(profile: str) -> int:
    """How many GPUs a profile has.

    Raises:
        FakeGpuError: there is no such profile, or a line of it is wrong.
    """
    return 0 if profile == NONE else len(fakegpu.gpus(profile))


def install(node: NodeLayout, profile: str) -> None:
    """Put a node's driver, profile and CDI specification into its folder."""
    libraries = node.folder / "driver" / _LIBRARIES
    libraries.mkdir(parents=True, exist_ok=True)
    (node.folder / "driver" / _STATE).mkdir(parents=True, exist_ok=True)
    (node.folder / "cdi").mkdir(exist_ok=True)
    if profile == NONE:
        return
    node.gpu_state.mkdir(parents=True, exist_ok=True)
    # Processes of all users share a GPU.
    node.gpu_state.chmod(0o777)
    text = profile_text(profile, f"{node.lab.name}/{node.name}")
    replace(libraries / _PROFILE, text)
    _install_driver(libraries)
    fakegpu.write_sysfs(libraries / _PROFILE, node.folder / "driver" / "sys")
    state, driver = DRIVER_ROOT / _STATE, DRIVER_ROOT / _LIBRARIES
    spec = fakegpu.cdi_spec(libraries / _PROFILE, state, driver)
    replace(node.folder / "cdi" / "nvidia.yaml", yaml.safe_dump(spec, sort_keys=False))


def _install_driver(folder: Path) -> None:
    """Put the libraries and the tool there by the names that a real driver's files have."""
    release = fakegpu.driver_release(folder / _PROFILE)
    built = native.path(native.FAKE_DRIVER_FOLDER)
    replace(folder / _DRIVER_TOOL, (built / _DRIVER_TOOL).read_bytes(), 0o755)
    for library in _DRIVER_LIBRARIES:
        soname, named = f"{library}.1", f"{library}.{release}"
        replace(folder / named, (built / soname).read_bytes(), 0o755)
        new = folder / f".{soname}.new"
        new.unlink(missing_ok=True)
        new.symlink_to(named)
        new.replace(folder / soname)
        for other in set(folder.glob(f"{library}.*")) - {folder / soname, folder / named}:
            other.unlink()  # of another release


def _device_nodes(profile: Path) -> list[str]:
    """The shell lines that make the driver's device nodes; all that is written there is lost."""
    names = [*_DEVICE_NODES, *(f"nvidia{gpu.index}" for gpu in fakegpu.gpus(profile))]
    return [f"mkdir -p {DRIVER_ROOT}/dev"] + [
        f"test -e {DRIVER_ROOT}/dev/{name} || mknod -m 666 {DRIVER_ROOT}/dev/{name} c 1 3"
        for name in names
    ]


def mount_script(node: NodeLayout) -> list[str]:
    """The shell lines that mount driver, state and CDI specification."""
    folder = f"/mnt/{node.name}"
    lines = [f"mount --bind {folder}/driver {DRIVER_ROOT}"]
    if node.gpu_state.exists():
        lines.append(f"mount --bind {node.gpu_state} {DRIVER_ROOT / _STATE}")
    profile = node.folder / "driver" / _LIBRARIES / _PROFILE
    if profile.exists():
        lines += _device_nodes(profile)
    lines.append(f"mkdir -p /etc/cdi; cp -r {folder}/cdi/. /etc/cdi/")
    return lines


def start_device_plugin(machine: Machine) -> None:
    """Offer a node's GPUs to its kubelet, unless that is done already."""
    command = [sys.executable, "-m", "kubeshare.lab.node.device_plugin"]
    machine.start(DEVICE_PLUGIN, command, _environment())


def start_dra_driver(machine: Machine, node: NodeLayout) -> None:
    """Offer a node's GPUs by claims, unless that is done already."""
    kubeconfig = str(node.folder / "config" / "kubelet.kubeconfig")
    command = [sys.executable, "-m", "kubeshare.lab.node.dra_driver", node.name, kubeconfig]
    machine.start(DRA_DRIVER, command, _environment())


def _environment() -> dict[str, str]:
    return {
        "LD_LIBRARY_PATH": str(DRIVER_ROOT / _LIBRARIES),
        "PYTHONPATH": str(Path(__file__).resolve().parents[3]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }

"""The CDI specification of a node's fake GPUs.

A container that is given a GPU finds the driver's libraries where the real ones
would be, ``/dev/nvidiaN`` for each GPU it was given, and, what only a fake one
needs, the profile and the state folder. Which GPUs the libraries show follows
from the device nodes, so any combination of devices of one specification works.
"""

from pathlib import Path
from typing import Any

from kubeshare.fakegpu.launch import settings
from kubeshare.fakegpu.machines import Gpu, gpus

KIND = "nvidia.com/gpu"

_VERSION = "0.6.0"
_LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
_LIBRARY_FOLDER = Path("/usr/lib/x86_64-linux-gnu")
_TOOL = "nvidia-smi"
_TOOL_FOLDER = Path("/usr/bin")
_PROFILE = "/run/fakegpu/profile"
_STATE = "/run/fakegpu/state"
_READ_ONLY = ["ro", "nosuid", "nodev", "rbind", "rprivate"]
_WRITABLE = ["rw", "nosuid", "nodev", "rbind", "rprivate"]


def cdi_spec(
    profile: str | Path, state: str | Path, libraries: str | Path, seed: str = "", kind: str = KIND
) -> dict[str, Any]:
    """The specification of one node's GPUs.

    Args:
        profile: a profile's file, or a name like ``V100x2``.
        state: the node's state folder; it must exist when a container starts.
        libraries: the folder on the node that has the two libraries and `nvidia-smi`.
        seed: as in the node's own profile, so that all agree on the UUIDs.
        kind: of the devices.

    Returns:
        An object to be written as JSON or YAML, with a device for each GPU by its UUID
        and by its index, and one named ``all``.

    Raises:
        FakeGpuError: there is no such profile, or a line of it is wrong.
    """
    found = gpus(profile, seed)
    by_uuid = [_device(gpu.uuid, (gpu,)) for gpu in found]
    by_index = [_device(str(gpu.index), (gpu,)) for gpu in found]
    return {
        "cdiVersion": _VERSION,
        "kind": kind,
        "devices": [*by_uuid, *by_index, _device("all", found)],
        "containerEdits": _edits(profile, state, Path(libraries), seed),
    }


def _device(name: str, members: tuple[Gpu, ...]) -> dict[str, Any]:
    nodes = [_node(f"/dev/nvidia{gpu.index}") for gpu in members]
    return {"name": name, "containerEdits": {"deviceNodes": nodes}}


def _node(path: str) -> dict[str, str]:
    return {"path": path, "hostPath": "/dev/null", "permissions": "rw"}


def _mount(host: str | Path, container: str | Path, options: list[str]) -> dict[str, Any]:
    return {"hostPath": str(host), "containerPath": str(container), "options": options}


def _edits(profile: str | Path, state: str | Path, libraries: Path, seed: str) -> dict[str, Any]:
    """What every container with one of the GPUs gets."""
    variables = settings(profile, seed=seed)
    mounts = [_mount(libraries / name, _LIBRARY_FOLDER / name, _READ_ONLY) for name in _LIBRARIES]
    mounts.append(_mount(libraries / _TOOL, _TOOL_FOLDER / _TOOL, _READ_ONLY))
    mounts.append(_mount(state, _STATE, _WRITABLE))
    if Path(profile).is_file():
        mounts.append(_mount(variables["FAKEGPU_PROFILE"], _PROFILE, _READ_ONLY))
        variables["FAKEGPU_PROFILE"] = _PROFILE
    variables |= {"FAKEGPU_STATE": _STATE, "FAKEGPU_DEVICE_NODES": "1"}
    return {
        "env": [f"{name}={value}" for name, value in sorted(variables.items())],
        "deviceNodes": [_node("/dev/nvidiactl"), _node("/dev/nvidia-uvm")],
        "mounts": mounts,
    }

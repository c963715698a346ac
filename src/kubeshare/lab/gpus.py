"""A node's fake GPUs: they come to it as real ones come to a GPU node.

The driver's libraries lie under ``/run/nvidia/driver``, where NVIDIA's GPU
operator puts them; ``/etc/cdi/nvidia.yaml`` says what a container gets that is
given a GPU, as ``nvidia-ctk cdi generate`` writes it; and a device plugin offers
``nvidia.com/gpu`` to the kubelet. KubeShare meets nothing else on a real node.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from kubeshare import native
from kubeshare.lab.errors import LabError
from kubeshare.lab.layout import NodeLayout
from kubeshare.lab.machine import Machine

NONE = "none"
RESOURCE = "nvidia.com/gpu"
DEVICE_PLUGIN = "gpu-plugin"
DRIVER_ROOT = Path("/run/nvidia/driver")

_LIBRARIES = "usr/lib64"
_STATE = "run/fakegpu"
_PROFILE = "fakegpu.profile"
_DRIVER_FILES = ("libcuda.so.1", "libnvidia-ml.so.1")
_IN_CONTAINER = Path("/usr/lib/x86_64-linux-gnu")
_STATE_IN_CONTAINER = "/run/fakegpu"
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


def describe(profile: str) -> list[dict[str, Any]]:
    """The GPUs of a profile, a name or a file, as the fake driver itself describes them.

    Raises:
        LabError: the profile is not valid.
    """
    if profile == NONE:
        return []
    command = [str(native.path("fakegpu-stat")), "--describe", "--profile", profile]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"profile {profile}: {done.stderr.strip()}", exit_code=2)
    gpus: list[dict[str, Any]] = json.loads(done.stdout)["gpus"]
    return gpus


def cdi_spec(uuids: list[str], state: Path) -> dict[str, Any]:
    """What a container gets that is given a GPU, by UUID, by index or all of them.

    Args:
        uuids: of the node's GPUs, in their order.
        state: the folder in which they keep their state.
    """
    libraries = DRIVER_ROOT / _LIBRARIES
    mounts = [
        {
            "hostPath": str(libraries / file),
            "containerPath": str(_IN_CONTAINER / file),
            "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"],
        }
        for file in (*_DRIVER_FILES, _PROFILE)
    ]
    mounts.append(
        {
            "hostPath": str(state),
            "containerPath": _STATE_IN_CONTAINER,
            "options": ["rw", "nosuid", "nodev", "rbind", "rprivate"],
        }
    )
    nodes = [_device_node(f"nvidia{index}") for index in range(len(uuids))]
    names = {uuid: [node] for uuid, node in zip(uuids, nodes, strict=True)}
    names |= {str(index): [node] for index, node in enumerate(nodes)} | {"all": nodes}
    return {
        "cdiVersion": "0.6.0",
        "kind": RESOURCE,
        "containerEdits": {
            "env": [f"FAKEGPU_STATE={_STATE_IN_CONTAINER}", "FAKEGPU_DEVICE_NODES=1"],
            "deviceNodes": [_device_node("nvidiactl"), _device_node("nvidia-uvm")],
            "mounts": mounts,
        },
        "devices": [
            {"name": name, "containerEdits": {"deviceNodes": given}}
            for name, given in names.items()
        ],
    }


def _device_node(name: str) -> dict[str, str]:
    return {"path": f"/dev/{name}", "hostPath": "/dev/null"}


def install(node: NodeLayout, profile: str) -> None:
    """Put a node's driver, profile and CDI specification into its folder.

    A file that is in use is replaced, not written to.
    """
    libraries = node.folder / "driver" / _LIBRARIES
    libraries.mkdir(parents=True, exist_ok=True)
    (node.folder / "driver" / _STATE).mkdir(parents=True, exist_ok=True)
    (node.folder / "cdi").mkdir(exist_ok=True)
    if profile == NONE:
        return
    node.gpu_state.mkdir(parents=True, exist_ok=True)
    for file in _DRIVER_FILES:
        _replace(libraries / file, native.path(f"{native.FAKE_DRIVER_FOLDER}/{file}").read_bytes())
    text = profile_text(profile, f"{node.lab.name}/{node.name}")
    _replace(libraries / _PROFILE, text.encode())
    uuids = [gpu["uuid"] for gpu in describe(str(libraries / _PROFILE))]
    spec = cdi_spec(uuids, DRIVER_ROOT / _STATE)
    _replace(node.folder / "cdi" / "nvidia.yaml", yaml.safe_dump(spec, sort_keys=False).encode())


def _replace(path: Path, data: bytes) -> None:
    if not path.exists() or path.read_bytes() != data:
        new = path.with_name(f".{path.name}.new")
        new.write_bytes(data)
        new.chmod(0o755)
        new.replace(path)


def mount_script(node: NodeLayout) -> list[str]:
    """The shell lines that bring driver, state and CDI specification to their places."""
    folder = f"/mnt/{node.name}"
    lines = [f"mount --bind {folder}/driver {DRIVER_ROOT}"]
    if node.gpu_state.exists():
        lines.append(f"mount --bind {node.gpu_state} {DRIVER_ROOT / _STATE}")
    lines.append(f"mkdir -p /etc/cdi; cp -r {folder}/cdi/. /etc/cdi/")
    return lines


def start_device_plugin(machine: Machine) -> None:
    """Offer a node's GPUs to its kubelet, unless that is done already."""
    environment = {
        "LD_LIBRARY_PATH": str(DRIVER_ROOT / _LIBRARIES),
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    machine.start(DEVICE_PLUGIN, [sys.executable, "-m", "kubeshare.lab.device_plugin"], environment)

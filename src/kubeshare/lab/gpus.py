"""A node's fake GPUs: they come to it as real ones come to a GPU node.

The driver's libraries lie under ``/run/nvidia/driver``, where NVIDIA's GPU
operator puts them; ``/etc/cdi/nvidia.yaml`` says what a container gets that is
given a GPU, as ``nvidia-ctk cdi generate`` writes it; and a device plugin offers
``nvidia.com/gpu`` to the kubelet. KubeShare meets nothing else on a real node.
"""

import sys
from pathlib import Path

from kubeshare.lab.machine import Machine

NONE = "none"
RESOURCE = "nvidia.com/gpu"
DEVICE_PLUGIN = "gpu-plugin"
DRIVER_ROOT = Path("/run/nvidia/driver")

_LIBRARIES = "usr/lib64"


def start_device_plugin(machine: Machine) -> None:
    """Offer a node's GPUs to its kubelet, unless that is done already."""
    environment = {
        "LD_LIBRARY_PATH": str(DRIVER_ROOT / _LIBRARIES),
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    machine.start(DEVICE_PLUGIN, [sys.executable, "-m", "kubeshare.lab.device_plugin"], environment)


def count(profile: str) -> int:
    """How many GPUs a profile has."""
    if profile == NONE:
        return 0
    return 0

"""The fake GPU: how programs and containers get it, and its log.

The fake GPU is two libraries in the place of NVIDIA's (``native/fakegpu``). What
machine they pretend is a *profile*: a file, or a name like ``V100x2``. What all
processes of that machine share is a *state folder*: two programs with the same
state folder use the same GPUs, and :func:`stat` tells the truth about them.

Names are imported when they are first used: `kubeshare run` needs one of them, and must start
quickly.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kubeshare.fakegpu.cdi import cdi_spec
    from kubeshare.fakegpu.errors import FakeGpuError
    from kubeshare.fakegpu.faults import LOST, raise_error
    from kubeshare.fakegpu.launch import environment
    from kubeshare.fakegpu.machines import Gpu, Model, driver_release, gpus, models, profiles
    from kubeshare.fakegpu.sysfs import write_sysfs
    from kubeshare.fakegpu.truth import GpuProcess, GpuTruth, Truth, stat

__all__ = [
    "LOST",
    "FakeGpuError",
    "Gpu",
    "GpuProcess",
    "GpuTruth",
    "Model",
    "Truth",
    "cdi_spec",
    "driver_release",
    "environment",
    "gpus",
    "models",
    "profiles",
    "raise_error",
    "stat",
    "write_sysfs",
]

_HOMES = {
    "cdi": ("cdi_spec",),
    "errors": ("FakeGpuError",),
    "faults": ("LOST", "raise_error"),
    "launch": ("environment",),
    "machines": ("Gpu", "Model", "driver_release", "gpus", "models", "profiles"),
    "sysfs": ("write_sysfs",),
    "truth": ("GpuProcess", "GpuTruth", "Truth", "stat"),
}


def __getattr__(name: str) -> Any:
    """Load a name of ``__all__`` from the module that has it."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

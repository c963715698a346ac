"""The fake GPU from outside: how to give it to a program or a container, and what it knows.

The fake GPU is two libraries in the place of NVIDIA's (``native/fakegpu``). What
machine they pretend is a *profile*: a file, or a name like ``V100x2``. What all
processes of that machine share is a *state folder*: two programs with the same
state folder use the same GPUs, and :func:`stat` tells the truth about them.
"""

from kubeshare.fakegpu.cdi import cdi_spec
from kubeshare.fakegpu.errors import FakeGpuError
from kubeshare.fakegpu.launch import environment
from kubeshare.fakegpu.profiles import Gpu, Model, gpus, models, profiles
from kubeshare.fakegpu.truth import GpuProcess, GpuTruth, Truth, stat

__all__ = [
    "FakeGpuError",
    "Gpu",
    "GpuProcess",
    "GpuTruth",
    "Model",
    "Truth",
    "cdi_spec",
    "environment",
    "gpus",
    "models",
    "profiles",
    "stat",
]

"""Profiles: the machines that the fake GPU can be, and their GPUs."""

from dataclasses import dataclass
from pathlib import Path

from kubeshare import native
from kubeshare.fakegpu.launch import settings
from kubeshare.fakegpu.program import ask


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU of a profile.

    Attributes:
        index: its NVML index.
        uuid: its UUID.
        model: as NVML names it.
        total_memory: bytes.
        pci_address: as the kernel spells it, ``0000:1a:00.0``.
        numa_node: the NUMA node that it is near.
        cpu_list: the CPUs of that node, ``0-7,16``; "" for all CPUs of this machine.
    """

    index: int
    uuid: str
    model: str
    total_memory: int
    pci_address: str
    numa_node: int
    cpu_list: str


@dataclass(frozen=True, slots=True)
class Model:
    """A model that profiles may name; ``memory`` in bytes, ``name`` as NVML says it."""

    model: str
    name: str
    memory: int


def gpus(profile: str | Path, seed: str = "") -> tuple[Gpu, ...]:
    """The GPUs of a profile, in the order of their indices; no state is made or read.

    Raises:
        FakeGpuError: there is no such profile, or a line of it is wrong.
    """
    answer = ask("--describe", settings=settings(profile, seed=seed))
    return tuple(Gpu(**gpu) for gpu in answer["gpus"])


def driver_release(profile: str | Path) -> str:
    """The release of a profile's driver, ``615.71.05``: files of a real one are named after it.

    Raises:
        FakeGpuError: as :func:`gpus`.
    """
    return str(ask("--describe", settings=settings(profile))["driver"])


def models() -> tuple[Model, ...]:
    """The models known: a profile may be ``MODELxN`` with 1 to 16 of them."""
    return tuple(Model(**model) for model in ask("--models", settings={}))


def profiles() -> tuple[Path, ...]:
    """The profile files that come with the fake GPU."""
    folder = native.path(native.FAKE_DRIVER_FOLDER) / "profiles"
    return tuple(sorted(folder.glob("*.profile")))

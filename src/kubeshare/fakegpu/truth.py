"""Reads the fake GPU's own log of busy time."""

from dataclasses import dataclass
from pathlib import Path

from kubeshare.fakegpu.program import ask


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that has used a GPU since its state was made.

    ``id`` is never used twice; ``pid`` is as the process sees itself, ``host_pid`` as
    this one does (0: not at all, or dead); ``host`` its host name, which is the pod's
    name in Kubernetes; ``busy_ns`` how long the GPU has worked for it; ``memory`` the
    bytes it holds.
    """

    id: int
    host: str
    pid: int
    host_pid: int
    comm: str
    alive: bool
    busy_ns: int
    memory: int


@dataclass(frozen=True, slots=True)
class GpuTruth:
    """One GPU; memory in bytes, ``busy_ns`` over all processes."""

    index: int
    uuid: str
    model: str
    total_memory: int
    used_memory: int
    busy_ns: int
    processes: tuple[GpuProcess, ...]


@dataclass(frozen=True, slots=True)
class Truth:
    """All GPUs at ``now_ns`` (CLOCK_MONOTONIC)."""

    now_ns: int
    gpus: tuple[GpuTruth, ...]


def stat(state: str | Path, profile: str | Path = "") -> Truth:
    """Look at a state folder.

    Args:
        state: the folder.
        profile: for a folder that is not in use yet; one in use knows its GPUs.

    Raises:
        FakeGpuError: the folder cannot be used.
    """
    settings = {"FAKEGPU_STATE": str(state)}
    if profile:
        settings["FAKEGPU_PROFILE"] = str(profile)
    answer = ask(settings=settings)
    seen = (
        GpuTruth(**{**gpu, "processes": tuple(GpuProcess(**one) for one in gpu["processes"])})
        for gpu in answer["gpus"]
    )
    return Truth(now_ns=answer["now_ns"], gpus=tuple(seen))

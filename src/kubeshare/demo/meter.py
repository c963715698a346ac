"""Measures shares by the GPU's log, the daemon or the jobs.

The fake GPU logs the time that it works for each process: the truth. A real GPU has no such
log; there the jobs count their own kernels, whose length is known. What the token daemon
charged is read as well.
"""

import json
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol, Self

from kubeshare import fakegpu
from kubeshare.demo.cluster import NAMESPACE, SYSTEM_NAMESPACE, Kubectl
from kubeshare.demo.timeline import Sample

_KERNEL_NS = 1_000_000  # the jobs' kernels take a millisecond


class Meter(Protocol):
    """Measures how long a GPU has worked for each job."""

    source: str

    def sample(self) -> Sample:
        """Take a sample now."""
        ...


class FakeGpuLog:
    """The log of one fake GPU of this machine.

    Args:
        state: the state folder that the GPU's processes share.
        uuid: which of its GPUs.
        jobs: pods' names, which are the host names that the log has.
    """

    source = "the GPU's own log"

    def __init__(self, state: Path, uuid: str, jobs: Iterable[str]) -> None:
        self._state, self._uuid, self._jobs = state, uuid, tuple(jobs)

    def sample(self) -> Sample:
        """Take a sample now."""
        seen = fakegpu.stat(self._state)
        gpu = next(gpu for gpu in seen.gpus if gpu.uuid == self._uuid)
        busy = dict.fromkeys(self._jobs, 0)
        for process in gpu.processes:
            if process.host in busy:
                busy[process.host] += process.busy_ns
        return Sample(seen.now_ns, busy)


class KernelCounts:
    """The jobs' own counts of kernels, read from their pods' logs."""

    source = "the jobs' own counts of kernels"

    def __init__(self, kubectl: Kubectl, jobs: Iterable[str]) -> None:
        self._kubectl, self._jobs = kubectl, tuple(jobs)
        self._counted: dict[str, int] = {}

    def sample(self) -> Sample:
        """Take a sample; a job whose pod is gone keeps its last count."""
        for job in self._jobs:
            found = self._kubectl(
                "get", "pod", job, "-n", NAMESPACE, "--ignore-not-found", "-o", "name"
            )
            if found.strip():
                log = self._kubectl("logs", job, "-n", NAMESPACE)
                self._counted[job] = _kernels(log) * _KERNEL_NS
        return Sample(time.monotonic_ns(), dict(self._counted))


def _kernels(log: str) -> int:
    """Sum the kernels that a job logged, one JSON line a second."""
    lines = (json.loads(line) for line in log.splitlines() if line.startswith("{"))
    return round(sum(float(line.get("kernels_per_s", 0)) for line in lines))


class Recorder:
    """Samples a meter at a steady pace in a thread of its own.

    Args:
        meter: what to sample.
        seconds: between two samples.
    """

    def __init__(self, meter: Meter, seconds: float = 0.5) -> None:
        self.samples: list[Sample] = []
        self._meter, self._seconds = meter, seconds
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._record, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def sample(self) -> Sample:
        """Take and keep an extra sample now."""
        with self._lock:
            seen = self._meter.sample()
            self.samples.append(seen)
        return seen

    def _record(self) -> None:
        while not self._done.wait(self._seconds):
            self.sample()


class Charges:
    """Reads what the token daemon of a node has charged each job.

    Args:
        kubectl: how to reach the cluster.
        node: the node that the shared GPU is on.
    """

    def __init__(self, kubectl: Kubectl, node: str) -> None:
        self._kubectl = kubectl
        pods = json.loads(
            kubectl(
                *("get", "pods", "-n", SYSTEM_NAMESPACE, "-o", "json"),
                *("-l", "app.kubernetes.io/component=token-daemon"),
                *("--field-selector", f"spec.nodeName={node}"),
            )
        )["items"]
        self._pod: str = pods[0]["metadata"]["name"]

    def sample(self) -> Sample:
        """Take a sample: nanoseconds charged so far, by pod name."""
        printed = self._kubectl(
            *("exec", "-n", SYSTEM_NAMESPACE, self._pod, "--"),
            *("python3", "-m", "kubeshare.cli.main", "top", "--once", "-o", "json"),
        )
        seen = json.loads(printed)
        mine = [one for one in seen["claims"] if one["holder"].startswith(f"{NAMESPACE}/")]
        charged = {one["holder"].split("/")[1]: one["chargedNs"] for one in mine}
        return Sample(seen["nowNs"], charged)


def fake_gpu_of(states: Iterable[Path], pod: str) -> str | None:
    """Find the UUID of the fake GPU of this machine that a pod uses, if any."""
    for state in states:
        for gpu in fakegpu.stat(state).gpus:
            if any(process.host == pod and process.alive for process in gpu.processes):
                return gpu.uuid
    return None

"""Whether two that share a GPU ever run at the same time, by the GPU's own clock."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.gpu.clients import Bench, Share
from bench.gpu.experiment import Experiment, LeftOutError, Result

_JOBS = ("a", "b")
_SECONDS = 8.0
_KERNEL_US = 1000


class Ran(NamedTuple):
    """When a kernel began and ended, in ns."""

    began: int
    ended: int


def run(bench: Bench) -> Result:
    """Two jobs of one half each, with KubeShare and with nothing of ours between."""
    return {
        "shared": _measure(bench, Share(".5")),
        "bare": _measure(bench, None),
        "kernel_us": _KERNEL_US,
    }


def _measure(bench: Bench, share: Share | None) -> Result:
    with (
        tempfile.TemporaryDirectory(prefix="kubeshare-stamps-") as name,
        bench.clients() as clients,
    ):
        files = {job: Path(name) / job for job in _JOBS}
        jobs = [
            clients.start(
                job,
                share,
                "--kernel-us",
                str(_KERNEL_US),
                "--stamps",
                str(file),
                "--seconds",
                "600",
            )
            for job, file in files.items()
        ]
        clients.watch(0.5, bench.seconds(_SECONDS))
        for job in jobs:
            job.finish()
        ran = [list(read(file)) for file in files.values()]
    if not all(ran):
        raise LeftOutError("the kernels left no stamps: a fake GPU does not run them")
    busy = sum(each.ended - each.began for job in ran for each in job)
    both = overlap_ns(*ran)
    return {
        "kernels": [len(job) for job in ran],
        "overlap_ns": both,
        "overlap_share": both / busy,
    }


def read(file: Path) -> Iterator[Ran]:
    """The lines that ``burn --stamps`` has written, in the order of the launches."""
    for line in file.read_text().splitlines():
        began, ended = line.split()
        yield Ran(int(began), int(ended))


def overlap_ns(one: list[Ran], other: list[Ran]) -> int:
    """For how long a kernel of each ran; the kernels of one job run one after another."""
    total, place = 0, 0
    for ran in sorted(one):
        while place < len(other) and other[place].ended <= ran.began:
            place += 1
        for beside in other[place:]:
            if beside.began >= ran.ended:
                break
            total += min(ran.ended, beside.ended) - max(ran.began, beside.began)
    return total


def missed(result: Result) -> str:
    """With KubeShare no kernel of one job may run beside one of the other."""
    overlap = result["shared"]["overlap_ns"]
    return f"kernels of two jobs ran at once for {overlap} ns, goal 0" if overlap > 0 else ""


OVERLAP = Experiment("overlap", "whether two jobs ever run at once", 30, run, missed=missed)

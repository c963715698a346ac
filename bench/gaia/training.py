"""Experiment 6: how long jobs on two GPUs take, by who places them.

Two jobs arrive on the idle node of the paper. Stock Kubernetes gives GPUs without knowing their
links: here each run draws them. Gaia's are those of `kubeshare plan`'s core. The jobs run on fake
GPUs whose links have the bandwidths below, so their times are exact and do not depend on this
machine.
"""

import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct

from bench.report import median
from kubeshare.core.topology import read_notation
from kubeshare.core.topology.links import Links, name_of
from kubeshare.fakegpu.launch import environment
from kubeshare.simulator.figures.gaia.cases import P4, Case
from kubeshare.simulator.figures.gaia.placement import SEED, play

EXPERIMENT: Final = 6
RUNS: Final = 10
STEPS: Final = 469
"""One epoch of MNIST's 60 000 pictures in batches of 128."""
COMPUTE_US: Final = 250

SCALE: Final = 100
"""Bytes and bandwidths are divided by it: a fake GPU moves bytes with this machine's processor."""

Pair = tuple[int, int]

_PAPERS: Final = read_notation(P4, "the paper's node")

SPEEDS: Final[Mapping[str, int]] = {
    "NV": 24000,
    "PIX": 12500,
    "PXB": 12000,
    "PHB": 10500,
    "NODE": 9500,
    "SYS": 9000,
}
"""MB/s one way between GPUs that access each other's memory: of one NVLink 2 (25 000 according to
NVIDIA), and of PCIe 3.0 x16 (15 750 without protocol) by the kind of path."""
STAGED: Final[Mapping[str, int]] = {"NODE": 5500, "SYS": 5500}
"""MB/s where sockets are in between and the driver allows no access: each byte crosses PCIe twice,
by way of the host's memory."""


class Job(Struct, frozen=True):
    """A framework's example for MNIST, as two GPUs see it.

    Attributes:
        name: the framework.
        parameters: of its network, 4 bytes each.
    """

    name: str
    parameters: int


JOBS: Final = (
    Job("Caffe (LeNet)", 431_080),
    Job("PyTorch (examples/mnist)", 1_199_882),
    Job("TensorFlow (deep MNIST)", 3_274_634),
)


class Machine:
    """Fake GPUs of one profile.

    Args:
        lines: of the profile.
        folder: for the profile and the GPUs' state.
    """

    def __init__(self, lines: Sequence[str], folder: Path) -> None:
        self._profile = folder / "machine.profile"
        self._profile.write_text("\n".join(lines) + "\n")
        self._state = folder / "state"

    def seconds(self, job: Job, pair: Pair, steps: int) -> float:
        """How long a job takes on a pair of GPUs."""
        command = [
            sys.executable,
            "-m",
            "bench.gaia.job",
            "--size",
            str(4 * job.parameters // SCALE),
        ]
        command += ["--compute-us", str(COMPUTE_US), "--steps", str(steps)]
        seen = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, pair)), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(
            command,
            env=environment(self._profile, self._state) | seen,
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        seconds: float = json.loads(done.stdout)["seconds"]
        return seconds


def run(runs: int, steps: int = STEPS) -> bool:
    """Print all; whether a job that Gaia places is slower than a stock one."""
    print(f"\nExperiment 6: two jobs on two GPUs each, on the idle node {P4}, {runs} runs.")
    print(
        "  The paper has a figure without numbers: stock Kubernetes may split a pair, Gaia never."
    )
    print(f"  A step computes {COMPUTE_US} us and copies all parameters there and back.")
    slower = False
    for title, speeds in (
        ("peer access between all GPUs", SPEEDS),
        ("no peer access between sockets, as with QPI", {**SPEEDS, **STAGED}),
    ):
        rates = ", ".join(f"{link} {speed / 1000:g}" for link, speed in speeds.items())
        print(f"\n  {title}; GB/s: {rates}")
        with machine(of_the_paper(speeds)) as gpus:
            slower |= _compare(gpus, runs, steps)
    with machine(_all_links()) as gpus:
        _table(gpus, steps)
    return slower


def _compare(gpus: Machine, runs: int, steps: int) -> bool:
    draw = random.Random(SEED)
    stock = [drawn(draw) for _ in range(runs)]
    ours = [placed_by_gaia()] * runs
    split = sum("SYS" in links_of(pairs) for pairs in stock)
    print(f"  stock splits the pairs in {split} of {runs} runs, Gaia in none")
    print(f"    {'':26s} seconds, median (least to most)")
    print(f"    {'':26s} {'stock':26s}{'Gaia':26s}gain")
    slower = False
    for job in JOBS:
        before, after = (
            times(partial(gpus.seconds, job, steps=steps), placed) for placed in (stock, ours)
        )
        gain = 1 - sum(after) / sum(before)
        print(f"    {job.name:26s} {shown(before):26s}{shown(after):26s}{100 * gain:.1f}%")
        slower |= gain < 0
    return slower


def times(seconds: Callable[[Pair], float], placed: Sequence[tuple[Pair, Pair]]) -> list[float]:
    """The mean time of both jobs of each run; they run at one time."""
    with ThreadPoolExecutor(2) as pool:
        return [sum(pool.map(seconds, pairs)) / 2 for pairs in placed]


def drawn(draw: random.Random, count: int = 4) -> tuple[Pair, Pair]:
    """The GPUs of two jobs where nobody knows of links."""
    gpus = draw.sample(range(count), 4)
    return (gpus[0], gpus[1]), (gpus[2], gpus[3])


def placed_by_gaia() -> tuple[Pair, Pair]:
    """The GPUs of two requests for two."""
    case = Case("two jobs", P4, (200, 200), {})
    first, second = (next(iter(counts)) for counts in play(case, runs=1))
    return pair(first.split(",")), pair(second.split(","))


def pair(gpus: Sequence[str]) -> Pair:
    """The numbers of two GPUs."""
    first, second = map(int, gpus)
    return first, second


def links_of(pairs: tuple[Pair, Pair], links: Links = _PAPERS) -> list[str]:
    """The kinds of link of both pairs, sorted."""
    return sorted(name_of(links[a][b]) for a, b in pairs)


def _table(gpus: Machine, steps: int) -> None:
    """The time of each job by the link of its two GPUs."""
    heads = "".join(f"{name:>13s}" for name in (*_LINKS, "SYS, staged"))
    print(f"\n  Seconds by the link of the two GPUs\n    {'':26s}{heads}")
    for job in JOBS:
        times = [gpus.seconds(job, (0, gpu), steps) for gpu in range(1, len(_LINKS) + 1)]
        with machine(of_the_paper({**SPEEDS, **STAGED})) as staged:
            times.append(staged.seconds(job, (0, 2), steps))
        print(f"    {job.name:26s}" + "".join(f"{each:13.3f}" for each in times))


_LINKS: Final = ("NV2", "NV1", "PIX", "PXB", "PHB", "NODE", "SYS")


def of_the_paper(speeds: Mapping[str, int]) -> list[str]:
    """The profile of the paper's node with these bandwidths."""
    links = ["link = SYS", "link.0.1 = PXB", "link.2.3 = PIX"]
    return ["model = V100-PCIE", "count = 4", *links, *_speed_lines(speeds)]


def _all_links() -> list[str]:
    """A profile whose first GPU has each kind of link with another."""
    links = [f"link.0.{gpu} = {link}" for gpu, link in enumerate(_LINKS, 1)]
    return ["model = V100", f"count = {len(_LINKS) + 1}", *links, *_speed_lines(SPEEDS)]


def _speed_lines(speeds: Mapping[str, int]) -> list[str]:
    return [f"speed.{link} = {speed // SCALE}" for link, speed in speeds.items()]


@contextmanager
def machine(lines: Sequence[str]) -> Iterator[Machine]:
    """A machine with this profile; its state goes at the end."""
    with tempfile.TemporaryDirectory(prefix="gaia-", dir="/dev/shm") as folder:
        yield Machine(lines, Path(folder))


def shown(seconds: Sequence[float]) -> str:
    """Their median, least and most."""
    return f"{median(seconds):.3f} ({min(seconds):.3f} to {max(seconds):.3f})"

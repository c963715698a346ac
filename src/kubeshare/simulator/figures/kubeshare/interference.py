"""KubeShare paper, figure 13: anti-affinity between jobs that interfere (section 5.5)."""

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Final

import msgspec

from kubeshare.core.demand import Demand
from kubeshare.core.units import MICROS, Memory
from kubeshare.simulator.experiment import Experiment, Progress
from kubeshare.simulator.figures.figure import Claim, Figure, Point
from kubeshare.simulator.figures.kubeshare.throughput import DURATION_S, NODES, throughput
from kubeshare.simulator.jobs import Job
from kubeshare.simulator.measurements import Estimate

JOBS: Final = 1000
RATIOS: Final = (0.0, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0)
"""Of jobs A among all."""

KUBERNETES: Final = "kubernetes"
ANYWHERE: Final = "kubeshare"
APART: Final = "kubeshare, anti-affinity"

_REQUEST: Final = 0.45
_NEEDS: Final = {"A": 0.3, "B": 0.75}
_INTERARRIVAL_S: Final = 0.4
_MUCH: Final = 1.5


class TwoKinds(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs A, which need less than they ask for, among jobs B, which need more.

    Attributes:
        count: of the jobs.
        ratio: of jobs A.
        apart: whether jobs B have an anti-affinity label.
    """

    count: int
    ratio: float
    apart: bool

    def draw(self, seed: int) -> Iterator[Job]:
        """The jobs of a seed."""
        random, now = Random(seed), 0.0  # noqa: S311 - repeatable on purpose
        request = round(_REQUEST * MICROS)
        for number in range(self.count):
            now += random.expovariate(1 / _INTERARRIVAL_S)
            kind = "A" if random.random() < self.ratio else "B"
            name = f"job-{number}"
            yield Job(
                uid=name,
                name=name,
                arrival_s=now,
                work_s=DURATION_S,
                need_micros=round(_NEEDS[kind] * MICROS),
                kind=kind,
                demand=Demand(
                    uid=name,
                    name=name,
                    request_micros=request,
                    memory=Memory(micros=request),
                    anti_affinity="b" if kind == "B" and self.apart else "",
                ),
            )


def jobs_of(seeds: int) -> int:
    """How many jobs arrive in all of its runs."""
    return 3 * seeds * len(RATIOS) * JOBS


def figure_13(seeds: int, progress: Progress) -> Figure:
    """Throughput of the three settings by the ratio of jobs A."""
    found = {
        KUBERNETES: _line("whole", seeds, progress, apart=False),
        ANYWHERE: _line("locality", seeds, progress, apart=False),
        APART: _line("locality", seeds, progress, apart=True),
    }
    return Figure(
        name="13",
        title="Throughput of jobs that interfere",
        x="ratio of jobs A",
        y="jobs a minute",
        lines={
            name: [Point(x, y) for x, y in zip(RATIOS, values, strict=True)]
            for name, values in found.items()
        },
        claims=_claims({name: [each.mean for each in of] for name, of in found.items()}),
        chosen=[
            f"all ask for {_REQUEST:g} GPU; A needs {_NEEDS['A']:g}, B {_NEEDS['B']:g}",
            "so two B on a GPU take 1.5 times as long, other pairs less than 1.1 (figure 12)",
            f"{JOBS} jobs of {DURATION_S:g} s, one every {_INTERARRIVAL_S:g} s: more than fit",
        ],
    )


def _line(policy: str, seeds: int, progress: Progress, *, apart: bool) -> list[Estimate]:
    workloads = [TwoKinds(count=JOBS, ratio=ratio, apart=apart) for ratio in RATIOS]
    experiments = (Experiment(nodes=NODES, workload=each) for each in workloads)
    return [throughput(each, policy, seeds, progress) for each in experiments]


def _claims(means: Mapping[str, Sequence[float]]) -> list[Claim]:
    native, anywhere, apart = (means[name] for name in (KUBERNETES, ANYWHERE, APART))
    many = [at for at, ratio in enumerate(RATIOS) if 0.5 < ratio < 1]
    gains = [apart[at] / anywhere[at] for at in many]
    return [
        Claim(
            paper="without any A, anti-affinity is as Kubernetes: a job a GPU",
            here=f"{apart[0]:.1f} and {native[0]:.1f} jobs a minute",
            holds=abs(apart[0] - native[0]) <= 0.05 * native[0],
        ),
        Claim(
            paper="there, sharing without labels has the highest throughput of the three",
            here=f"{anywhere[0]:.1f} jobs a minute",
            holds=anywhere[0] > 1.05 * max(native[0], apart[0]),
        ),
        Claim(
            paper="with more A, both improve significantly",
            here=f"from {anywhere[0]:.1f} to {anywhere[-1]:.1f}, and from {apart[0]:.1f} to "
            f"{apart[-1]:.1f}",
            holds=min(anywhere[-1] / anywhere[0], apart[-1] / apart[0]) > 1.2,
        ),
        Claim(
            paper="with more than half A, anti-affinity has the highest throughput",
            here=", ".join(
                f"{gain:.2f} times that without at {RATIOS[at]:g}"
                for at, gain in zip(many, gains, strict=True)
            ),
            holds=min(gains) > 1,
        ),
        Claim(
            paper="with A alone, both are the same, and much better than Kubernetes",
            here=f"{anywhere[-1]:.1f} and {apart[-1]:.1f} against {native[-1]:.1f}",
            holds=anywhere[-1] == apart[-1] and apart[-1] > _MUCH * native[-1],
        ),
    ]

"""KubeShare paper, figure 3: six containers on a node with four GPUs."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import msgspec

from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import FreeGpu
from kubeshare.core.units import GI, MICROS, Memory
from kubeshare.simulator.cluster import equal_nodes
from kubeshare.simulator.engine.simulation import Ended, Settings, StartTimes
from kubeshare.simulator.experiment import Experiment, Progress, run
from kubeshare.simulator.figures.figure import Claim, Figure, bars
from kubeshare.simulator.jobs import Job

GPUS: Final = 4
DEMANDS: Final = {"A": 0.7, "B": 0.6, "C": 0.2, "D": 0.3, "E": 0.5, "F": 0.5}
"""Container → what it asks of a GPU."""

_WORK_S: Final = 60.0
_SYSTEMS: Final = {"round-robin": "scaling factor, round-robin", "locality": "kubeshare"}


class _Containers(msgspec.Struct, frozen=True):
    """The six containers, a second after each other."""

    count: int = len(DEMANDS)

    def draw(self, seed: int) -> Iterator[Job]:
        """The same jobs for any seed."""
        del seed
        for arrival, (name, share) in enumerate(DEMANDS.items()):
            micros = round(share * MICROS)
            yield Job(
                uid=name,
                name=name,
                arrival_s=float(arrival),
                work_s=_WORK_S,
                need_micros=micros,
                demand=Demand(
                    uid=name, name=name, request_micros=micros, memory=Memory(micros=micros)
                ),
            )


class _Placed(msgspec.Struct, frozen=True):
    """What was asked of each GPU, in GPUs, and how much longer the slowest container took."""

    asked: list[float]
    slowest: float


def figure_3(seeds: int, progress: Progress) -> Figure:
    """What is asked of each GPU, with and without the identity of GPUs."""
    del seeds  # nothing is drawn
    placed = {label: _place(name, progress) for name, label in _SYSTEMS.items()}
    turns, ours = (placed[label] for label in _SYSTEMS.values())
    over, idle, active = _over(turns.asked), min(turns.asked), sum(at > 0 for at in ours.asked)
    return Figure(
        name="3",
        title="What six containers ask of four GPUs of a node",
        x="GPU",
        y="GPUs asked",
        lines={label: bars(each.asked) for label, each in placed.items()},
        ticks=[f"GPU {number}" for number in range(GPUS)],
        claims=[
            Claim(
                paper="round-robin over-commits some GPUs and leaves others under-utilised",
                here=f"{over} GPUs over-committed, the least used at {100 * idle:.0f} %, and a "
                f"container takes {turns.slowest:.2f} times as long",
                holds=over > 0 and idle < 0.5 and turns.slowest > 1.05,
            ),
            Claim(
                paper="locality-aware scheduling over-commits none",
                here=f"{_over(ours.asked)} over-committed, no container takes longer",
                holds=_over(ours.asked) == 0 and ours.slowest < 1.001,
            ),
            Claim(
                paper="and minimises the number of active GPUs",
                here=f"{active} of {GPUS}; together they ask for {sum(DEMANDS.values()):.1f}",
                holds=active == -(-sum(DEMANDS.values()) // 1),
            ),
        ],
        chosen=[
            "the containers ask for " + ", ".join(f"{name} {of}" for name, of in DEMANDS.items()),
            f"each uses what it asks for, for {_WORK_S:g} s",
        ],
    )


def _place(policy: str, progress: Progress) -> _Placed:
    asked: dict[str, float] = defaultdict(float)
    slowest = 1.0

    def on_end(ended: Ended) -> None:
        nonlocal slowest
        (device,) = ended.devices
        asked[device] += DEMANDS[ended.job.name]
        slowest = max(slowest, (ended.finished_s - ended.placed_s) / _WORK_S)

    experiment = Experiment(
        nodes=equal_nodes(1, GPUS, FreeGpu("V100", 16 * GI)),
        workload=_Containers(),
        settings=Settings(start=StartTimes(native=0, existing=0, new=0)),
        owned=True,
    )
    run(experiment, policy, 0, on_end, progress)
    return _Placed([asked[f"n1/{number}"] for number in range(GPUS)], slowest)


def _over(asked: list[float]) -> int:
    return sum(each > 1.001 for each in asked)

"""The two worked examples of gpushare's design: filter and binpack."""

from collections.abc import Mapping, Sequence

from kubeshare.simulator.experiment import Progress
from kubeshare.simulator.figures.figure import CORE, Claim, Figure
from kubeshare.simulator.figures.scenarios import Placed, play

_GPU_MIB = 16276
_ASKED_MIB = 8138
_FILTER = {"N1": (0, 4069), "N2": (4069, 4069), "N3": (8138, 0)}
_BINPACK = {"N1": (12207, 8138, 4069, 16276)}
"""Node → MiB that are left on each of its GPUs."""


def examples(seeds: int, progress: Progress) -> Figure:
    """Where a request for half a GPU's memory goes."""
    del seeds, progress
    rows, claims = [], []
    for title, left, node, gpu, said in (
        (
            "filter",
            _FILTER,
            "N3",
            "0",
            "N1 has too little, N2 has it on two GPUs only: N3 is left",
        ),
        ("binpack", _BINPACK, "N1", "1", "GPU 1, which has the least left of those that fit"),
    ):
        placed = _place(left)
        there = f"{placed.node}, GPU {', '.join(placed.gpus)}"
        shown = "; ".join(f"{name} {', '.join(map(str, of))}" for name, of in left.items())
        rows.append((title, shown, f"{node}, GPU {gpu}", there))
        holds = (placed.node, placed.gpus) == (node, (gpu,))
        claims.append(Claim(paper=said, here=there, holds=holds))
    return Figure(
        name="gpushare",
        title=f"Where a pod that asks for {_ASKED_MIB} MiB goes",
        table=[("example", "MiB left", "design", "here"), *rows],
        claims=claims,
        ran=CORE,
    )


def _place(left: Mapping[str, Sequence[int]]) -> Placed:
    nodes = [
        {
            "name": name,
            "gpu": {"memory": _GPU_MIB},
            "gpus": len(of),
            "vgpus": [
                {"id": str(at), "holders": [{"name": f"{name}-{at}", "gpuMem": _GPU_MIB - free}]}
                for at, free in enumerate(of)
                if free < _GPU_MIB
            ],
        }
        for name, of in left.items()
    ]
    request = {"name": "pod", "gpuMem": _ASKED_MIB}
    return play({"policy": "binpack", "nodes": nodes, "events": [{"request": request}]})["pod"]

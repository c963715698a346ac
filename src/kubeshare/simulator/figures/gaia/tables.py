"""Gaia paper, figures 4, 5, tables I-IV: the GPUs chosen."""

from collections.abc import Mapping
from typing import Final

from kubeshare.simulator.experiment import Progress
from kubeshare.simulator.figures.figure import CORE, Claim, Figure
from kubeshare.simulator.figures.gaia.cases import CASES, FIGURES, Case
from kubeshare.simulator.figures.gaia.placement import RUNS, Frequencies, play

_SAID: Final = {
    "gaia-figure-4": "a request for two GPUs gets GPU 0 and 1, the nearest pair",
    "gaia-figure-5": "a request for one GPU gets GPU 5, whose sibling is in use, not 0 or 1",
}
_TITLES: Final = {
    "1": "Simple scheduling: 1 GPU, 2 GPUs",
    "2": "Fragment scheduling: 0.4 and 0.1 beside 0.5",
    "3": "Singular scheduling: 1 GPU beside one in use",
    "4": "Link scheduling: 2 GPUs beside one in use",
}
"""Of tables I to IV, which are the results of experiments 1 to 4."""


def figure(name: str) -> Figure:
    """Figure 4 or 5: one decision."""
    case = next(case for case in FIGURES if case.name == name)
    (counts,) = found = play(case, 1)
    (gpus,) = counts
    return Figure(
        name=name,
        title="The access-cost tree: which GPUs are chosen",
        table=[_HEAD, *_rows(case, found)],
        claims=[
            Claim(
                paper=_SAID[name], here=f"GPU {gpus}", holds=counts.keys() == case.paper[0].keys()
            )
        ],
        chosen=[f"the tree is {case.tree}, as far as the text says it"],
        ran=CORE,
    )


def table(number: str, progress: Progress) -> Figure:
    """Table I to IV, by the number of its experiment."""
    cases = [case for case in CASES if case.name.startswith(number) and case.paper]
    found: list[Frequencies] = []
    for case in cases:
        found.append(play(case, RUNS))
        progress(RUNS)
    rows = [row for case, of in zip(cases, found, strict=True) for row in _rows(case, of)]
    return Figure(
        name=f"gaia-table-{number}",
        title=f"{_TITLES[number]}, {RUNS} runs",
        table=[_HEAD, *rows],
        claims=[_claim(case, of) for case, of in zip(cases, found, strict=True)],
        chosen=[
            f"the node is {cases[0].tree}: the tree that agrees with all results of the paper",
            "GPUs are listed, and pods have come and gone before, in a random order",
        ],
        ran=CORE,
    )


def runs_of(number: str) -> int:
    """How many runs a table takes."""
    return RUNS * sum(case.name.startswith(number) and bool(case.paper) for case in CASES)


_HEAD: Final = ("case", "GPUs asked", "GPU: times in the paper", "here")


def _rows(case: Case, found: Frequencies) -> list[tuple[str, ...]]:
    return [
        (case.name, f"{cores / 100:g}", _shown(paper), _shown(counts))
        for cores, paper, counts in zip(case.requests, case.paper, found, strict=True)
    ]


def _shown(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{gpus}: {times}" for gpus, times in sorted(counts.items()))


def _claim(case: Case, found: Frequencies) -> Claim:
    return Claim(
        paper=f"{case.name}: always " + " and ".join(" or ".join(each) for each in case.paper),
        here=" and ".join(_shown(counts) for counts in found),
        holds=all(
            counts.keys() <= paper.keys() for counts, paper in zip(found, case.paper, strict=True)
        ),
        why=case.tie,
    )

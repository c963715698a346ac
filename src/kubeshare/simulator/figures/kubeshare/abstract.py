"""KubeShare paper: the claims of its abstract, with their figures."""

from collections.abc import Mapping
from typing import Final

from kubeshare.simulator.figures.figure import Claim, Figure

NEEDS: Final = ("table-1", "3", "6", "7", "8a", "9", "10", "13")

_SHOWN: Final = (
    ("the first solution that makes GPUs a first-class resource of Kubernetes", "table-1", 0),
    ("fine-grained allocation", "6", 2),
    ("locality-aware scheduling avoids resource fragmentation", "3", 1),
    ("locality constraints address performance interference", "13", 3),
    ("GPU utilisation increases significantly", "9", 0),
    ("overall system throughput around 2x", "8a", 2),
    ("less than 10 % overhead during container initialisation", "10", 1),
    ("less than 10 % overhead during execution", "7", 0),
)
"""Claim → the figure that shows it, and which of its claims."""


def abstract(figures: Mapping[str, Figure]) -> Figure:
    """The claims, by the figures of ``NEEDS``."""
    return Figure(
        name="claims",
        title="Claims of the abstract",
        table=[("claim", "shown by"), *((text, figures[name].heading) for text, name, _ in _SHOWN)],
        claims=[_claim(text, figures[name], at) for text, name, at in _SHOWN],
        ran="the figures named",
    )


def _claim(text: str, figure: Figure, at: int) -> Claim:
    shows = figure.claims[at]
    return Claim(
        paper=text,
        here=f"{figure.heading[0].lower()}{figure.heading[1:]}: {shows.here}{figure.measured}",
        holds=shows.holds,
        why=shows.why,
    )

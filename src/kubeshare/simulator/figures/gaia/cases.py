"""The cases of experiments 1 to 4 of the Gaia paper.

The paper draws its node; this is the tree that agrees with all of its results: four Tesla P4, the
pair 2 and 3 under a nearer switch than the pair 0 and 1. Two larger trees have no numbers in the
paper.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

P4: Final = "SOC(PXB(0,1),PIX(2,3))"
SIX: Final = "SOC(PHB(PIX(0,1),PIX(2,3)),PIX(4,5))"
FIGURE_4: Final = "SOC(PHB(PIX(0,1),PXB(2,3)),PXB(4,5))"
"""The tree of figures 4 and 5, as far as the paper's text says it."""

EIGHT: Final = "SOC(PHB(PIX(0,1),PIX(2,3)),PHB(PIX(4,5),PIX(6,7)))"
SIXTEEN: Final = (
    "SOC(PHB(PIX(0,1),PIX(2,3)),PHB(PIX(4,5),PIX(6,7)),"
    "PHB(PIX(8,9),PIX(10,11)),PHB(PIX(12,13),PIX(14,15)))"
)

BLOCKS: Final = 1
"""Blocks of memory of each share."""


class Case(Struct, frozen=True):
    """A case of an experiment.

    Attributes:
        name: the experiment and the request.
        tree: the GPUs of the node.
        requests: the cores of each request, in the order of the paper.
        before: GPU → cores that are in use at the start.
        paper: for each request, the GPUs and how often of 500 times the paper gives them; empty
            where it gives no numbers.
        shuffled: whether the requests arrive in any order.
        tie: why the frequencies differ from the paper's; ``""`` where they do not.
    """

    name: str
    tree: str
    requests: tuple[int, ...]
    before: Mapping[str, int]
    paper: tuple[Mapping[str, int], ...] = ()
    shuffled: bool = False
    tie: str = ""


CASES: Final = (
    Case(
        "1 Simple, 1 GPU (table I)",
        P4,
        (100,),
        {},
        ({"2": 227, "3": 273},),
        tie="2 and 3 are equally good: the paper's version draws one, here the first is taken",
    ),
    Case("1 Simple, 2 GPUs (table I)", P4, (200,), {}, ({"2,3": 500},)),
    Case(
        "2 Fragment, 0.4 and then 0.1 beside 0.5 (table II)",
        P4,
        (40, 10),
        {"2": 50},
        ({"2": 500}, {"2": 500}),
    ),
    Case(
        "2 Fragment, 0.4 and 0.1 in any order",
        P4,
        (40, 10),
        {"2": 50},
        ({"2": 500}, {"2": 500}),
        shuffled=True,
    ),
    Case("3 Singular, 1 GPU (table III)", P4, (100,), {"2": 100}, ({"3": 500},)),
    Case("4 Link, 2 GPUs (table IV)", P4, (200,), {"2": 100}, ({"0,1": 500},)),
    Case("six GPUs, 1 GPU", SIX, (100,), {}),
    Case("six GPUs, 2 GPUs", SIX, (200,), {}),
    Case("six GPUs, 1 GPU beside a busy one", SIX, (100,), {"0": 100}),
    Case("eight GPUs, 1 GPU", EIGHT, (100,), {}),
    Case("eight GPUs, 2 GPUs beside a shared one", EIGHT, (200,), {"3": 50}),
    Case("eight GPUs, 4 GPUs beside a busy one", EIGHT, (400,), {"0": 100}),
)

FIGURES: Final = (
    Case("gaia-figure-4", FIGURE_4, (200,), {}, ({"0,1": 1},)),
    Case("gaia-figure-5", FIGURE_4, (100,), {"4": 100}, ({"5": 1},)),
)
"""The examples of figures 4 and 5."""

SWEEP: Final = tuple(
    Case(f"a pair of {size} idle GPUs", tree, (200,), {})
    for size, tree in ((2, "PIX(0,1)"), (4, P4), (8, EIGHT), (16, SIXTEEN))
)
"""Nodes of growing size, for the time of a decision (experiment 5)."""

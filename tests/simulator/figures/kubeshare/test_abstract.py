"""The claims of the abstract: each has its figure, and fails with it."""

from kubeshare.simulator.figures.figure import Claim, Figure
from kubeshare.simulator.figures.kubeshare.abstract import NEEDS, abstract


def figures(*failing: str) -> dict[str, Figure]:
    return {
        name: Figure(
            name=name,
            title="",
            claims=[
                Claim(paper="", here=f"{name} {at}", holds=name not in failing) for at in range(5)
            ],
        )
        for name in NEEDS
    }


def test_each_claim_names_a_figure_and_all_that_are_needed_are_named() -> None:
    claims = abstract(figures())
    assert claims.holds
    named = {claim.here.partition(":")[2].split()[0] for claim in claims.claims}
    assert named == set(NEEDS)


def test_a_claim_fails_with_its_figure() -> None:
    failing = [claim.here for claim in abstract(figures("9")).claims if not claim.holds]
    assert failing == ["figure 9: 9 0"]

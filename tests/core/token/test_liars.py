"""Whatever a member says of its work, others keep their requests."""

import pytest

from core.token.liars import LIES, Liars, Lie
from core.token.simulation import GPU, MS, SECOND

HONEST = {"a": 0.5, "b": 0.3}
REQUEST = 0.2


@pytest.mark.slow
@pytest.mark.parametrize("first", LIES)
def test_no_order_of_lies_costs_honest_members_three_points_in_seventy_seconds(first: Lie) -> None:
    """Every pattern of one or two lies, from the first turn on."""
    for second in LIES:
        simulation = Liars()
        for name, request in HONEST.items():
            simulation.join(name, request, 1)
        simulation.run(5 * SECOND)
        simulation.lie("liar", REQUEST, 1, (first, second))

        shares = simulation.shares(70 * SECOND)

        for name, request in HONEST.items():
            assert shares[name] >= request - 0.03, (first, second, shares)


@pytest.mark.parametrize("lie", LIES)
def test_what_a_liar_holds_is_charged_and_is_its_request_in_the_long_run(lie: Lie) -> None:
    simulation = Liars()
    for name, request in HONEST.items():
        simulation.join(name, request, 1)
    simulation.lie("liar", REQUEST, 1, (lie,))

    shares = simulation.shares(200 * SECOND)

    charged = simulation.arbiter.views(simulation.now)[2].charged_ns / simulation.now
    worked = simulation.worked("liar") / simulation.now
    assert shares["liar"] <= REQUEST + 0.045
    assert charged >= worked - 0.05
    assert simulation.arbiter.tally("liar", GPU).grants > 1


@pytest.mark.parametrize("quota_ms", [5, 20, 100])
@pytest.mark.parametrize("request_share", [0.01, 0.02, 0.05, 0.2])
def test_short_grants_are_charged_though_their_holder_says_it_was_done_since_long(
    request_share: float, quota_ms: int
) -> None:
    simulation = Liars(quota_ns=quota_ms * MS)
    honest = {"a": 0.6, "b": 0.4 - request_share}
    for name, request in honest.items():
        simulation.join(name, request, 1, drain_ms=1)
    simulation.run(3 * SECOND)
    simulation.lie("liar", request_share, 1, ("says it is done since long",))

    shares = simulation.shares(20 * SECOND)

    for name, request in honest.items():
        assert shares[name] >= request - 0.035, shares

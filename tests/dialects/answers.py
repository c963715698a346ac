"""What a dialect answers: a demand, or a refusal."""

from collections.abc import Callable
from typing import Any

import pytest

from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError


def answers_of(
    demand_of: Callable[[dict[str, Any]], Demand | None],
) -> tuple[
    Callable[[dict[str, Any]], Demand],
    Callable[[dict[str, Any]], InvalidValueError],
]:
    """Two functions of a manifest: its demand, which it has; and how it is refused, which it is."""

    def the_demand(manifest: dict[str, Any]) -> Demand:
        demand = demand_of(manifest)
        assert demand is not None
        return demand

    def refusal(manifest: dict[str, Any]) -> InvalidValueError:
        with pytest.raises(InvalidValueError) as caught:
            demand_of(manifest)
        return caught.value

    return the_demand, refusal

"""Who would have to leave one GPU: by example."""

import pytest

from core.builders import a_demand, a_device, a_holder
from kubeshare.core.diagnosis.admit import fewest_that_admit

GPU = a_device(
    "A",
    a_holder("guard", "0.1", anti_affinity="g"),
    a_holder("small", "0.3"),
    a_holder("large", "0.6"),
)


@pytest.mark.parametrize(
    ("request_", "anti_affinity", "most", "leave"),
    [
        ("0.3", "", 3, ["small"]),
        ("0.4", "", 3, ["large"]),
        ("0.8", "", 3, ["large", "small"]),
        ("0.1", "g", 3, ["guard"]),
        ("0.4", "g", 3, ["guard", "small"]),
        ("0.4", "g", 2, ["guard", "small"]),
        ("0.4", "g", 1, None),
        ("0.1", "g", 0, None),
    ],
)
def test_who_repels_leaves_and_as_few_others_as_will_do(
    request_: str, anti_affinity: str, most: int, leave: list[str] | None
) -> None:
    demand = a_demand("p", request_, anti_affinity=anti_affinity)
    found = fewest_that_admit(GPU, demand, lambda _: True, most)
    assert (None if found is None else sorted(holder.name for holder in found)) == leave


def test_who_may_not_leave_and_repels_keeps_the_gpu() -> None:
    demand = a_demand("p", "0.4", anti_affinity="g")
    assert fewest_that_admit(GPU, demand, lambda holder: holder.name != "guard", 3) is None

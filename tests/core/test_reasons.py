"""The words of the rules that any policy may give as a reason."""

import pytest

from core.builders import GPU_MEMORY, a_demand, a_device, a_holder
from kubeshare.core import reasons
from kubeshare.core.ledger.device import FreeGpu


@pytest.mark.parametrize(
    ("present", "asked", "words"),
    [
        (["e"], "e", None),
        ([""], "", None),
        (["e"], "", "exclusion e, asked none"),
        ([""], "e", "exclusion none, asked e"),
        (["f", "e"], "e", "exclusion e, f, asked e"),
        (["", "e"], "f", "exclusion e, asked f"),
    ],
)
def test_exclusions_are_named(present: list[str], asked: str, words: str | None) -> None:
    holders = [
        a_holder(f"h{number}", "0.1", exclusion=label) for number, label in enumerate(present)
    ]
    device = a_device("A", *holders)
    assert reasons.exclusion(device, a_demand("p", exclusion=asked)) == words


def test_the_models_that_are_free_are_named() -> None:
    free = (FreeGpu("V100", GPU_MEMORY), FreeGpu("", GPU_MEMORY), FreeGpu("A100", GPU_MEMORY))
    demand = a_demand("p", model="M40")
    words = "no free GPU of model M40, only of A100, V100, unknown"
    assert reasons.no_free_gpu(free, demand) == words

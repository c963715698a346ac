"""Quantities of extended resources, as the API server writes them."""

import pytest

from kubeshare.api.types.core_v1 import resource_count


@pytest.mark.parametrize(
    ("quantity", "count"),
    [(8, 8), ("0", 0), ("16276", 16276), ("16k", 16000), ("2M", 2_000_000), ("3e3", 3000)],
)
def test_a_count_may_have_a_suffix(quantity: str | int, count: int) -> None:
    assert resource_count(quantity) == count


@pytest.mark.parametrize("quantity", ["", "-1", "500m", "many", "9e99"])
def test_what_is_no_count_is_0(quantity: str) -> None:
    assert resource_count(quantity) == 0

"""What ``tencent.com/vcuda-core`` and ``-memory`` ask for."""

import pytest

from kubeshare.core.errors import InvalidValueError
from kubeshare.core.units import MI, Memory
from kubeshare.dialects.vcuda import BLOCK, amounts

CORE = 10_000
"""Millionths of a GPU in a hundredth of one."""


def test_a_block_is_256_mib() -> None:
    assert BLOCK == 256 * MI


@pytest.mark.parametrize("cores", ["1", "50", "99", 75, "5e1"])
def test_less_than_a_hundred_cores_are_a_share_with_its_blocks(cores: object) -> None:
    asked = amounts(cores, "4")
    hundredths = round(float(str(cores)))
    assert asked["request_micros"] == hundredths * CORE
    assert asked["limit_micros"] == asked["request_micros"]
    assert asked["memory"] == Memory(bytes=1024 * MI)
    assert "count" not in asked


def test_without_blocks_a_share_has_the_same_share_of_the_memory() -> None:
    assert amounts("25", None)["memory"] == Memory(micros=250_000)


@pytest.mark.parametrize(("cores", "count"), [("100", 1), ("200", 2), ("800", 8)])
@pytest.mark.parametrize("blocks", [None, "0", "1", "1000000"])
def test_hundreds_are_whole_gpus_with_all_of_their_memory(
    cores: str, count: int, blocks: str | None
) -> None:
    assert amounts(cores, blocks) == {
        "request_micros": 1_000_000,
        "limit_micros": 1_000_000,
        "memory": Memory(micros=1_000_000),
        "count": count,
    }


@pytest.mark.parametrize(
    ("cores", "blocks", "field", "why"),
    [
        ("150", "4", "cores", "150 is more than one GPU and not a multiple of 100"),
        ("101", None, "cores", "101 is more than one GPU and not a multiple of 100"),
        ("0", "4", "cores", "asks for no share of a GPU"),
        (None, "4", "cores", "asks for no share of a GPU"),
        ("50", "0", "blocks", "a share of a GPU needs some of its memory"),
        ("50", str(2**60), "blocks", f"{2**60} blocks are past 2^63 - 1 bytes"),
    ],
)
def test_what_nobody_can_have_is_refused_by_its_name(
    cores: str | None, blocks: str | None, field: str, why: str
) -> None:
    with pytest.raises(InvalidValueError) as refused:
        amounts(cores, blocks, names=("cores", "blocks"))
    assert (refused.value.field, refused.value.message) == (field, why)


@pytest.mark.parametrize("cores", ["-1", "0.5", "half", "nan", "inf", True, 1.5])
def test_what_is_no_whole_number_is_refused(cores: object) -> None:
    with pytest.raises(InvalidValueError, match=r"^cores: "):
        amounts(cores, "4")

"""gpushare's amounts: memory in units, compute that follows it."""

import pytest

from kubeshare.core.errors import InvalidValueError
from kubeshare.core.units import GI, MI, Memory
from kubeshare.dialects.gpushare import amounts


def test_memory_is_units_on_each_gpu_and_compute_follows() -> None:
    assert amounts(8138, 2) == {
        "request_micros": 0,
        "limit_micros": 1_000_000,
        "memory": Memory(bytes=8138 * MI),
        "count": 2,
        "proportional": True,
    }
    assert amounts("3", unit=GI)["memory"] == Memory(bytes=3 * GI)


@pytest.mark.parametrize(("text", "units"), [("1k", 1000), ("2e3", 2000), ("1Ki", 1024), (7, 7)])
def test_any_spelling_of_a_quantity_is_its_integer(text: object, units: int) -> None:
    assert amounts(text)["memory"] == Memory(bytes=units * MI)


@pytest.mark.parametrize(
    ("memory", "count", "field", "words"),
    [
        (None, 1, "gpuMem", "asks for no GPU memory"),
        (0, 1, "gpuMem", "asks for no GPU memory"),
        (-1, 1, "gpuMem", "-1 is negative"),
        ("0.5", 1, "gpuMem", "0.5 is not a whole number"),
        ("500m", 1, "gpuMem", "500m is not a whole number"),
        ("lots", 1, "gpuMem", '"lots" is not a number'),
        (True, 1, "gpuMem", "True is not a number"),
        ("8E", 1, "gpuMem", "past the largest size"),
        (1, 0, "gpuCount", "0 is not a number of GPUs from 1 to 1024"),
        (1, 1025, "gpuCount", "1025 is not a number of GPUs from 1 to 1024"),
        (1, "1.5", "gpuCount", "1.5 is not a whole number"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_its_field(
    memory: object, count: object, field: str, words: str
) -> None:
    with pytest.raises(InvalidValueError) as caught:
        amounts(memory, count)
    assert caught.value.field == field
    assert words in caught.value.message


def test_the_names_are_those_of_the_manifest() -> None:
    with pytest.raises(InvalidValueError) as caught:
        amounts(0, names=("aliyun.com/gpu-mem", "aliyun.com/gpu-count"))
    assert caught.value.field == "aliyun.com/gpu-mem"

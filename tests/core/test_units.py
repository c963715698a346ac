"""Reading shares and amounts of memory, and writing them again."""

import contextlib
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeshare.core.errors import InvalidValueError
from kubeshare.core.units import (
    GI,
    KI,
    MAX_BYTES,
    MI,
    MICROS,
    Memory,
    format_memory,
    format_share,
    parse_amount,
    parse_count,
    parse_gpus,
    parse_memory,
    parse_share,
    parse_size,
)


def named(value: object) -> str:
    """The id of a case: the same in every process, also for functions."""
    return getattr(value, "__name__", repr(value))


@pytest.mark.parametrize(
    ("written", "micros"),
    [
        ("0.3", 300_000),
        (0.3, 300_000),
        ("300m", 300_000),
        (".5", 500_000),
        ("1.", MICROS),
        (1, MICROS),
        ("1.0", MICROS),
        ("0", 0),
        ("-0", 0),
        ("3e-1", 300_000),
        ("1000000u", MICROS),
        ("0.0000004", 1),
        ("0.3333335", 333_334),
        ("0.33333349", 333_333),
        (1e-07, 1),
    ],
    ids=repr,
)
def test_a_share_is_read_to_the_nearest_millionth_and_at_least_one(
    written: object, micros: int
) -> None:
    assert parse_share(written, "request") == micros


@pytest.mark.parametrize(
    ("written", "memory"),
    [
        ("0.5", Memory(micros=500_000)),
        (1, Memory(micros=MICROS)),
        ("1", Memory(micros=MICROS)),
        ("0", Memory(micros=0)),
        ("1.5", Memory(bytes=2)),
        (3145728000, Memory(bytes=3145728000)),
        ("3145728000", Memory(bytes=3145728000)),
        ("1Gi", Memory(bytes=GI)),
        ("1Ki", Memory(bytes=KI)),
        ("500M", Memory(bytes=500_000_000)),
        ("0.5Gi", Memory(bytes=GI // 2)),
        ("1e9", Memory(bytes=10**9)),
        ("1E", Memory(bytes=10**18)),
        ("0Gi", Memory(bytes=0)),
        ("1000m", Memory(bytes=1)),
        (str(MAX_BYTES), Memory(bytes=MAX_BYTES)),
    ],
    ids=repr,
)
def test_memory_is_a_share_up_to_one_and_bytes_above_or_with_a_suffix(
    written: object, memory: Memory
) -> None:
    assert parse_memory(written, "memory") == memory


@pytest.mark.parametrize(
    ("written", "size"),
    [(16384, 16 * GI), ("16384", 16 * GI), ("16Gi", 16 * GI), (1, MI)],
    ids=repr,
)
def test_the_size_of_a_gpu_is_a_quantity_or_a_plain_number_of_mib(
    written: object, size: int
) -> None:
    assert parse_size(written, "memory") == size


Parse: TypeAlias = Callable[[object, str], object]
NOT_NUMBERS: list[object] = [
    *("", " 0.5", "0.5 ", "0.5\n", "50%", "half", "NaN", "nan", ".nan", "inf", "-Infinity", "0x1"),
    *("1_000", "0,5", "1GiB", "1gi", "1e", "1e1000", "٣", "1 Gi", "--1", "." * 9, "9" * 65),
    *(float("nan"), float("inf"), True, None, [], {}, b"1"),
]


@pytest.mark.parametrize("written", NOT_NUMBERS, ids=repr)
@pytest.mark.parametrize("parse", [parse_share, parse_memory, parse_size])
def test_what_is_not_a_number_is_refused_by_the_field_s_name(parse: Parse, written: object) -> None:
    with pytest.raises(InvalidValueError) as caught:
        parse(written, "kubeshare/gpu_mem")
    assert caught.value.field == "kubeshare/gpu_mem"
    assert "is not a number" in caught.value.message
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("written", [-1, "-0.1", "-1e-3", -0.5, "-1Gi"], ids=repr)
@pytest.mark.parametrize("parse", [parse_share, parse_memory, parse_size])
def test_what_is_negative_is_refused(parse: Parse, written: object) -> None:
    with pytest.raises(InvalidValueError, match="negative"):
        parse(written, "request")


def test_more_than_a_whole_gpu_is_refused() -> None:
    with pytest.raises(InvalidValueError, match=r"limit: 1\.000001 is more than 1, a whole GPU"):
        parse_share("1.000001", "limit")


@pytest.mark.parametrize("parse", [parse_memory, parse_size])
@pytest.mark.parametrize("written", [2**63, "9223372036854775808", "8Ei", "1e999"], ids=repr)
def test_memory_past_the_largest_number_of_bytes_is_refused(parse: Parse, written: object) -> None:
    with pytest.raises(InvalidValueError) as caught:
        parse(written, "size")
    assert str(caught.value) == f"size: {written} is past the largest size, 2^63 - 1 bytes"


@pytest.mark.parametrize("parse", [parse_memory, parse_size])
def test_less_than_a_byte_is_refused_instead_of_rounded(parse: Parse) -> None:
    with pytest.raises(InvalidValueError, match=r"^size: 500m is less than one byte$"):
        parse("500m", "size")


def test_a_gpu_without_memory_is_refused() -> None:
    with pytest.raises(InvalidValueError, match=r"^size: a GPU has some memory; 0 is none$"):
        parse_size("0", "size")


@pytest.mark.parametrize(
    ("parse", "written", "words"),
    [
        (parse_gpus, "9223372036855", "9223372036855 GPUs are more than can be counted"),
        (parse_gpus, "-1", "-1 is negative"),
        (parse_count, "0.5", "0.5 is not a whole number"),
        (parse_count, 2**63, f"{2**63} is past the largest number, 2^63 - 1"),
        (parse_count, "-1", "-1 is negative"),
        (parse_amount, "-250m", "-250m is negative"),
        (parse_share, "9" * 65, '"' + "9" * 64 + '…" is not a number such as 0.5 or a quantity'),
        (parse_share, "x" * 64, '"' + "x" * 64 + '" is not a number such as 0.5 or a quantity'),
        (parse_share, True, "True is not a number"),
    ],
    ids=named,
)
def test_what_is_refused_is_refused_by_field_and_value(
    parse: Parse, written: object, words: str
) -> None:
    with pytest.raises(InvalidValueError) as caught:
        parse(written, "field")
    assert str(caught.value) == f"field: {words}"


@pytest.mark.parametrize(
    ("parse", "written", "number"),
    [
        (parse_gpus, "9223372036854.775807", MAX_BYTES),
        (parse_gpus, "0.5", MICROS // 2),
        (parse_count, str(MAX_BYTES), MAX_BYTES),
        (parse_count, "1k", 1000),
        (parse_amount, "250m", Fraction(1, 4)),
        (parse_amount, "4Gi", 4 * GI),
        (parse_share, "0." + "3" * 62, 333_333),
    ],
    ids=named,
)
def test_the_largest_and_longest_that_may_be_is_read(
    parse: Parse, written: object, number: int | Fraction
) -> None:
    assert parse(written, "field") == number


@pytest.mark.parametrize("fields", [{}, {"bytes": 1, "micros": 1}])
def test_memory_is_either_bytes_or_a_share(fields: dict[str, int]) -> None:
    with pytest.raises(
        ValueError, match=r"^memory is either bytes or micros, exactly one of them$"
    ):
        Memory(**fields)


def test_a_share_of_memory_is_rounded_down_so_that_six_sixths_fit() -> None:
    sixth = Memory(micros=MICROS // 6)
    for total in (MI, MI + 1, 16 * GI - 1):
        assert 6 * sixth.on(total) <= total
    assert Memory(bytes=7).on(MI) == 7


@settings(deadline=None)
@given(st.integers(0, MICROS))
def test_every_share_is_read_back_as_it_is_written(micros: int) -> None:
    assert parse_share(format_share(micros), "share") == micros


@settings(deadline=None)
@given(st.decimals(0, 1, allow_nan=False, allow_infinity=False, places=9))
def test_a_share_is_never_off_by_more_than_half_a_millionth(value: Decimal) -> None:
    micros = parse_share(f"{value:f}", "share")
    error = abs(Fraction(micros, MICROS) - Fraction(value))
    assert error <= Fraction(1, 2 * MICROS) or (micros == 1 and value > 0)


@settings(deadline=None)
@given(st.text(max_size=80) | st.integers() | st.floats())
def test_no_value_does_anything_but_parse_or_be_refused(value: object) -> None:
    for parse in (parse_share, parse_memory, parse_size):
        with contextlib.suppress(InvalidValueError):
            assert isinstance(parse(value, "field"), int | Memory)


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0"),
        (17, "17"),
        (1023, "1023"),
        (KI, "1Ki"),
        (10 * MI, "10Mi"),
        (GI + GI // 2, "1.5Gi"),
        (16 * GI, "16Gi"),
        (100 * GI, "100Gi"),
        (10307921510, "9.6Gi"),
    ],
)
def test_memory_is_written_as_a_quantity_of_two_decimals(amount: int, text: str) -> None:
    assert format_memory(amount) == text


@pytest.mark.parametrize(
    ("micros", "text"), [(0, "0"), (1, "0.000001"), (500_000, "0.5"), (MICROS, "1")]
)
def test_a_share_is_written_without_trailing_zeros(micros: int, text: str) -> None:
    assert format_share(micros) == text

"""Lists of CPUs in the kernel's format."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshare.core.errors import InvalidValueError
from kubeshare.core.topology.cpus import format_cpu_list, read_cpu_list


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("", set()), (" \n", set()), ("3", {3}), ("0-2, 7", {0, 1, 2, 7}), ("65535", {65535})],
)
def test_a_list_of_cpus_is_read(text: str, cpus: set[int]) -> None:
    assert read_cpu_list(text, "cpus") == cpus


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a", '"a" is not a CPU such as 3, or several as 0-13'),
        ("1-", '"1-" is not a CPU such as 3, or several as 0-13'),
        ("1,,2", '"" is not a CPU such as 3, or several as 0-13'),
        ("-1", '"-1" is not a CPU such as 3, or several as 0-13'),
        ("0, 3-1", '" 3-1" is not within 0-65535'),
        ("65536", '"65536" is not within 0-65535'),
        ("1" + " " * 65_536, "is longer than 65536 characters"),
    ],
)
def test_what_is_no_list_of_cpus_is_refused_by_name(text: str, words: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        read_cpu_list(text, "cpus")
    assert str(caught.value) == f"cpus: {words}"


def test_a_list_of_cpus_may_be_as_long_as_the_bound() -> None:
    assert read_cpu_list("1" + " " * 65_535, "cpus") == {1}


@pytest.mark.parametrize(
    ("cpus", "text"),
    [(set(), ""), ({3}, "3"), ({1, 0}, "0-1"), ({28, 0, 1, 2, 7, 29}, "0-2,7,28-29")],
)
def test_a_set_of_cpus_is_written_in_the_shortest_form(cpus: set[int], text: str) -> None:
    assert format_cpu_list(cpus) == text


@given(st.frozensets(st.integers(0, 300)))
def test_what_is_written_is_read_again(cpus: frozenset[int]) -> None:
    assert read_cpu_list(format_cpu_list(cpus), "cpus") == cpus

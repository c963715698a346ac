"""Names sort naturally: numbers as numbers, equal names only with themselves."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from kubeshare.core.natural_sort import natural


def test_ids_sort_naturally() -> None:
    ids = ["n10", "n2", "b", "10", "2", "02", "n", "a1b", "a01b", ""]
    expected = ["", "02", "2", "10", "a01b", "a1b", "b", "n", "n2", "n10"]
    assert sorted(ids, key=natural) == expected


def by_runs(text: str) -> list[tuple[bool, int, str]]:
    """The same order as a list of runs."""
    runs = re.findall("[0-9]+|[^0-9]+", text)
    return [
        (run[0] not in "0123456789", int(run) if run[0] in "0123456789" else 0, run) for run in runs
    ]


@settings(deadline=None)
@given(*[st.text(st.sampled_from("019aZ-\0\1\2\x7fé²٣"), max_size=6)] * 2)
def test_ids_sort_as_their_runs_do(one: str, other: str) -> None:
    assert (natural(one) < natural(other)) == (by_runs(one) < by_runs(other))
    assert (natural(one) == natural(other)) == (one == other)


@settings(deadline=None)
@given(st.integers(0, 300), st.integers(0, 300))
def test_long_numbers_sort_by_their_length(one: int, other: int) -> None:
    shorter, longer = sorted((one, other))
    assert natural("x" + "9" * shorter) < natural("x1" + "0" * longer)


def test_very_long_numbers_sort_too() -> None:
    assert natural("x" + "9" * 9999) < natural("x1" + "0" * 9999)


def test_numbers_sort_by_their_length_however_long() -> None:
    texts = ["1" + "0" * zeros for zeros in range(400)]
    listed = texts[::-1]
    assert sorted(listed, key=natural) == texts


def test_what_keeps_numbers_apart_sorts_by_itself_too() -> None:
    texts = ["\0", "\0\0", "\1", "\1\0", "\1\2", "\2", " ", "a"]
    listed = texts[::-1]
    assert sorted(listed, key=natural) == texts

"""GPUIDs and the names of their objects."""

from itertools import islice

import pytest

from kubeshare.core import gpuid


@pytest.mark.parametrize("text", ["gpu0", "A", 'GPU 0, "é" / #1', " ", "x" * 63, "é" * 63])
def test_printable_text_is_a_gpuid(text: str) -> None:
    assert gpuid.is_valid(text)


@pytest.mark.parametrize("text", ["", "x" * 64, "a\n", "a\tb", "\x1b[0m", "\u202e", "\u00a0"])
def test_other_text_is_none(text: str) -> None:
    assert not gpuid.is_valid(text)


def test_the_name_is_the_gpuid_where_it_is_valid_and_free() -> None:
    assert gpuid.object_name("n1", "gpu0", ()) == "gpu0"
    taken = gpuid.object_name("n1", "gpu0", {"gpu0"})
    assert taken == gpuid.hashed_name("n1", "gpu0") != gpuid.hashed_name("n2", "gpu0")
    for text in ("A", "a b", "x" * 51, "-a"):
        assert gpuid.object_name("n1", text, ()) == gpuid.hashed_name("n1", text)


def test_names_made_here_are_valid_differ_and_have_the_reserved_prefix() -> None:
    first, second = islice(gpuid.generated("uid", 0, ()), 2)
    hashed = gpuid.hashed_name("n1", "A")
    assert len({first, second, hashed}) == 3
    for name in (first, second, hashed):
        assert name.startswith(gpuid.RESERVED_PREFIX)
        assert gpuid.object_name("n1", name, ()) == name
    assert next(gpuid.generated("uid", 0, {first})) == second

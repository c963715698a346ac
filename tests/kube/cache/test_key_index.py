"""The index of keys, against a dictionary of dictionaries, and what it takes."""

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from kubeshare.kube.cache.key_index import FEW, KeyIndex
from kubeshare.kube.meta import Key

KEYS = st.builds(Key, st.just("ns"), st.sampled_from([str(number) for number in range(FEW + 3)]))
CHANGES = st.tuples(st.booleans(), KEYS, st.lists(st.sampled_from("abc"), max_size=2))


@given(st.lists(CHANGES, max_size=60))
def test_it_lists_what_was_added_and_not_removed_in_order(
    changes: list[tuple[bool, Key, list[str]]],
) -> None:
    index, expected = KeyIndex(), defaultdict[str, dict[Key, None]](dict)
    for adds, key, values in changes:
        if adds:
            index.add(key, values)
        else:
            index.remove(key, values)
        for value in values:
            if adds:
                expected[value][key] = None
            else:
                expected[value].pop(key, None)
        for value in "abc":
            assert index.keys(value) == tuple(expected[value])
        assert sorted(index.values()) == sorted(value for value in "abc" if expected[value])


def test_it_passes_from_few_keys_to_many_and_back() -> None:
    index, keys = KeyIndex(), [Key("ns", str(number)) for number in range(3 * FEW)]
    for count, key in enumerate(keys, 1):
        index.add(key, ["v"])
        assert index.keys("v") == tuple(keys[:count])
    for count, key in enumerate(keys, 1):
        index.remove(key, ["v"])
        assert index.keys("v") == tuple(keys[count:])
    assert index.values() == ()


def test_a_single_key_takes_no_object_of_its_own() -> None:
    index, key = KeyIndex(), Key("ns", "a")
    index.add(key, ["uid"])
    assert index._found["uid"] is key

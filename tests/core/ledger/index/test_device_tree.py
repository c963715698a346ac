"""The tree of devices against a sorted list, and what it remembers of labels."""

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.builders import a_device, a_holder
from kubeshare.core.ledger.device import Device
from kubeshare.core.ledger.index import device_tree as tree_module
from kubeshare.core.ledger.index.device_tree import DeviceTree, Entry, _TreeNode
from robustness.prove.engine import narrow_trees

LABELS = ("", "g", "h")
MOST_NUMBER = 6
MOST_MEMORY = 4


@pytest.fixture(autouse=True, scope="module")
def narrow() -> Iterator[None]:
    with narrow_trees():
        yield


def an_entry(name: int, number: int, memory: int, label: str) -> Entry:
    holder = a_holder("q", "0.1", anti_affinity=label)
    device = a_device(str(name), holder, node=f"n{name % 3}")
    return number, device.order, memory, device


def first_of(
    entries: list[Entry], number: int, memory: int, without: str, nodes: frozenset[str] | None
) -> Device | None:
    """The answer of a scan of all devices."""
    for entry in sorted(entries, key=lambda entry: entry[:2]):
        device = entry[3]
        if (
            entry[0] >= number
            and entry[2] >= memory
            and (not without or without not in device.anti_affinities)
            and (nodes is None or device.node in nodes)
        ):
            return device
    return None


def assert_exact(part: _TreeNode, width: int = 3) -> None:
    """What each part says of itself and of those below is true and no more than true."""
    assert part.most == max(part.amounts, default=-1)
    assert len(part.items) <= width
    for at, item in enumerate(part.items):
        if part.leaf:
            assert part.orders[at] == item.order
        else:
            assert item.items
            assert part.numbers[at] == item.numbers[-1]
            assert part.orders[at] == item.orders[-1]
            assert part.amounts[at] == item.most
            assert_exact(item, width)


def agrees(tree: DeviceTree, entries: list[Entry], source: random.Random) -> bool:
    number, memory = source.randint(0, MOST_NUMBER), source.randint(0, MOST_MEMORY + 1)
    without = source.choice(LABELS)
    nodes = source.choice((None, None, frozenset(["n0"]), frozenset(["n1", "n2"])))
    found = tree.first(number, memory, without=without, nodes=nodes)
    return found == first_of(entries, number, memory, without, nodes)


numbers = st.integers(0, MOST_NUMBER)
memories = st.integers(0, MOST_MEMORY)
drawn = st.lists(st.tuples(numbers, memories, st.sampled_from(LABELS)), max_size=40)


@settings(max_examples=150, deadline=None)
@given(drawn, st.integers(0, 40), st.randoms(use_true_random=False))
def test_it_finds_what_a_search_of_everything_finds(
    rows: list[tuple[int, int, str]], loaded: int, source: random.Random
) -> None:
    entries = [an_entry(name, *row) for name, row in enumerate(rows)]
    present = entries[:loaded]
    tree = DeviceTree(present)
    for entry in entries[loaded:]:
        tree.add(entry)
        present = [*present, entry]
        assert agrees(tree, present, source)
    source.shuffle(present)
    while present:
        number, order, _, _ = present.pop()
        assert tree
        tree.remove(number, order)
        assert agrees(tree, present, source)
        assert agrees(tree, present, source)
    assert not tree
    assert tree._root.leaf


def test_it_stays_right_however_often_entries_come_and_go() -> None:
    source = random.Random(7)
    spare = [
        an_entry(
            name,
            source.randint(0, MOST_NUMBER),
            source.randint(0, MOST_MEMORY),
            source.choice(LABELS),
        )
        for name in range(60)
    ]
    tree = DeviceTree()
    present: list[Entry] = []
    for _ in range(4000):
        source.shuffle(spare)
        if spare and source.random() < 0.5:
            present.append(spare.pop())
            tree.add(present[-1])
        elif present:
            entry = present.pop(source.randrange(len(present)))
            tree.remove(*entry[:2])
            spare.append(entry)
        assert agrees(tree, present, source)
        assert_exact(tree._root)


def test_what_is_loaded_at_once_leaves_room_for_more() -> None:
    tree = DeviceTree([an_entry(name, name, 1, "") for name in range(4)])
    assert [len(leaf.items) for leaf in tree._root.items] == [2, 2]


def test_equal_numbers_come_in_the_order_of_their_ids() -> None:
    entries = [an_entry(name, 5, 1, "") for name in range(30)]
    tree = DeviceTree()
    for entry in entries[::-1]:
        tree.add(entry)
    for entry in entries:
        assert tree.first(0, 0) == entry[3]
        tree.remove(*entry[:2])


def test_a_search_in_vain_is_remembered_until_somebody_without_the_label_comes() -> None:
    tree = DeviceTree([an_entry(name, name, 1, "g") for name in range(30)])
    assert tree._root.bounds == {"g": -1}
    assert tree.first(0, 1, without="g") is None
    tree.add(an_entry(30, 4, 0, ""))
    assert tree._root.bounds == {"g": 0}
    assert tree.first(0, 1, without="g") is None
    assert tree.first(0, 0, without="g") == an_entry(30, 4, 0, "")[3]
    tree.add(an_entry(31, 5, 1, "h"))
    assert tree.first(0, 1, without="g") == an_entry(31, 5, 1, "h")[3]


def test_what_is_remembered_of_the_whole_is_remembered_of_its_halves() -> None:
    tree = DeviceTree()
    for number in range(3):
        tree.add(an_entry(number, number, 4, "g"))
    assert tree.first(0, 3, without="g") is None
    tree.add(an_entry(3, 3, 4, "g"))
    assert [half.bounds for half in tree._root.items] == [{"g": 2}, {"g": 2}]


def test_only_a_few_labels_are_remembered() -> None:
    tree = DeviceTree([an_entry(1, 1, 1, "g")])
    for number in range(100):
        assert tree.first(0, 2, without=f"label {number}") is None
        assert len(tree._root.bounds) <= 3
    assert tree.first(0, 1, without="g") is None
    assert tree.first(0, 1, without="h") is not None


def test_a_tree_that_was_emptied_fills_again() -> None:
    tree = DeviceTree()
    for _ in range(2):
        entry = an_entry(1, 1, 0, "")
        tree.add(entry)
        assert_exact(tree._root)
        tree.remove(*entry[:2])
        assert_exact(tree._root)


@pytest.mark.parametrize("width", [5, 8])
def test_wider_branches_are_exact_too(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_module, "WIDTH", width)
    source = random.Random(9)
    tree = DeviceTree()
    present: list[Entry] = []
    for name in range(150):
        present.append(an_entry(name, source.randint(0, 40), source.randint(0, 4), ""))
        tree.add(present[-1])
        assert_exact(tree._root, width)
        assert agrees(tree, present, source)

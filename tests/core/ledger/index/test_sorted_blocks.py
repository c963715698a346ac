"""A sorted collection in blocks, against a list that is sorted anew each time."""

import random

import pytest

from kubeshare.core.ledger.index import sorted_blocks
from kubeshare.core.ledger.index.sorted_blocks import SortedBlocks


@pytest.mark.parametrize("block", [1, 2, 3, 256])
def test_it_is_as_a_list_that_is_sorted_each_time(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorted_blocks, "BLOCK", block)
    source = random.Random(block)
    for _ in range(40):
        entries = {(source.randint(0, 30), f"{number}") for number in range(source.randint(0, 20))}
        blocks = SortedBlocks(source.sample(sorted(entries), len(entries)))
        for number in range(100):
            if entries and source.random() < 0.5:
                leaver = source.choice(sorted(entries))
                entries.discard(leaver)
                blocks.remove(leaver)
            else:
                comer = (source.randint(0, 30), f"new {number}")
                entries.add(comer)
                blocks.add(comer)
            assert list(blocks.since((-1, ""))) == sorted(entries)
            place = (source.randint(0, 31), source.choice(["", "5", "z"]))
            assert list(blocks.since(place)) == [each for each in sorted(entries) if each >= place]
            assert bool(blocks) == bool(entries)


def test_no_block_grows_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_blocks, "BLOCK", 4)
    blocks = SortedBlocks[tuple[int, str]]()
    for number in range(1000):
        blocks.add((number, ""))
    assert max(len(block) for block in blocks._blocks) <= 8
    assert blocks._last == [block[-1] for block in blocks._blocks]

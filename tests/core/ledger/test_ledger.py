"""The ledger by example: whole operations, refusals that change nothing, what-ifs."""

from collections.abc import Callable
from typing import Any

import pytest

from core.builders import GPU_MEMORY, a_demand, a_device, a_holder, a_node
from kubeshare.core.demand import Demand, Share
from kubeshare.core.errors import LedgerError
from kubeshare.core.ledger.device import FreeGpu
from kubeshare.core.ledger.holder import MAX_HOLDERS
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.units import MI

SHARES = Demand(uid="p", name="p", shares=(Share(name="a"), Share(name="b")))
BESIDE = Demand(
    uid="p",
    name="p",
    shares=tuple(
        Share(name=name, request_micros=600_000, containers=(name,)) for name in ("a", "b")
    ),
)


def a_ledger() -> Ledger:
    """n1 has one free GPU, A half held by q, an idle B, a failed C and a fenced D."""
    return Ledger(
        [a_node("n1", free=1)],
        [
            a_device("A", a_holder("q", "0.5", memory=400)),
            a_device("B"),
            a_device("C", healthy=False),
            a_device("D", fenced=True),
        ],
    )


def test_placing_takes_and_releasing_gives_back() -> None:
    ledger = a_ledger()
    ledger.place(a_demand("p", "0.5", memory=600, affinity="red"), "A")
    device = ledger.devices["A"]
    assert (device.compute_left, device.memory_left) == (0, 0)
    assert device.affinities == {"red"}
    assert ledger.held_by("p") == {"A"}
    assert ledger.release("p") == {"A"}
    assert ledger == a_ledger()
    assert ledger.held_by("p") == frozenset()


def test_several_gpus_are_placed_all_or_nothing() -> None:
    ledger = a_ledger()
    pair = a_demand("p", "0.5", count=2)
    ledger.place(pair, "A", "B")
    assert ledger.held_by("p") == {"A", "B"}
    assert ledger.release("p") == {"A", "B"}
    with pytest.raises(LedgerError, match="over-committed"):
        ledger.place(a_demand("p", "0.6", count=2), "B", "A")
    assert ledger == a_ledger()


REFUSALS: dict[str, tuple[Callable[[Ledger], object], str]] = {
    "more compute than is left": (
        lambda ledger: ledger.place(a_demand("p", "0.500001"), "A"),
        "vGPU A over-committed: compute 1.000001 of 1",
    ),
    "more memory than is left": (
        lambda ledger: ledger.place(a_demand("p", "0", memory=601), "A"),
        "vGPU A over-committed: memory 1001Mi of 1000Mi",
    ),
    "an unhealthy device": (
        lambda ledger: ledger.place(a_demand("p"), "C"),
        "vGPU C takes no holder: it is unhealthy or fenced",
    ),
    "a fenced device": (
        lambda ledger: ledger.place(a_demand("p"), "D"),
        "vGPU D takes no holder: it is unhealthy or fenced",
    ),
    "a device that is not there": (
        lambda ledger: ledger.place(a_demand("p"), "Z"),
        "no vGPU Z in the ledger",
    ),
    "fewer devices than asked": (
        lambda ledger: ledger.place(a_demand("p", count=2), "B"),
        "p asks for 2 different vGPUs",
    ),
    "one device twice": (
        lambda ledger: ledger.place(a_demand("p", "0.1", count=2), "B", "B"),
        "p asks for 2 different vGPUs",
    ),
    "fewer devices than shares": (
        lambda ledger: ledger.place(SHARES, "B"),
        "p asks for 2 shares of vGPUs",
    ),
    "two shares of one container on one device": (
        lambda ledger: ledger.place(SHARES, "B", "B"),
        "p: shares a and b cannot be on one vGPU, B",
    ),
    "the second of two shares on one device": (
        lambda ledger: ledger.place(BESIDE, "B", "B"),
        "vGPU B over-committed: compute 1.2 of 1",
    ),
    "a demand that holds already": (
        lambda ledger: ledger.place(a_demand("q", "0.1"), "B"),
        "q holds A",
    ),
    "less memory than nothing": (
        lambda ledger: ledger.place(a_demand("p", memory=-1), "B"),
        "p asks for less than nothing",
    ),
    "a release of nobody": (lambda ledger: ledger.release("nobody"), "demand nobody holds nothing"),
    "a node twice": (
        lambda ledger: ledger.add_node(a_node("n1")),
        "node n1 is in the ledger already",
    ),
    "a device twice": (
        lambda ledger: ledger.add_device(a_device("A")),
        "vGPU A is in the ledger already",
    ),
    "free GPUs of no node": (lambda ledger: ledger.set_free("n9", ()), "no node n9 in the ledger"),
    "a node that is not there": (
        lambda ledger: ledger.remove_node("n9"),
        "no node n9 in the ledger",
    ),
    "removing what is held": (lambda ledger: ledger.remove_device("A"), "vGPU A is held by q"),
    "removing what is not there": (
        lambda ledger: ledger.remove_device("Z"),
        "no vGPU Z in the ledger",
    ),
    "marking what is not there": (
        lambda ledger: ledger.mark("Z", healthy=False),
        "no vGPU Z in the ledger",
    ),
    "opening on no node": (
        lambda ledger: ledger.place(a_demand("p"), "N", new=[a_device("N", node="n9")]),
        "no node n9 in the ledger",
    ),
    "opening a GPU that is not free": (
        lambda ledger: ledger.place(a_demand("p"), "N", new=[a_device("N", model="A100")]),
        "node n1 has no free GPU of model 'A100' with 1000Mi",
    ),
    "opening an id that is taken": (
        lambda ledger: ledger.place(a_demand("p"), "B", new=[a_device("B")]),
        "vGPU B is in the ledger already",
    ),
    "opening an id twice": (
        lambda ledger: ledger.place(a_demand("p"), "N", new=[a_device("N"), a_device("N")]),
        "vGPU N is in the ledger already",
    ),
    "opening what is not asked for": (
        lambda ledger: ledger.place(a_demand("p"), "B", new=[a_device("N")]),
        "vGPU N would be opened for others",
    ),
    "opening for another holder too": (
        lambda ledger: ledger.place(
            a_demand("p", "0.1"), "N", new=[a_device("N", a_holder("x", "0.1"))]
        ),
        "vGPU N would be opened for others",
    ),
    "holders past compute": (
        lambda ledger: ledger.set_device(a_device("B", a_holder("x", "0.6"), a_holder("y", "0.6"))),
        "vGPU B over-committed: compute 1.2 of 1",
    ),
    "holders past memory": (
        lambda ledger: ledger.set_device(a_device("B", a_holder("x", "0", memory=1001))),
        "vGPU B over-committed: memory 1001Mi of 1000Mi",
    ),
    "one byte past memory": (
        lambda ledger: ledger.set_device(
            a_device("B", a_holder("x", "0", memory=1000), memory_bytes=GPU_MEMORY - 1)
        ),
        "vGPU B over-committed: memory 1048576000 of 1048575999",
    ),
    "the same holder twice": (
        lambda ledger: ledger.set_device(a_device("B", a_holder("x", "0.1"), a_holder("x", "0.1"))),
        "vGPU B has a demand twice among its holders",
    ),
    "a holder of less than nothing": (
        lambda ledger: ledger.set_device(a_device("B", a_holder("x", "0", memory=-1))),
        "vGPU B has a holder of less than nothing",
    ),
    "too many holders": (
        lambda ledger: ledger.set_device(
            a_device("B", *(a_holder(f"x{number}", "0") for number in range(MAX_HOLDERS + 1)))
        ),
        "vGPU B has 129 holders, more than 128",
    ),
}


@pytest.mark.parametrize(("attempt", "words"), REFUSALS.values(), ids=REFUSALS)
def test_what_is_refused_is_named_and_changes_nothing(
    attempt: Callable[[Ledger], object], words: str
) -> None:
    ledger = a_ledger()
    with pytest.raises(LedgerError) as caught:
        attempt(ledger)
    assert str(caught.value) == words
    assert ledger == a_ledger()
    assert ledger.held_by("p") == frozenset()


def test_opening_a_device_uses_up_a_free_gpu() -> None:
    ledger = a_ledger()
    ledger.place(a_demand("p"), "N", new=[a_device("N")])
    assert ledger.nodes["n1"].free == ()
    assert ledger.held_by("p") == {"N"}
    ledger.release("p")
    assert ledger.devices["N"].idle


def test_replacing_a_device_moves_its_holders() -> None:
    ledger = a_ledger()
    ledger.set_device(a_device("A", a_holder("r", "1")))
    assert ledger.held_by("q") == frozenset()
    assert ledger.held_by("r") == {"A"}


def test_nodes_come_and_go_whatever_their_devices_do() -> None:
    ledger = Ledger(devices=[a_device("A")])
    ledger.set_node(a_node("n1", free=1))
    ledger.set_free("n1", ())
    assert ledger.nodes["n1"] == a_node("n1")
    ledger.remove_node("n1")
    assert ledger == Ledger(devices=[a_device("A")])


def test_marks_are_kept_apart() -> None:
    ledger = a_ledger()
    ledger.mark("A", healthy=False)
    ledger.mark("A", fenced=True)
    assert (ledger.devices["A"].healthy, ledger.devices["A"].fenced) == (False, True)
    ledger.mark("A", healthy=True)
    assert (ledger.devices["A"].healthy, ledger.devices["A"].fenced) == (True, True)


def test_removed_devices_are_gone() -> None:
    ledger = a_ledger()
    ledger.remove_device("B")
    assert "B" not in ledger.devices


def test_nothing_of_a_what_if_outlasts_it() -> None:
    ledger = a_ledger()
    with ledger.what_if():
        ledger.release("q")
        ledger.place(a_demand("p", "1"), "A")
        with ledger.what_if():
            ledger.remove_device("B")
            ledger.remove_node("n1")
        assert "B" in ledger.devices
        assert ledger.held_by("p") == {"A"}
    assert ledger == a_ledger()
    assert ledger.held_by("q") == {"A"}


def test_no_notes_are_kept_of_what_is_done() -> None:
    ledger = a_ledger()
    with ledger.transaction():
        ledger.place(a_demand("p"), "B")
    with ledger.what_if():
        ledger.release("p")
    assert ledger._tables._undo_log == []
    assert ledger.held_by("p") == {"B"}


def test_sums_are_not_added_up_anew_for_each_holder() -> None:
    ledger = a_ledger()
    ledger.place(a_demand("p", memory=1), "A")
    assert ledger.devices["A"].__dict__.keys() >= {"order", "totals"}
    ledger.release("p")
    assert ledger.devices["A"].__dict__.keys() >= {"order", "totals"}


def test_a_group_of_changes_happens_whole_or_not_at_all() -> None:
    def open_and_fill(demand_share: str) -> None:
        with ledger.transaction():
            ledger.place(a_demand("p", demand_share), "N", new=[a_device("N")])
            ledger.place(a_demand("r", "0.5"), "N")

    ledger = a_ledger()
    with pytest.raises(LedgerError):
        open_and_fill("0.6")
    assert ledger == a_ledger()
    open_and_fill("0.5")
    assert ledger.devices["N"].compute_left == 0


def test_a_share_of_memory_is_fixed_in_bytes_where_it_is_placed() -> None:
    ledger = Ledger([a_node()], [a_device("A", memory_bytes=100), a_device("B", memory_bytes=11)])
    ledger.place(a_demand("p", "0", count=2, share_of_memory="0.166666"), "A", "B")
    assert ledger.devices["A"].holders[0].memory_bytes == 16
    assert ledger.devices["B"].holders[0].memory_bytes == 1


def test_the_listing_of_free_gpus_does_not_matter() -> None:
    small, large = FreeGpu("", 500 * MI), FreeGpu("", 900 * MI)
    one, other = Ledger([a_node("n1")]), Ledger([a_node("n1")])
    one.set_free("n1", (small, large))
    other.set_free("n1", (large, small))
    assert one == other


def test_the_listing_of_holders_does_not_matter() -> None:
    p, q = a_holder("p", "0.1"), a_holder("q", "0.2")
    assert Ledger(devices=[a_device("A", p, q)]) == Ledger(devices=[a_device("A", q, p)])


def test_a_ledger_equals_only_ledgers() -> None:
    assert Ledger() != {}


def test_all_that_hold_and_all_that_is_held_is_named() -> None:
    ledger = Ledger(devices=[a_device("A", a_holder("x", "0.1")), a_device("B")])
    ledger.place(a_demand("p", "0.2", count=2), "B", "A")
    with pytest.raises(LedgerError, match=r"vGPU A is held by p, x$"):
        ledger.remove_device("A")
    with pytest.raises(LedgerError, match=r"p holds A, B$"):
        ledger.place(a_demand("p", count=2), "A", "B")


def test_who_loses_one_of_its_gpus_keeps_the_other() -> None:
    ledger = a_ledger()
    ledger.place(a_demand("p", count=2), "A", "B")
    ledger.set_device(a_device("A"))
    assert ledger.held_by("p") == {"B"}
    assert ledger.held_by("q") == frozenset()


def test_what_comes_and_goes_leaves_the_marks_and_the_number_of_a_device() -> None:
    ledger = a_ledger()
    marks: dict[str, Any] = {"index": 3, "row": 5, "healthy": False, "fenced": True}
    ledger.set_device(a_device("A", a_holder("q"), **marks))
    ledger.release("q")
    assert ledger.devices["A"] == a_device("A", **marks)


def test_a_holder_has_all_that_its_demand_says() -> None:
    ledger = a_ledger()
    labels = {"affinity": "a", "anti_affinity": "b", "exclusion": "c"}
    ledger.place(
        a_demand("p", "0.2", memory=3, limit_micros=700_000, namespace="n", group="g", **labels),
        "B",
    )
    (holder,) = ledger.devices["B"].holders
    assert holder.limit_micros == 700_000
    assert holder == a_holder(
        "p", "0.2", memory=3, limit_micros=700_000, namespace="n", group="g", **labels
    )


def test_ledgers_differ_by_their_nodes_and_by_their_devices() -> None:
    assert Ledger([a_node()]) != Ledger([a_node()], [a_device("A")])
    assert Ledger([a_node()], [a_device("A")]) != Ledger(devices=[a_device("A")])


def test_several_are_released_as_one_by_one() -> None:
    def a_ledger() -> Ledger:
        devices = [a_device("A", a_holder("q", "0.1"), a_holder("r", "0.2")), a_device("B")]
        ledger = Ledger([a_node()], devices)
        ledger.place(a_demand("both", "0.3", count=2), "A", "B")
        return ledger

    at_once, before, expected = a_ledger(), a_ledger(), a_ledger()
    expected.release("q")
    expected.release("both")
    with at_once.what_if():
        at_once.release_all({"both", "q", "gone"})
        assert at_once == expected
        assert not at_once.holding({"both", "q"})
    assert at_once == before
    assert at_once.held_by("both") == {"A", "B"}

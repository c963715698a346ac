"""Gangs that ask to be near: under one switch, on one node, on few nodes."""

import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import combinations, islice, permutations, product
from pathlib import Path

import msgspec
import pytest

import samples
from core.builders import a_demand, a_device, a_holder, a_node
from core.clusters import POLICIES, Asker, Cluster
from core.gang.clusters import a_cluster, in_order, obeys, some_members
from kubeshare.core.decision import Decision, commit
from kubeshare.core.demand import Demand
from kubeshare.core.gang import (
    ORDERS,
    Gang,
    GangPlacement,
    Near,
    Nearness,
    near_to,
    place_gang,
    placements,
)
from kubeshare.core.gang.scopes import RANKED_NODES
from kubeshare.core.ledger.device import Device, FreeGpu, Node, SelectableGpu
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy, policy
from kubeshare.core.topology import Level, read_notation
from kubeshare.core.units import MI

pytestmark = pytest.mark.slow

LOCALITY = policy("locality")
NEAR: list[Near] = ["switch", "node", "nodes"]
HARD: list[Near] = ["switch", "node"]
TWO_PAIRS = read_notation("SYS(PIX(0,1),PIX(2,3))", "links")
KIND = FreeGpu("", 1000 * MI)


def alike(count: int, request: str = "1") -> list[Demand]:
    return [a_demand(f"m{number}", request) for number in range(count)]


def gpus(node: str, count: int, *taken: int) -> list[Device]:
    holders = [[a_holder(f"q{node}{at}", "1")] if at in taken else [] for at in range(count)]
    return [a_device(f"{node}/{at}", *holders[at], node=node, index=at) for at in range(count)]


def carry_out(ledger: Ledger, answer: GangPlacement) -> list[str]:
    for each in answer.placed:
        commit(ledger, each.demand, each.decision)
    return [each.demand.uid for each in answer.placed]


def nodes_of(answer: GangPlacement) -> set[str | None]:
    return {each.decision.node for each in answer.placed}


# What is asked for


def test_a_gang_on_one_node_leaves_the_node_that_the_policy_prefers() -> None:
    ledger = Ledger([a_node("n1", 1), a_node("n2", 3)])
    assert nodes_of(place_gang(LOCALITY, ledger, alike(3), 3)) == {"n1", "n2"}
    answer = place_gang(LOCALITY, ledger, alike(3), 3, Nearness(near="node"))
    assert nodes_of(answer) == {"n2"}
    assert len(carry_out(ledger, answer)) == 3


def test_of_two_nodes_that_would_do_it_is_the_one_that_the_policy_prefers() -> None:
    ledger = Ledger([a_node("n1", 4), a_node("n2", 3), a_node("n3", 5)])
    assert nodes_of(place_gang(LOCALITY, ledger, alike(3), 3, Nearness(near="node"))) == {"n2"}


def test_where_no_node_has_room_for_all_it_is_said_where_most_would_fit() -> None:
    ledger = Ledger([a_node("n1", 1), a_node("n2", 2)])
    gang = Gang(name="g", min_available=3, near="node")
    answer = place_gang(LOCALITY, ledger, alike(3), 3, gang.nearness(()))
    assert (answer.placed, answer.room_for) == ((), 2)
    assert gang.no_room(3, answer) == "room for 2 of the 3 members that it needs on one node"
    assert answer.unplaced is not None
    reasons = dict(answer.unplaced.reasons)
    assert (reasons["n2"], reasons["n1"]) == ("no free GPU", "room for 1")
    assert all(place.startswith("n2/") for place in reasons if place not in ("n1", "n2"))


def test_beyond_the_nodes_that_the_policy_ranks_all_others_are_tried() -> None:
    """The policy prefers the nodes with the fewest free GPUs: the only one with room is last."""
    nodes = [a_node(f"n{number}", 1) for number in range(RANKED_NODES + 4)]
    ledger = Ledger([*nodes, a_node("z", 2)])
    assert nodes_of(place_gang(LOCALITY, ledger, alike(2), 2, Nearness(near="node"))) == {"z"}


def test_where_fewer_are_needed_the_node_for_all_is_preferred_to_one_for_enough() -> None:
    ledger = Ledger([a_node("n1", 2), a_node("n2", 4)])
    near = Nearness(near="node")
    assert nodes_of(place_gang(LOCALITY, ledger, alike(4), 2, near)) == {"n2"}
    five = place_gang(LOCALITY, ledger, alike(5), 2, near)
    assert (nodes_of(five), five.room_for) == ({"n2"}, 4)


def test_under_one_switch_a_free_pair_is_taken_and_not_the_first_two_gpus() -> None:
    ledger = Ledger([Node("n1", links=TWO_PAIRS)], gpus("n1", 4, 0))
    answer = place_gang(LOCALITY, ledger, alike(2), 2, Nearness(near="switch"))
    assert [each.decision.devices for each in answer.placed] == [("n1/2",), ("n1/3",)]


def test_under_one_switch_the_message_names_the_gpus_of_that_switch_only() -> None:
    ledger = Ledger([Node("n1", links=TWO_PAIRS)], gpus("n1", 4, 0, 3))
    gang = Gang(name="g", min_available=2, near="switch")
    answer = place_gang(LOCALITY, ledger, alike(2), 2, gang.nearness(()))
    assert not answer.whole
    assert gang.no_room(2, answer) == "room for 1 of the 2 members that it needs under one switch"
    assert answer.unplaced is not None
    assert answer.unplaced.reasons == {
        "n1/0": "compute 0 left, 1 asked",
        "n1/1": "compute 0 left, 1 asked",
        "n1": "no free GPU",
    }


def test_gpus_that_can_be_selected_have_links_too() -> None:
    free = tuple(SelectableGpu(uuid=f"GPU-{row}", row=row, kind=KIND) for row in (1, 2, 3))
    ledger = Ledger([Node("n1", (KIND,) * 3, links=TWO_PAIRS, selectable=free)])
    answer = place_gang(LOCALITY, ledger, alike(2), 2, Nearness(near="switch"))
    assert [each.decision.new[0].uuid for each in answer.placed] == ["GPU-2", "GPU-3"]
    carry_out(ledger, answer)
    assert ledger.nodes["n1"].free == (KIND,)


def test_a_gpu_that_the_device_plugin_chooses_is_near_no_other() -> None:
    ledger = Ledger([Node("n1", (KIND,) * 4, links=TWO_PAIRS, total=4)])
    near = Nearness(near="switch")
    assert place_gang(LOCALITY, ledger, alike(2), 2, near).room_for == 1
    halves = place_gang(LOCALITY, ledger, alike(2, "0.5"), 2, near)
    assert [each.decision.created for each in halves.placed] == [True, False]
    assert place_gang(LOCALITY, ledger, alike(3, "0.5"), 3, near).room_for == 2


@pytest.mark.parametrize(("links", "total", "near"), [(2, 2, True), (2, 3, False), (0, 2, False)])
def test_all_gpus_of_a_node_with_one_switch_are_near(links: int, total: int, near: bool) -> None:
    matrix = tuple(tuple(Level.PIX * (a != b) for b in range(links)) for a in range(links))
    ledger = Ledger([Node("n1", (KIND,) * 2, links=matrix, total=total)])
    assert place_gang(LOCALITY, ledger, alike(2), 2, Nearness(near="switch")).whole == near


def test_few_nodes_of_one_domain_come_before_more_room_in_another() -> None:
    sizes = {"n1": (3, "a"), "n2": (1, "b"), "n3": (2, "b"), "n4": (1, "b"), "n5": (2, "b")}
    nodes = [
        msgspec.structs.replace(a_node(name, free), domain=domain)
        for name, (free, domain) in sizes.items()
    ]
    near = Nearness(near="nodes")
    four = place_gang(LOCALITY, Ledger(nodes), alike(4), 4, near)
    assert nodes_of(four) == {"n3", "n5"}
    assert nodes_of(place_gang(LOCALITY, Ledger(nodes), alike(3), 3, near)) == {"n1"}
    assert len(nodes_of(place_gang(LOCALITY, Ledger(nodes), alike(9), 9, near))) == 5
    assert place_gang(LOCALITY, Ledger(nodes), alike(10), 10, near).room_for == 9


# Members that come later


@pytest.mark.parametrize("near", HARD)
def test_a_later_member_goes_to_the_others_or_nowhere(near: Near) -> None:
    ledger = Ledger(
        [Node("n1", links=TWO_PAIRS), Node("n2", links=TWO_PAIRS)],
        [*gpus("n1", 4, 0, 2, 3), *gpus("n2", 4)],
    )
    ledger.place(a_demand("old", "0.5"), "n1/1")
    decide = near_to(LOCALITY, Nearness(near=near, mates=frozenset(["old"])))
    assert decide(ledger, a_demand("new", "0.5")).devices == ("n1/1",)
    refused = decide(ledger, a_demand("large", "0.6"))
    assert refused.outcome == "pending"
    assert refused.reasons["n1/1"] == "compute 0.5 left, 0.6 asked"
    assert "n2/0" not in refused.reasons


def test_a_later_member_waits_where_the_others_are_under_two_switches() -> None:
    ledger = Ledger([Node("n1", links=TWO_PAIRS)], gpus("n1", 4))
    ledger.place(a_demand("a", "0.5"), "n1/0")
    ledger.place(a_demand("b", "0.5"), "n1/2")
    near = Nearness(near="switch", mates=frozenset(["a", "b"]))
    assert near_to(LOCALITY, near)(ledger, a_demand("new", "0.5")).outcome == "pending"
    answer = place_gang(LOCALITY, ledger, alike(1, "0.5"), 1, near)
    assert not answer.placed
    assert answer.unplaced is not None
    assert answer.unplaced.outcome == "pending"


def test_a_later_member_of_few_nodes_goes_to_these_first_and_else_to_their_domain() -> None:
    names = {"n1": "b", "n2": "a", "n3": "b"}
    ledger = Ledger(
        [Node(name, links=TWO_PAIRS, domain=domain) for name, domain in names.items()],
        [*gpus("n1", 4), *gpus("n2", 4, 0, 1), *gpus("n3", 4, 0, 1, 2)],
    )
    ledger.place(a_demand("old", "0.5"), "n3/3")
    decide = near_to(LOCALITY, Nearness(near="nodes", mates=frozenset(["old"])))
    assert decide(ledger, a_demand("new", "0.5")).node == "n3"
    assert decide(ledger, a_demand("larger", "0.6")).node == "n1"
    assert decide(ledger, a_demand("many", "1", nodes=frozenset(["n2"]))).node == "n2"


def test_where_the_members_are_on_two_nodes_already_it_is_said() -> None:
    ledger = Ledger([a_node("n1"), a_node("n2", 3)], [a_device("A"), a_device("B", node="n2")])
    ledger.place(a_demand("a"), "A")
    ledger.place(a_demand("b"), "B")
    near = Nearness(near="node", mates=frozenset(["a", "b", "gone"]))
    answer = place_gang(LOCALITY, ledger, alike(1), 1, near)
    assert answer.unplaced is not None
    assert answer.unplaced.reasons == {"gang": "its members are on n1 and n2 already"}


# Against trying everything


def confined(ledger: Ledger, node: str, indexes: Sequence[int]) -> Ledger:
    """A cluster of some GPUs only, without what the code under test hides GPUs with."""
    kept = [each for each in ledger.devices.values() if each.node == node and each.index in indexes]
    return Ledger([ledger.nodes[node]], kept)


def places(ledger: Ledger, near: Near) -> Iterator[Ledger]:
    """Every set of GPUs of which all are as near as is asked, as a cluster of its own."""
    for name, node in ledger.nodes.items():
        every = range(len(node.links))
        if near == "node":
            yield confined(ledger, name, every)
            continue
        for size in range(1, len(every) + 1):
            for some in combinations(every, size):
                if all(node.links[a][b] <= Level.PXB for a, b in combinations(some, 2)):
                    yield confined(ledger, name, some)


def most_in_some_order(decide: Policy, ledger: Ledger, members: Sequence[Demand]) -> int:
    return max(in_order(decide, ledger, order).room_for for order in permutations(members))


def most_by_assignment(ledger: Ledger, members: Sequence[Demand]) -> int:
    """How many fit if each is put on any GPU or none, whatever a policy prefers."""
    best, devices = 0, list(ledger.devices.values())
    for choice in product([None, *devices], repeat=len(members)):
        left = {device.id: device.compute_left for device in devices}
        for demand, device in zip(members, choice, strict=True):
            if device is not None:
                left[device.id] -= demand.request_micros
        if min(left.values(), default=0) >= 0:
            best = max(best, sum(device is not None for device in choice))
    return best


@pytest.mark.parametrize("name", ["locality", "binpack", "topology"])
@pytest.mark.parametrize("near", HARD)
def test_a_gang_of_alike_members_is_placed_wherever_any_assignment_obeys(
    name: str, near: Near
) -> None:
    source, decide = random.Random(7), policy(name)
    seen = {True: 0, False: 0}
    for _ in range(60):
        ledger, members = a_cluster(source), some_members(source, 1, most=3)
        needed = source.randint(1, len(members))
        answer = place_gang(decide, ledger, members, needed, Nearness(near=near))
        best = max(most_by_assignment(each, members) for each in places(ledger, near))
        assert answer.whole == (best >= needed)
        assert len(answer.placed) == (best if answer.whole else 0)
        assert answer.whole or answer.room_for == best
        assert obeys(ledger, near, carry_out(ledger, answer))
        seen[answer.whole] += 1
    assert min(seen.values()) > 2


@pytest.mark.parametrize("name", ["locality", "binpack", "topology"])
@pytest.mark.parametrize("near", HARD)
def test_a_gang_of_different_members_is_placed_wherever_the_policy_has_an_order(
    name: str, near: Near
) -> None:
    """Up to its bounds: with four members there are fewer orders than are tried."""
    source, decide = random.Random(8), policy(name)
    seen = {True: 0, False: 0}
    for _ in range(40):
        ledger, members = a_cluster(source), some_members(source, 3)
        needed = source.randint(1, len(members))
        answer = place_gang(decide, ledger, members, needed, Nearness(near=near))
        best = max(most_in_some_order(decide, each, members) for each in places(ledger, near))
        assert answer.whole == (best >= needed), (members, needed)
        assert (len(answer.placed) or answer.room_for) <= best
        assert obeys(ledger, near, carry_out(ledger, answer))
        seen[answer.whole] += 1
    assert min(seen.values()) > 2


def fewest_nodes(ledger: Ledger, members: Sequence[Demand], wanted: int) -> tuple[int, int]:
    """The fewest domains, and nodes, on which so many alike members fit, of all sets of nodes."""
    rooms = {
        name: most_by_assignment(confined(ledger, name, range(4)), members) for name in ledger.nodes
    }
    return min(
        (len({ledger.nodes[name].domain for name in some}), len(some))
        for size in range(1, len(rooms) + 1)
        for some in combinations(rooms, size)
        if sum(rooms[name] for name in some) >= wanted
    )


def test_alike_members_on_few_nodes_use_the_fewest_domains_and_of_one_the_fewest_nodes() -> None:
    source = random.Random(2)
    sizes = set()
    for _ in range(60):
        ledger, members = a_cluster(source, 4), some_members(source, 1, most=4)
        anywhere = place_gang(LOCALITY, ledger, members, 1)
        answer = place_gang(LOCALITY, ledger, members, 1, Nearness(near="nodes"))
        assert len(answer.placed) == len(anywhere.placed)
        if len(answer.placed) == len(members):
            domains, nodes = fewest_nodes(ledger, members, len(members))
            used = nodes_of(answer)
            assert len({ledger.nodes[str(name)].domain for name in used}) == domains
            assert domains > 1 or len(used) == nodes
            sizes.add((domains, nodes))
    assert {(1, 1), (1, 2), (2, 2)} <= sizes


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "cluster", "demand"), POLICIES)
def test_labels_and_models_bind_inside_a_scope(name: str, cluster: Cluster, demand: Asker) -> None:
    """Whatever is placed can be recorded, and few nodes cost no gang its place."""
    source, decide = random.Random(4), policy(name)
    for _ in range(samples.count(whole=60, sample=20)):
        ledger = cluster(source)
        before = Ledger(ledger.nodes.values(), ledger.devices.values())
        members = [demand(source, number) for number in range(source.randint(1, 4))]
        needed = source.randint(1, len(members))
        plain = place_gang(decide, ledger, members, needed)
        for near in NEAR:
            answer = place_gang(decide, ledger, members, needed, Nearness(near=near))
            assert ledger == before, "what was tried is still there"
            assert answer == place_gang(decide, ledger, members, needed, Nearness(near=near)) or (
                not answer.whole
            )
            assert answer.whole <= plain.whole if near != "nodes" else answer.whole >= plain.whole
            with ledger.what_if():
                carry_out(ledger, answer)


# Without nearness


def as_before(
    decide: Policy, ledger: Ledger, members: Sequence[Demand], needed: int
) -> Iterator[GangPlacement]:
    """The placement of a gang as it was before there was nearness."""
    from kubeshare.core.gang.orders import _orders  # noqa: PLC0415

    best = GangPlacement(room_for=-1)
    for order in islice(_orders(members), ORDERS):
        placement = in_order(decide, ledger, order)
        best = placement if placement.room_for > best.room_for else best
        if best.room_for >= needed:
            yield best
            return
        yield msgspec.structs.replace(best, placed=())


@pytest.mark.parametrize(("name", "cluster", "demand"), POLICIES)
def test_a_gang_that_does_not_ask_is_placed_as_ever(
    name: str, cluster: Cluster, demand: Asker
) -> None:
    """The policy is asked the same, of the same ledger, in the same order."""
    source = random.Random(6)
    for _ in range(40):
        ledger = cluster(source)
        members = [demand(source, number) for number in range(source.randint(1, 4))]
        needed = source.randint(1, len(members))
        asked: list[tuple[Demand, list[object]]] = []

        def recording(ledger: Ledger, demand: Demand) -> Decision:
            asked.append((demand, [*ledger.nodes.values(), *ledger.devices.values()]))  # noqa: B023
            return policy(name)(ledger, demand)

        found = [bare(each) for each in placements(recording, ledger, members, needed)]
        now, asked = asked, []
        expected = [bare(each) for each in as_before(recording, ledger, members, needed)]
        assert (found, now) == (expected, asked)


def bare(placement: GangPlacement) -> object:
    """A placement without its reasons, which are computed anew each time."""
    decisions = [(each.demand, each.decision.devices) for each in placement.placed]
    return decisions, placement.room_for, placement.unplaced is None


def test_the_order_of_sets_of_names_decides_nothing() -> None:
    """Text hashes differently in each process."""
    program = (
        "from core.builders import a_demand, a_node\n"
        "from kubeshare.core.gang import Nearness, place_gang\n"
        "from kubeshare.core.ledger.ledger import Ledger\n"
        "from kubeshare.core.policies import policy\n"
        "ledger = Ledger([a_node(f'n{number}', 2) for number in range(40)])\n"
        "members = [a_demand(f'm{number}', '1') for number in range(7)]\n"
        "for near in ('node', 'nodes'):\n"
        "    answer = place_gang(policy('locality'), ledger, members, 7, Nearness(near=near))\n"
        "    print([each.decision.node for each in answer.placed], dict(answer.unplaced.reasons)\n"
        "          if answer.unplaced else '')\n"
    )
    folders = [str(Path(__file__).parents[2]), str(Path(__file__).parents[3] / "src")]
    answers = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(folders)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(answers) == 1

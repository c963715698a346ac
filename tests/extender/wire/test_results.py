"""Results have the keys, the order and the form that kube-scheduler expects."""

import json

import msgspec

from kubeshare.extender.wire.arguments import CandidateNodes, Victims
from kubeshare.extender.wire.results import (
    binding_result,
    filter_error,
    filter_result,
    preemption_result,
    priority_list,
)

NAMES = CandidateNodes(("n1", "n2"))


def test_names_are_answered_with_names() -> None:
    assert filter_result(NAMES, {"n2": "full"}) == (
        b'{"Nodes":null,"NodeNames":["n1"],"FailedNodes":{"n2":"full"},'
        b'"FailedAndUnresolvableNodes":null,"Error":""}'
    )


def test_if_no_node_is_left_the_list_is_empty_and_not_null() -> None:
    answer = json.loads(filter_result(NAMES, {"n1": "full", "n2": "full"}))
    assert answer["NodeNames"] == []


def test_nodes_are_answered_with_the_nodes_as_they_were_sent() -> None:
    objects = {
        name: msgspec.Raw(f'{{"metadata":{{"name":"{name}"}}, "x":1}}'.encode()) for name in "ab"
    }
    answer = filter_result(CandidateNodes(("a", "b"), objects), {"a": "full"})
    assert answer.startswith(b'{"Nodes":{"items":[{"metadata":{"name":"b"}, "x":1}],"metadata":{}}')
    assert json.loads(answer)["NodeNames"] is None


def test_an_error_names_no_node() -> None:
    assert filter_error("EOF") == (
        b'{"Nodes":null,"NodeNames":null,"FailedNodes":null,'
        b'"FailedAndUnresolvableNodes":null,"Error":"EOF"}'
    )


def test_the_result_of_a_binding() -> None:
    assert binding_result() == b'{"Error":""}'
    assert binding_result('pods "p" not found') == rb'{"Error":"pods \"p\" not found"}'


def scores(names: str, *groups: str) -> dict[str, int]:
    return {each["Host"]: each["Score"] for each in json.loads(priority_list(names, groups))}


def test_priorities_are_from_ten_to_zero() -> None:
    assert scores("abc", "a", "b", "c") == {"a": 10, "b": 5, "c": 0}
    assert scores("ab", "ab") == {"a": 10, "b": 10}
    assert scores("abc", "b") == {"a": 0, "b": 10, "c": 0}
    assert scores("ab") == {"a": 0, "b": 0}


def test_priorities_fall_from_the_best_of_many_nodes_to_the_worst() -> None:
    names = [chr(ord("A") + number) for number in range(50)]
    falling = list(scores("".join(names), *names).values())
    assert falling == sorted(falling, reverse=True)
    assert (falling[0], falling[-1]) == (10, 0)


def test_victims_are_answered_by_uid() -> None:
    assert preemption_result({"n1": Victims(("v", "w"), 1)}) == (
        b'{"NodeNameToMetaVictims":{"n1":{"Pods":[{"UID":"v"},{"UID":"w"}],"NumPDBViolations":1}}}'
    )

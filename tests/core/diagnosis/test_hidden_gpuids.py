"""The author of a demand reads no GPUID that another namespace chose."""

from typing import Any

import pytest

from core.builders import a_demand, a_device, a_holder, a_node
from kubeshare.core.diagnosis.explain import shortest_change
from kubeshare.core.diagnosis.hidden_gpuids import readable_paths, readable_reasons
from kubeshare.core.ledger.device import Device
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import policy

OF_OTHERS = a_holder("p", "0.9", namespace="other")
OWN = a_holder("q", "0.1", namespace="mine")


def reader(**asks: Any) -> Any:
    return a_demand("r", namespace="mine", **asks)


@pytest.mark.parametrize(
    ("device", "asks"),
    [
        (a_device("secret"), {}),
        (a_device("secret", OF_OTHERS, OWN), {}),
        (a_device("secret", OF_OTHERS), {"device_id": "secret"}),
        (a_device("vgpu-0123456789", OF_OTHERS), {}),
        (a_device("n1-0", OF_OTHERS, index=0), {}),
    ],
    ids=["idle", "of its own", "asked for", "generated", "numbered"],
)
def test_a_gpuid_that_its_reader_knows_or_nobody_chose_is_shown(
    device: Device, asks: dict[str, Any]
) -> None:
    assert readable_paths([device], reader(**asks)) == [device.path]


def test_gpus_that_others_named_are_counted_by_node() -> None:
    devices = [
        a_device("c", OF_OTHERS, node="n2"),
        a_device("b", OF_OTHERS),
        a_device("a", OF_OTHERS),
        a_device("vgpu-1", OF_OTHERS),
    ]
    assert readable_paths(devices, reader()) == [
        "n1/vgpu-1",
        "2 GPUs on n1 that other namespaces named",
        "a GPU on n2 that another namespace named",
    ]


def test_reasons_that_are_alike_are_counted_and_none_is_lost() -> None:
    ledger = Ledger([a_node("n1")], [a_device(name, OF_OTHERS) for name in "abc"])
    known = [("n1/a", "full"), ("n1/b", "full"), ("n1/c", "fenced"), ("n1", "no free GPU")]
    assert list(readable_reasons(known, ledger, reader())) == [
        ("2 GPUs on n1 that other namespaces named", "full", "n1", 2),
        ("a GPU on n1 that another namespace named", "fenced", "n1", 1),
        ("n1", "no free GPU", "n1", 1),
    ]


def test_the_label_of_a_mate_names_no_gpu_of_others() -> None:
    red = a_holder("p", "0.9", namespace="other", affinity="red")
    mates = [reader(affinity="red"), reader(affinity="blue")]
    ledger = Ledger([a_node("n1")], [a_device("secret", red)])
    # The only blue one was placed while the gang was decided.
    known = [("n1", "affinity red is on n1/secret"), ("n2", "affinity blue is on n1/vgpu-1")]
    shown = readable_reasons(known, ledger, reader(), mates)
    assert [reason.why for reason in shown] == [
        "affinity red is on a GPU on n1 that another namespace named",
        "affinity blue is on other GPUs",
    ]


@pytest.mark.parametrize("name", ["locality", "binpack", "topology"])
@pytest.mark.parametrize(
    "asks",
    [{}, {"count": 2}, {"affinity": "red"}, {"exclusion": "e"}, {"device_id": "another"}],
    ids=str,
)
def test_neither_a_reason_nor_a_change_has_a_gpuid_of_others(
    name: str, asks: dict[str, Any]
) -> None:
    red = a_holder("p", "0.9", namespace="other", affinity="red")
    devices = [
        a_device("secret-project-x", red),
        a_device("vgpu-1", a_holder("q", "0.9", namespace="other"), gpuid="secret project y"),
        a_device("secret-z", red, healthy=False, node="n2"),
    ]
    ledger = Ledger([a_node("n1"), a_node("n2")], devices)
    demand = reader(**asks)

    decision = policy(name)(ledger, demand)
    shown = list(readable_reasons(decision.reasons.items(), ledger, demand))
    change = shortest_change(policy(name), ledger, demand, demand)

    assert decision.outcome != "bound"
    assert sum(reason.number for reason in shown) == len(decision.reasons)
    assert "secret" in str(dict(decision.reasons))
    assert "secret" not in f"{shown} {change}"


def test_a_gpu_to_repair_is_not_named_either() -> None:
    ledger = Ledger([a_node("n1")], [a_device("secret", OF_OTHERS, fenced=True)])
    demand = reader(request="0.1")
    change = shortest_change(policy("locality"), ledger, demand, demand)
    assert change is not None
    assert change.words == ("a GPU on n1 that another namespace named takes holders again",)
    (words,) = shortest_change(policy("locality"), ledger, demand).words  # type: ignore[union-attr]
    assert words == "n1/secret takes holders again"

"""The words of the rules that any policy may give as a reason."""

import pytest

from core.builders import GPU_MEMORY, a_demand, a_device, a_holder
from kubeshare.core import reasons
from kubeshare.core.ledger.device import FreeGpu


@pytest.mark.parametrize(
    ("present", "asked", "words"),
    [
        (["e"], "e", None),
        ([""], "", None),
        (["e"], "", "exclusion e, asked none"),
        ([""], "e", "exclusion none, asked e"),
        (["f", "e"], "e", "exclusion e, f, asked e"),
        (["", "e"], "f", "exclusion e, asked f"),
    ],
)
def test_exclusions_are_named(present: list[str], asked: str, words: str | None) -> None:
    holders = [
        a_holder(f"h{number}", "0.1", exclusion=label) for number, label in enumerate(present)
    ]
    device = a_device("A", *holders)
    assert reasons.exclusion(device, a_demand("p", exclusion=asked)) == words


@pytest.mark.parametrize(
    ("namespace", "words"),
    [
        ("a", "exclusion e, of another namespace, asked g"),
        ("b", "exclusion f, of another namespace, asked g"),
        ("c", "exclusion of another namespace, asked g"),
    ],
)
def test_labels_of_other_namespaces_are_not_named(namespace: str, words: str) -> None:
    holders = [
        a_holder("h", "0.1", exclusion="e", namespace="a"),
        a_holder("i", "0.1", exclusion="f", namespace="b"),
    ]
    demand = a_demand("p", exclusion="g", namespace=namespace)
    assert reasons.exclusion(a_device("A", *holders), demand) == words


def test_holders_of_other_namespaces_are_counted() -> None:
    holders = [a_holder(name, "0.1", namespace=where) for name, where in ("xa", "yb", "za", "wc")]
    assert reasons.readable_names(holders, "a") == "x, z, 2 of other namespaces"
    assert reasons.readable_names(holders, "d") == "4 of other namespaces"
    assert reasons.readable_names(holders[:1], "a") == "x"


def test_the_models_that_are_free_are_named() -> None:
    free = (FreeGpu("V100", GPU_MEMORY), FreeGpu("", GPU_MEMORY), FreeGpu("A100", GPU_MEMORY))
    demand = a_demand("p", model="M40")
    words = "no free GPU of model M40, only of A100, V100, unknown"
    assert reasons.no_free_gpu(free, demand) == words

"""Sums the resource requests of a pod as kube-scheduler does. Pure.

Amounts are integers in thousandths of the resource's unit (core, byte, piece), rounded up.
"""

import math
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from kubeshare.api.types.core_v1 import Container, Pod
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.units import parse_amount

PODS: Final = "pods"
"""The resource of which each pod takes one."""


def needs(pod: Pod) -> Counter[str]:
    """The requests of a pod: the most that it needs at any time.

    Init containers run one after the other, before the containers; those that always restart
    (sidecars) keep running beside all that start after them.
    """
    spec = pod.spec
    beside: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for first in spec.init_containers:
        if first.restart_policy == "Always":
            beside.update(_of(first))
            most |= beside
        else:
            most |= beside + _of(first)
    for container in spec.containers:
        beside.update(_of(container))
    total = (most | beside) + amounts(spec.overhead)
    total[PODS] = 1000
    return total


def amounts(quantities: Mapping[str, str | int]) -> Counter[str]:
    """Resource → thousandths."""
    return Counter({name: thousandths(quantity) for name, quantity in quantities.items()})


@lru_cache(maxsize=4096)
def thousandths(quantity: str | int) -> int:
    """A Quantity in thousandths, rounded up; 0 if it cannot be parsed."""
    try:
        return math.ceil(parse_amount(quantity, "quantity") * 1000)
    except InvalidValueError:
        return 0


def _of(container: Container) -> Counter[str]:
    # A limit without a request is a request too: the API server defaults it.
    return amounts(container.resources.limits | container.resources.requests)

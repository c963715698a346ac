"""What a pod needs of a node in kube-scheduler's eyes: CPU, memory and other requests. Pure.

Amounts are integers in thousandths (of a core, of a byte, of a piece), rounded up.
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
    """What a pod takes of its node: the most that it needs at any time.

    Init containers run one after the other, before the others; those that restart always
    go on beside all that come after them.
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
    """A Quantity in thousandths, rounded up; 0 for one that is none."""
    try:
        return math.ceil(parse_amount(quantity, "quantity") * 1000)
    except InvalidValueError:
        return 0


def _of(container: Container) -> Counter[str]:
    # What is only limited is requested as well: the API server fills that in.
    return amounts(container.resources.limits | container.resources.requests)

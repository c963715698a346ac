"""What a pod takes of its node, as kube-scheduler reckons it."""

from typing import Any

import msgspec
import pytest

from kubeshare.api.predicates.pod_requests import needs, thousandths
from kubeshare.api.types.core_v1 import Pod


def container(cpu: str = "", memory: str = "", restart: str = "") -> dict[str, Any]:
    requests = {name: amount for name, amount in (("cpu", cpu), ("memory", memory)) if amount}
    more = {"restartPolicy": restart} if restart else {}
    return {"name": "c", "resources": {"requests": requests}, **more}


def cpu_of(*containers: dict[str, Any], **spec: Any) -> int:
    pod = msgspec.convert({"metadata": {}, "spec": {"containers": containers, **spec}}, Pod)
    return needs(pod)["cpu"]


def test_containers_add_up_and_init_containers_do_not() -> None:
    assert cpu_of(container("1"), container("500m")) == 1500
    assert cpu_of(container("1"), initContainers=[container("3"), container("2")]) == 3000


def test_an_init_container_that_restarts_always_goes_on_beside_what_follows() -> None:
    sidecar = container("1", restart="Always")
    assert cpu_of(container("2"), initContainers=[sidecar]) == 3000
    assert cpu_of(container("1"), initContainers=[sidecar, container("4")]) == 5000
    assert cpu_of(container("1"), initContainers=[container("4"), sidecar]) == 4000


def test_overhead_comes_on_top() -> None:
    assert cpu_of(container("1"), overhead={"cpu": "250m"}) == 1250


def test_what_is_only_limited_is_requested_too_and_each_pod_is_one() -> None:
    limited = {"name": "c", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}
    pod = msgspec.convert({"metadata": {}, "spec": {"containers": [limited]}}, Pod)
    assert needs(pod) == {"cpu": 2000, "memory": 1000 << 30, "pods": 1000}


@pytest.mark.parametrize(
    ("quantity", "amount"),
    [("1", 1000), ("100m", 100), ("1Ki", 1024_000), (3, 3000), ("1u", 1), ("what", 0)],
)
def test_quantities_are_rounded_up_to_thousandths(quantity: str | int, amount: int) -> None:
    assert thousandths(quantity) == amount

"""How many GPUs the claims of a pending pod ask for."""

from typing import Any

import pytest

from fakes import manifests
from kubeshare.device_manager.pool.gpu_claims import gpus_by_claims
from kubeshare.kube.resources import RESOURCE_CLAIMS, Raw
from kubeshare.simulator.control import FakeApiServer, run_virtual

GPU = {"deviceClassName": "gpu.nvidia.com"}


def gpus(server: FakeApiServer, pod: Raw) -> int | None:
    return run_virtual(gpus_by_claims(server.client("test"), pod))


def claim(server: FakeApiServer, name: str, *requests: Raw, status: Raw | None = None) -> None:
    spec = {"devices": {"requests": list(requests)}} if requests else {}
    metadata = {"name": name, "namespace": "ns"}
    server.seed(RESOURCE_CLAIMS, {"metadata": metadata, "spec": spec, "status": status or {}})


def pod(*claims: Raw, **made: str | None) -> Raw:
    """A pod with these claims; ``made`` are the names of those that templates made."""
    found = manifests.pod("p", metadata={"namespace": "ns"})
    found["spec"]["resourceClaims"] = list(claims)
    if made:
        found["status"] = {
            "resourceClaimStatuses": [
                {"name": name} | ({"resourceClaimName": claim} if claim else {})
                for name, claim in made.items()
            ]
        }
    return found


@pytest.mark.parametrize(
    ("request_", "count"),
    [
        ({"exactly": GPU}, 1),
        ({"exactly": GPU | {"count": 3}}, 3),
        ({"exactly": GPU | {"allocationMode": "ExactCount", "count": 2}}, 2),
        ({"exactly": GPU | {"allocationMode": "All", "count": 2}}, 1),
        ({"exactly": GPU | {"adminAccess": True, "count": 2}}, 0),
        ({"exactly": {"deviceClassName": "nic.example.com"}}, 0),
        ({"firstAvailable": [{"deviceClassName": "mig.nvidia.com"}, GPU | {"count": 2}, GPU]}, 2),
        ({"firstAvailable": []}, 0),
        ({}, 0),
    ],
)
def test_a_request_asks_for_so_many_gpus(request_: Raw, count: int) -> None:
    server = FakeApiServer()
    claim(server, "c", request_)
    assert gpus(server, pod({"name": "x", "resourceClaimName": "c"})) == count


def test_all_claims_count_but_those_that_have_their_gpus() -> None:
    server = FakeApiServer()
    claim(server, "a", {"exactly": GPU}, {"exactly": GPU | {"count": 2}})
    claim(server, "b", {"exactly": GPU}, status={"allocation": {"devices": {}}})
    claim(server, "c", {"exactly": GPU}, status={"reservedFor": []})
    claim(server, "d")
    references = [{"name": name, "resourceClaimName": name} for name in "abcd"]
    assert gpus(server, pod(*references)) == 4
    assert gpus(server, pod()) == 0
    assert gpus(server, manifests.pod("p", metadata={"namespace": "ns"})) == 0


@pytest.mark.parametrize(
    ("made", "count"),
    [
        ({"x": "c"}, 1),
        ({"x": None}, 0),  # the template needs no claim for this pod
        ({"y": "c"}, None),
        ({}, None),
    ],
)
def test_the_claim_of_a_template_is_the_one_that_was_made(made: Any, count: int | None) -> None:
    server = FakeApiServer()
    claim(server, "c", {"exactly": GPU})
    assert gpus(server, pod({"name": "x", "resourceClaimTemplateName": "t"}, **made)) == count


def test_nothing_is_known_while_a_claim_is_missing() -> None:
    server = FakeApiServer()
    claim(server, "c", {"exactly": GPU})
    both = [{"name": name, "resourceClaimName": name} for name in ("c", "missing")]
    assert gpus(server, pod(*both)) is None

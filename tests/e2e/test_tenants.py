"""What a tenant with the role ``edit`` tries with SharePods, and how each of them says the truth.

``test_attacks.py`` has claims and devices, ``test_floods.py`` large numbers.
"""

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from e2e.manifests import quota
from e2e.space import REST, Space, container
from e2e.stage import Place, Raw, Stage, eventually
from e2e.stalls import Stalls
from e2e.tenants import tenant_of, waits_in_time
from kubeshare.api.types.constants import VGPU_RESOURCE
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.lab

HIDDEN, MATE = "hidden-one", "hidden-mate"
LABELS = {"affinity": "team", "exclusion": "classified"}
HOLD: Raw = {"schedulingGates": [{"name": "example.org/hold"}]}
"""Of a pod that needs no container to be started."""


@pytest.fixture
def tenant(space: Space) -> Space:
    """The namespace as a ServiceAccount uses it that has the cluster's role ``edit`` there."""
    return tenant_of(space)


@pytest.fixture
def waits(tenant: Space, stalls: Stalls) -> Callable[..., str]:
    """:func:`waits_in_time` in the namespace of the tenant."""
    return partial(waits_in_time, tenant, stalls)


def placed(space: Space, name: str) -> str:
    """Wait until a SharePod is scheduled; returns the GPUID."""
    eventually(
        lambda: space.condition(name, "Scheduled").get("status") == "True",
        f"SharePod {name} to be scheduled",
        explain=lambda: space.describe(name),
    )
    sharepod = space.sharepod(name)
    assert sharepod is not None
    return str(sharepod["spec"]["gpu"]["id"])


def test_small_shares_with_an_exclusion_label_are_charged_a_whole_gpu_each(
    space: Space, tenant: Space, waits: Callable[..., str]
) -> None:
    space.create(quota("gpus", **{"requests.kubeshare.nthu/gpu": "100m"}))
    quotas = f"/api/v1/namespaces/{space.name}/resourcequotas"
    eventually(
        lambda: all("hard" in one["status"] for one in space.stage.items(quotas)),
        "the quota to be in force",
    )

    for number in range(3):
        tenant.share(f"mine-{number}", {"request": ".02", "exclusion": "mine"}, REST)

    for number in range(3):
        said = waits(f"mine-{number}", "QuotaExceeded")
        assert "quota: ResourceQuota gpus allows 0.1 GPUs: 0 held, 1 asked" in said
        assert "charged as a whole GPU for its exclusion label" in said
        assert tenant.find_pod(f"mine-{number}") is None


@pytest.fixture(scope="module")
def neighbour(shared_space: Space) -> Place:
    """Where a SharePod of another namespace runs, with labels."""
    shared_space.share(HIDDEN, {"request": "0.3", **LABELS}, REST)
    return shared_space.ready(HIDDEN)


@pytest.fixture
def scopes(stage: Stage) -> Iterator[Callable[..., None]]:
    """Writes the configuration, which has the defaults before and after."""
    yield stage.configure
    stage.configure()


def test_labels_and_gpuids_of_another_namespace_lock_nobody_out_and_name_nobody(
    shared_space: Space,
    neighbour: Place,
    tenant: Space,
    waits: Callable[..., str],
    scopes: Callable[..., None],
) -> None:
    tenant.share("joins", {"request": "0.7", "affinity": LABELS["affinity"]}, **HOLD)
    tenant.share("names", {"request": "0.1", "id": neighbour.gpuid}, REST)
    tenant.share("binds", {"request": "0.1", "id": neighbour.gpuid}, REST, nodeName=neighbour.node)
    held = "exclusion of another namespace, asked none"
    assert held in waits("joins", "NoRoom")
    assert held in waits("names", "NoRoom")
    assert held in waits("binds", "NoRoom", "Allocated")
    assert tenant.event("names", "NoRoom")

    scopes(labelScope="namespace", gpuidScope="namespace")

    assert placed(tenant, "joins") != neighbour.gpuid
    tenant.share("late", {"request": "0.1", "id": neighbour.gpuid}, REST)
    said = waits("late", "NoRoom")
    assert "held by 1 other namespace, and gpuidScope: namespace" in said
    shared_space.share(MATE, {"request": "0.7", **LABELS}, **HOLD)
    assert placed(shared_space, MATE) == neighbour.gpuid

    events = tenant.stage.items(f"/api/v1/namespaces/{tenant.name}/events")
    texts = json.dumps([tenant.sharepods(), events])
    assert [
        word for word in (HIDDEN, LABELS["exclusion"], shared_space.name, MATE) if word in texts
    ] == []


ASKS = container(REST, resources={"limits": {VGPU_RESOURCE: 1}})
MIRROR = {"kubernetes.io/config.mirror": "1"}
REFUSED: dict[str, tuple[Raw, dict[str, Any]]] = {
    "spec.gpu.attempt: is written by": ({"request": "0.1", "attempt": 1}, {}),
    "spec.gpu.attempt: Invalid value": ({"request": "0.1", "attempt": 1 << 40}, {}),
    "spec.schedulingGates: kubeshare.nthu/gpu": (
        {"request": "0.1"},
        {"schedulingGates": [{"name": "kubeshare.nthu/gpu"}]},
    ),
    f"spec.containers: main asks for {VGPU_RESOURCE}": ({}, {"containers": [ASKS]}),
    "metadata.annotations[kubernetes.io/config.mirror]": (
        {"request": "0.1"},
        {"annotations": MIRROR},
    ),
}


def test_what_only_kubeshare_writes_is_refused_and_the_rest_is_told(
    tenant: Space, waits: Callable[..., str]
) -> None:
    tenant.pod("taken", {}, REST, **HOLD)
    tenant.share("taken", {"request": "0.1"}, REST)
    tenant.share("overflow", {"request": "0.1", "memory": "8Ei"}, REST)

    for why, (gpu, more) in REFUSED.items():
        with pytest.raises(LabError) as refused:
            tenant.share("probe", gpu, REST, **more)
        assert why in str(refused.value)

    assert "spec.gpu.memory" in waits("overflow", "Invalid")
    assert "belongs to another owner" in waits("taken", "NameTaken", "Ready")
    pod = tenant.find_pod("taken")
    assert pod is not None
    assert "ownerReferences" not in pod["metadata"]
    assert {one["metadata"]["name"] for one in tenant.sharepods()} == {"taken", "overflow"}

"""What tenants try with SharePods, and how each of them says the truth.

ServiceAccounts with the roles ``edit`` and ``admin`` try each side by side, in one namespace.
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
from e2e.tenants import TOO_LARGE, Role, waits_in_time
from kubeshare.api.types.constants import VGPU_RESOURCE
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.lab

Tenants = dict[Role, Space]

HIDDEN, MATE = "hidden-one", "hidden-mate"
LABELS = {"affinity": "team", "exclusion": "classified"}
HOLD: Raw = {"schedulingGates": [{"name": "example.org/hold"}]}
"""Of a pod that needs no container to be started."""


@pytest.fixture
def waits(space: Space, stalls: Stalls) -> Callable[..., str]:
    """:func:`waits_in_time` in the namespace of the tenants."""
    return partial(waits_in_time, space, stalls)


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
    space: Space, tenants: Tenants, waits: Callable[..., str]
) -> None:
    space.create(quota("gpus", **{"requests.kubeshare.nthu/gpu": "100m"}))
    quotas = f"/api/v1/namespaces/{space.name}/resourcequotas"
    eventually(
        lambda: all("hard" in one["status"] for one in space.stage.items(quotas)),
        "the quota to be in force",
    )

    for role, tenant in tenants.items():
        for number in range(3):
            tenant.share(f"{role}-{number}", {"request": ".02", "exclusion": "mine"}, REST)

    for name in (f"{role}-{number}" for role in tenants for number in range(3)):
        said = waits(name, "QuotaExceeded")
        assert "quota: ResourceQuota gpus allows 0.1 GPUs: 0 held, 1 asked" in said
        assert "charged as a whole GPU for its exclusion label" in said
        assert space.find_pod(name) is None


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
    space: Space,
    *,
    tenants: Tenants,
    waits: Callable[..., str],
    scopes: Callable[..., None],
) -> None:
    there = {"request": "0.1", "id": neighbour.gpuid}
    for role, tenant in tenants.items():
        tenant.share(f"joins-{role}", {"request": "0.3", "affinity": LABELS["affinity"]}, **HOLD)
        tenant.share(f"names-{role}", there, REST)
        tenant.share(f"binds-{role}", there, REST, nodeName=neighbour.node)
    held = "exclusion of another namespace, asked none"
    for role in tenants:
        assert held in waits(f"joins-{role}", "NoRoom")
        assert held in waits(f"names-{role}", "NoRoom")
        assert held in waits(f"binds-{role}", "NoRoom", "Allocated")
        assert space.event(f"names-{role}", "NoRoom")

    scopes(labelScope="namespace", gpuidScope="namespace")

    for role, tenant in tenants.items():
        assert placed(space, f"joins-{role}") != neighbour.gpuid
        tenant.share(f"late-{role}", there, REST)
    for role in tenants:
        said = waits(f"late-{role}", "NoRoom")
        assert "held by 1 other namespace, and gpuidScope: namespace" in said
    shared_space.share(MATE, {"request": "0.7", **LABELS}, **HOLD)
    assert placed(shared_space, MATE) == neighbour.gpuid

    events = space.stage.items(f"/api/v1/namespaces/{space.name}/events")
    texts = json.dumps([space.sharepods(), events])
    assert [
        word for word in (HIDDEN, LABELS["exclusion"], shared_space.name, MATE) if word in texts
    ] == []


ASKS = container(REST, resources={"limits": {VGPU_RESOURCE: 1}})
MEGABYTE = [{"name": f"LARGE_{number}", "value": "x" * 2_000} for number in range(500)]
"""As many environment variables as containers may have, and far more text than there may be."""
MIRROR = {"kubernetes.io/config.mirror": "1"}
REFUSED: dict[str, tuple[Raw, dict[str, Any]]] = {
    "spec.gpu.attempt: is written by": ({"request": "0.1", "attempt": 1}, {}),
    "spec.gpu.attempt: Invalid value": ({"request": "0.1", "attempt": 1 << 40}, {}),
    "spec.schedulingGates: kubeshare.nthu/gpu": (
        {"request": "0.1"},
        {"schedulingGates": [{"name": "kubeshare.nthu/gpu"}]},
    ),
    TOO_LARGE: ({"request": "0.1"}, {"containers": [container(REST, env=MEGABYTE)]}),
    f"spec.containers: main asks for {VGPU_RESOURCE}": ({}, {"containers": [ASKS]}),
    "metadata.annotations[kubernetes.io/config.mirror]": (
        {"request": "0.1"},
        {"annotations": MIRROR},
    ),
}


def test_what_only_kubeshare_writes_is_refused_and_the_rest_is_told(
    space: Space, tenants: Tenants, waits: Callable[..., str]
) -> None:
    for role, tenant in tenants.items():
        tenant.pod(f"taken-{role}", {}, REST, **HOLD)
        tenant.share(f"taken-{role}", {"request": "0.1"}, REST)
        tenant.share(f"overflow-{role}", {"request": "0.1", "memory": "8Ei"}, REST)

        for why, (gpu, more) in REFUSED.items():
            with pytest.raises(LabError) as refused:
                tenant.share("probe", gpu, REST, **more)
            assert why in str(refused.value)

    for role in tenants:
        assert "spec.gpu.memory" in waits(f"overflow-{role}", "Invalid")
        assert "belongs to another owner" in waits(f"taken-{role}", "NameTaken", "Ready")
        pod = space.find_pod(f"taken-{role}")
        assert pod is not None
        assert "ownerReferences" not in pod["metadata"]
    assert not space.sharepod("probe")

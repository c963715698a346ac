"""The API server notes who wrote a holder once for the whole holder, also of one written before."""

import json
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pytest
import yaml

from fakes import objects
from kubeshare.api import holders
from kubeshare.api.types.constants import MANAGER_DEVICES, MANAGER_SCHEDULER
from kubeshare.api.types.v1 import VGPU, Holder
from kubeshare.install import manifests
from kubeshare.lab.control_plane.api_server import ApiServer, wait_until
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.apiserver

Raw = dict[str, Any]

ATOMIC: Final = "x-kubernetes-map-type"
GIB: Final = 1 << 30
NAME: Final = "holders-of-before"
GROUP: Final = "former.example.org"
CRD: Final = f"formervgpus.{GROUP}"


def holder(demand: str, request: int = 100_000) -> Holder:
    return objects.holder(demand, request, attempt=1, limit_micros=1_000_000, memory_bytes=GIB)


def read(server: ApiServer, kind: str, name: str) -> VGPU:
    return msgspec.json.decode(server.kubectl("get", kind, name, "-o", "json"), type=VGPU)


def patch(server: ApiServer, which: tuple[str, str], manager: str, operations: list[Raw]) -> None:
    options = ("--subresource=status", "--type=json", f"--field-manager={manager}")
    server.kubectl("patch", *which, *options, "-p", json.dumps(operations))


def noted(server: ApiServer, *command: str) -> dict[str, list[tuple[str, Raw]]]:
    """Demand of each holder -> the managers that are noted for it, and for which of its fields."""
    answer = server.kubectl(*command, "-o", "json", "--show-managed-fields")
    found: dict[str, list[tuple[str, Raw]]] = {}
    for entry in json.loads(answer)["metadata"]["managedFields"]:
        fields = entry["fieldsV1"].get("f:status", {}).get("f:holders", {})
        for key, below in fields.items():
            if key.startswith("k:"):
                demand = json.loads(key.removeprefix("k:"))["demand"]
                found.setdefault(demand, []).append((entry["manager"], below))
    return found


def test_who_wrote_a_holder_last_is_noted_once_for_all_of_it(cluster: ApiServer, vgpu: str) -> None:
    """Who wrote each of its fields took a third of a vGPU with twenty holders."""
    which = ("vgpu", vgpu)
    patch(cluster, which, MANAGER_SCHEDULER, holders.add(read(cluster, *which), holder("a")))
    patch(cluster, which, MANAGER_SCHEDULER, holders.add(read(cluster, *which), holder("b")))

    patch(cluster, which, MANAGER_DEVICES, holders.set_pod_uid(read(cluster, *which), "b", "uid"))

    assert noted(cluster, "get", *which) == {
        "a": [(MANAGER_SCHEDULER, {})],
        "b": [(MANAGER_DEVICES, {})],
    }


def crd(*, atomic: bool) -> Raw:
    """That of VGPUs under another group and name, so that no other test sees it change."""
    ours = manifests.load(manifests.Options())
    [found] = [one for one in ours if one["metadata"]["name"] == "vgpus.kubeshare.nthu"]
    names = {"kind": "FormerVGPU", "listKind": "FormerVGPUList"}
    found["spec"]["group"] = GROUP
    found["spec"]["names"] = names | {"plural": "formervgpus", "singular": "formervgpu"}
    found["metadata"] = {"name": CRD}
    [version] = found["spec"]["versions"]
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
    items = status["properties"]["holders"]["items"]
    assert items[ATOMIC] == "atomic"
    if not atomic:
        del items[ATOMIC]
    return found


def apply(server: ApiServer, body: Raw) -> None:
    server.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump(body))


def trial(server: ApiServer, demand: str) -> Raw:
    """What would be noted of one holder if it was written now."""
    written = [{"op": "replace", "path": "/status/holders/0/attempt", "value": 2}]
    options = ("--subresource=status", "--type=json", "--dry-run=server", "-p", json.dumps(written))
    by = f"--field-manager={MANAGER_DEVICES}"
    entries = noted(server, "patch", "formervgpu", NAME, *options, by)
    return dict(entries[demand])[MANAGER_DEVICES]


def is_served(server: ApiServer) -> bool:
    try:
        server.kubectl("get", "formervgpus")
    except LabError:
        return False
    return True


@pytest.fixture
def former(cluster: ApiServer) -> Iterator[ApiServer]:
    """The API server with a vGPU of before: three holders, one with its pod."""
    apply(cluster, crd(atomic=False))
    wait_until(lambda: is_served(cluster), "the kind to be served")
    spec = {"nodeName": "node-1", "memoryBytes": 16 * GIB}
    head = {"apiVersion": f"{GROUP}/v1", "kind": "FormerVGPU", "metadata": {"name": NAME}}
    cluster.kubectl("create", "-f", "-", stdin=yaml.safe_dump(head | {"spec": spec}))
    which = ("formervgpu", NAME)
    for demand in "abc":
        patch(cluster, which, MANAGER_SCHEDULER, holders.add(read(cluster, *which), holder(demand)))
    patch(cluster, which, MANAGER_DEVICES, holders.set_pod_uid(read(cluster, *which), "a", "uid"))
    yield cluster
    cluster.kubectl("delete", "crd", CRD)


def test_holders_stay_as_they_are_through_an_upgrade_and_back(former: ApiServer) -> None:
    which = ("formervgpu", NAME)
    before = read(former, *which)
    assert len(noted(former, "get", *which)["a"]) == 2  # for some of its fields each

    apply(former, crd(atomic=True))
    wait_until(lambda: trial(former, "a") == {}, "the schema of today to be in force")
    assert read(former, *which) == before
    with pytest.raises(LabError, match="more than one GPU"):
        patch(former, which, MANAGER_SCHEDULER, holders.add(before, holder("d", 700_001)))
    patch(former, which, MANAGER_DEVICES, holders.set_pod_uid(before, "b", "uid-of-b"))
    patch(former, which, MANAGER_SCHEDULER, holders.remove(read(former, *which), "c"))
    after = read(former, *which)
    assert [(each.demand, each.pod_uid) for each in after.status.holders] == [
        ("a", "uid"),
        ("b", "uid-of-b"),
    ]
    assert noted(former, "get", *which)["b"] == [(MANAGER_DEVICES, {})]

    apply(former, crd(atomic=False))
    wait_until(lambda: trial(former, "a") != {}, "the schema of before to be in force")
    assert read(former, *which) == after
    patch(former, which, MANAGER_SCHEDULER, holders.add(after, holder("d")))
    patch(former, which, MANAGER_DEVICES, holders.remove(read(former, *which), "a", "b"))
    assert [each.demand for each in read(former, *which).status.holders] == ["d"]
    assert set(noted(former, "get", *which)) == {"d"}

"""The published annotations of a pod say when it has its GPUs, and go with them."""

from typing import Any

import pytest

from fakes import manifests
from kubeshare.api.types.core_v1 import PODS
from kubeshare.device_manager.pod.family_annotations import update_annotations
from kubeshare.kube.client.errors import ConflictError
from kubeshare.simulator.control import FakeApiServer, run_virtual

GPUSHARE, GAIA = "ALIYUN_COM_GPU_MEM_ASSIGNED", "tencent.com/gpu-assigned"
RUNNING = [{"name": "main", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]


def server_with(annotations: dict[str, str], **status: Any) -> FakeApiServer:
    server = FakeApiServer()
    pod = manifests.pod("p", metadata={"namespace": "ns", "annotations": annotations})
    server.seed(PODS, pod | {"status": status})
    return server


def updated(server: FakeApiServer) -> dict[str, str]:
    async def main() -> None:
        client = server.client("test")
        await update_annotations(client, await client.get(PODS, "p", "ns"))

    run_virtual(main())
    stored = server.stored(PODS, "p", "ns")
    assert stored is not None
    found: dict[str, str] = stored["metadata"].get("annotations", {})
    return found


@pytest.mark.parametrize("key", [GPUSHARE, GAIA])
@pytest.mark.parametrize(
    ("status", "before", "after"),
    [
        ({"phase": "Pending"}, "false", "false"),
        ({"phase": "Running", "containerStatuses": RUNNING}, "false", "true"),
        ({"phase": "Running", "containerStatuses": RUNNING}, "no", "no"),
        ({"phase": "Succeeded", "containerStatuses": RUNNING}, "true", None),
        ({"phase": "Failed"}, "false", None),
    ],
)
def test_assigned_is_true_from_the_first_container_to_the_last(
    key: str, status: dict[str, Any], before: str, after: str | None
) -> None:
    server = server_with({key: before, "mine": "kept"}, **status)
    assert updated(server) == {"mine": "kept"} | ({} if after is None else {key: after})
    patches = [each for each in server.requests if each.is_write]
    assert len(patches) == (before != after)
    if patches:
        assert patches[0].query["fieldManager"] == "kubeshare-device-manager"
        assert updated(server) == updated(server)
        assert len([each for each in server.requests if each.is_write]) == 1


def test_a_pod_that_has_changed_meanwhile_is_read_again_first() -> None:
    server = server_with({GAIA: "false"}, phase="Failed")

    async def main() -> None:
        client = server.client("test")
        pod = await client.get(PODS, "p", "ns")
        server.change(PODS, "p", "ns", lambda obj: obj["metadata"]["annotations"].update(b="c"))
        with pytest.raises(ConflictError):
            await update_annotations(client, pod)

    run_virtual(main())

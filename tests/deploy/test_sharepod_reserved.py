"""What only KubeShare writes of a SharePod is refused from its author."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from fakes import manifests
from kubeshare.lab.control_plane.api_server import ApiServer
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.apiserver

Raw = dict[str, Any]
Create = Callable[[Raw], str]

ACCOUNTS = [
    f"system:serviceaccount:kubeshare-system:kubeshare-{name}"
    for name in ("scheduler", "device-manager")
]
ASKING = {"name": "main", "image": "busybox", "resources": {"limits": {"kubeshare.nthu/vgpu": 1}}}
EXCLUDED = {"node": "n1", "until": "2026-01-01T00:00:00Z"}
PUBLISHED = {"kubeshare/gpu_request": "0.1", "kubeshare/gpu_limit": "1", "kubeshare/gpu_mem": "0.1"}


def sharepod(gpu: Raw | None = None, annotations: Raw | None = None, **spec: Any) -> Raw:
    return manifests.sharepod("probe", gpu, metadata={"annotations": annotations or {}}, **spec)


REFUSED = {
    "a decision": (sharepod({"request": "0.1", "attempt": 1}), "spec.gpu.attempt: is written by"),
    "all of the account": (
        sharepod({"attempt": 1, "idGiven": True, "nodeGiven": True, "setAside": [EXCLUDED]}),
        "spec.gpu.attempt, spec.gpu.idGiven, spec.gpu.nodeGiven, spec.gpu.setAside: is written by",
    ),
    "the gate of plain pods": (
        sharepod({"request": "0.1"}, schedulingGates=[{"name": "kubeshare.nthu/gpu"}]),
        "spec.schedulingGates: kubeshare.nthu/gpu",
    ),
    "the resource without a share": (
        sharepod(containers=[ASKING]),
        "spec.containers: main asks for kubeshare.nthu/vgpu",
    ),
    "the resource in an init container": (
        sharepod({"containers": ["main"]}, initContainers=[ASKING | {"name": "first"}]),
        "spec.containers: first asks for kubeshare.nthu/vgpu",
    ),
    "the mark of a static pod": (
        sharepod({"request": "0.1"}, {"kubernetes.io/config.mirror": "1"}),
        "metadata.annotations[kubernetes.io/config.mirror]",
    ),
}

ACCEPTED = {
    "the resource and a share": sharepod({"request": "0.1"}, containers=[ASKING]),
    "the resource and a published share": sharepod(None, PUBLISHED, containers=[ASKING]),
    "a gate of others": sharepod({"request": "0.1"}, schedulingGates=[{"name": "example.org/a"}]),
    "an account of nothing": sharepod({"attempt": 0, "idGiven": False, "setAside": []}),
    "lists that are no lists": sharepod(schedulingGates=None, initContainers="none"),
}


@pytest.mark.parametrize(("manifest", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_refuses_what_kubeshare_writes(manifest: Raw, said: str, create: Create) -> None:
    with pytest.raises(LabError) as refused:
        create(manifest)

    assert said in str(refused.value)


@pytest.mark.parametrize("manifest", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_accepts(manifest: Raw, create: Create) -> None:
    assert "created" in create(manifest)


@pytest.mark.parametrize("account", ACCOUNTS)
def test_its_programs_write_it_and_its_author_may_remove_it(
    account: str, create: Create, cluster: ApiServer, namespace: str
) -> None:
    def patch(gpu: Raw, *options: str) -> str:
        change = json.dumps({"spec": {"gpu": gpu}})
        which = ("shp/probe", "-n", namespace, "--type=merge")
        return cluster.kubectl("patch", *which, "-p", change, *options)

    create(sharepod({"request": "0.1"}))
    patch({"attempt": 2, "nodeGiven": True}, f"--as={account}", "--as-group=system:masters")

    patch({"affinity": "a"})
    with pytest.raises(LabError, match=r"spec\.gpu\.attempt: is written by"):
        patch({"attempt": 3})
    assert "patched" in patch({"attempt": None, "nodeGiven": None})


def test_the_number_of_decisions_is_bounded(create: Create) -> None:
    with pytest.raises(LabError, match=r"spec\.gpu\.attempt"):
        create(sharepod({"request": "0.1", "attempt": 1 << 40}))

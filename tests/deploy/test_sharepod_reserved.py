"""What only KubeShare writes of a SharePod is refused from its author."""

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deadlines import DEADLINE_S
from fakes import manifests
from kubeshare.lab.control_plane.api_server import ApiServer
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.apiserver

Raw = dict[str, Any]
Create = Callable[[Raw], str]

INSTALL_PAGE = Path(__file__).parents[2] / "docs" / "install.md"

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
    "a decision with what it chose": (
        sharepod({"attempt": 1, "id": "x"}, {"kubeshare/GPUID": "x"}, nodeName="n1"),
        "chose with it: spec.gpu.id, metadata.annotations[kubeshare/GPUID], spec.nodeName. To",
    ),
    "a decision about what the author chose": (
        sharepod({"attempt": 1, "id": "x", "idGiven": True, "nodeGiven": True}, nodeName="n1"),
        "spec.gpu.nodeGiven: is written by KubeShare alone; leave it out. To choose",
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


def page_commands() -> tuple[str, str]:
    """The two commands of the page, to back up and to restore."""
    _, _, section = INSTALL_PAGE.read_text().partition("## Back up and restore\n")
    section = re.split("\n###? ", section)[0]
    back_up, restore = re.findall(r"^```console\n\$ (.*?)^```$", section, re.DOTALL | re.MULTILINE)
    return back_up, restore


def test_a_backup_is_restored_without_what_kubeshare_chose(
    create: Create, cluster: ApiServer, namespace: str, tmp_path: Path
) -> None:
    def decide(name: str, metadata: Raw | None = None, **spec: Any) -> None:
        change = json.dumps({"metadata": metadata or {}, "spec": spec})
        which = ("patch", "shp", name, "-n", namespace, "--type=merge", "-p", change)
        cluster.kubectl(*which, f"--as={ACCOUNTS[0]}", "--as-group=system:masters")

    def run(command: str) -> None:
        programs = f"{cluster.programs}:{os.environ['PATH']}"
        subprocess.run(
            ["bash", "-c", command.replace("--all-namespaces", f"--namespace={namespace}")],
            cwd=tmp_path,
            env=os.environ | {"KUBECONFIG": str(cluster.kubeconfig), "PATH": programs},
            timeout=DEADLINE_S,
            check=True,
        )

    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "gone"}
    asked = {
        "chosen": sharepod({"request": "0.1", "memory": "1Gi"}),
        "published": sharepod(None, PUBLISHED),
        "given": sharepod({"request": "0.1", "id": "mine"}, nodeName="n2"),
        "waiting": sharepod({"request": "0.1", "ids": ["a", "b"], "count": 2}, nodeName="n2"),
        "ended": sharepod({"request": "0.1"}),
    }
    for name, manifest in asked.items():
        manifest["metadata"]["name"] = name
        create(manifest)
    by_kubeshare = {"attempt": 2, "id": "x", "idGiven": False, "nodeGiven": False}
    published = {"annotations": {"kubeshare/GPUID": "x"}, "ownerReferences": [owner]}
    decide("chosen", published, nodeName="n1", gpu=by_kubeshare | {"setAside": [EXCLUDED]})
    decide("published", published, nodeName="n1", gpu=by_kubeshare)
    decide("given", gpu={"attempt": 1, "idGiven": True, "nodeGiven": True})
    ended = ("--subresource=status", "--type=merge", "-p", '{"status": {"phase": "Succeeded"}}')
    cluster.kubectl("patch", "shp", "ended", "-n", namespace, *ended)
    back_up, restore = page_commands()

    run(back_up)
    cluster.kubectl("delete", "shp", "--all", "-n", namespace)
    run(restore)

    del asked["ended"]
    asked["published"]["spec"]["gpu"] = {}
    listed = json.loads(cluster.kubectl("get", "shp", "-n", namespace, "-o", "json"))["items"]
    assert {each["metadata"]["name"]: each["spec"] for each in listed} == {
        name: manifest["spec"] for name, manifest in asked.items()
    }
    annotations = {each["metadata"]["name"]: each["metadata"].get("annotations") for each in listed}
    assert (annotations["published"], annotations["chosen"] or {}) == (PUBLISHED, {})
    assert not any("ownerReferences" in each["metadata"] for each in listed)


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

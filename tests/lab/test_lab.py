"""A booted lab is a cluster: pods run, Services answer, a GPU is one GPU."""

import itertools
import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from kubeshare.lab.cluster import Lab
from kubeshare.lab.control_plane.api_server import wait_until
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.lab

IMAGE = "kubeshare:dev"
SERVER = "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=8080)"
CLIENT = """
import os, sys, time, urllib.request
url = f"http://{os.environ['WEB_SERVICE_HOST']}:{os.environ['WEB_SERVICE_PORT']}/"
deadline = time.monotonic() + 60
while time.monotonic() < deadline:
    try:
        print(urllib.request.urlopen(url, timeout=2).status)
        sys.exit(0)
    except OSError as error:
        print(error, file=sys.stderr)
        time.sleep(0.1)
sys.exit(1)
"""
COUNT_GPUS = """
import pynvml
pynvml.nvmlInit()
for index in range(pynvml.nvmlDeviceGetCount()):
    print(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(index)))
"""


def _pod(name: str, code: str, **spec: Any) -> dict[str, Any]:
    resources = {"limits": spec.pop("limits", {})}
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", code],
        "resources": resources,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"restartPolicy": "Never", "containers": [container], **spec},
    }


def _apply(lab: Lab, namespace: str, *manifests: dict[str, Any]) -> None:
    items = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
    lab.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(items))


def _phase(lab: Lab, namespace: str, pod: str) -> str:
    found = lab.api.get(f"/api/v1/namespaces/{namespace}/pods/{pod}")
    return str(found["status"]["phase"])


def _output(lab: Lab, namespace: str, pod: str) -> str:
    wait_until(
        lambda: _phase(lab, namespace, pod) in {"Succeeded", "Failed"}, f"the end of pod {pod}"
    )
    assert _phase(lab, namespace, pod) == "Succeeded", lab.kubectl("logs", "-n", namespace, pod)
    return lab.kubectl("logs", "-n", namespace, pod)


def _here(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


_NUMBERS = itertools.count(1)


@pytest.fixture
def namespace(lab: Lab) -> Iterator[str]:
    """A namespace of this test's own, with the ServiceAccount that pods need; gone at the end.

    The tests of the cluster that follow drain nodes, which bare pods prevent.
    """
    name = f"lab-test-{next(_NUMBERS)}"
    namespaces = "/api/v1/namespaces"
    lab.api.send("POST", namespaces, {"metadata": {"name": name}})
    accounts = f"{namespaces}/{name}/serviceaccounts"
    wait_until(lambda: bool(lab.api.get(accounts)["items"]), "the default ServiceAccount")
    yield name
    lab.api.send("DELETE", f"{namespaces}/{name}")
    pods = f"{namespaces}/{name}/pods"
    lab.api.send("DELETE", pods, {"gracePeriodSeconds": 0})
    wait_until(lambda: not lab.api.get(pods)["items"], "the pods of the test to go")


def test_both_nodes_are_ready_and_offer_their_gpus(lab: Lab) -> None:
    assert lab.ready_nodes() == {"node-1", "node-2"}
    assert [node.gpus for node in lab.nodes] == [2, 2]


def test_a_pod_reaches_a_service_whose_pod_is_on_another_node(lab: Lab, namespace: str) -> None:
    web = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
    }
    _apply(lab, namespace, web)
    _apply(lab, namespace, _pod("web", SERVER, nodeName="node-1"))
    _apply(lab, namespace, _pod("client", CLIENT, nodeName="node-2"))

    assert _output(lab, namespace, "client").splitlines()[-1] == "200"


def test_a_pod_that_asks_for_one_gpu_sees_that_one_only(lab: Lab, namespace: str) -> None:
    _apply(lab, namespace, _pod("one", COUNT_GPUS, limits={"nvidia.com/gpu": "1"}))

    seen = _output(lab, namespace, "one").split()

    assert len(seen) == 1
    assert seen[0].startswith("GPU-")


def test_a_pod_that_asks_for_two_sees_two(lab: Lab, namespace: str) -> None:
    _apply(lab, namespace, _pod("two", COUNT_GPUS, limits={"nvidia.com/gpu": "2"}))

    assert len(set(_output(lab, namespace, "two").split())) == 2


def test_a_pod_that_asks_for_none_sees_no_driver(lab: Lab, namespace: str) -> None:
    code = "import ctypes\ntry: ctypes.CDLL('libcuda.so.1')\nexcept OSError: print('none')"
    _apply(lab, namespace, _pod("none", code))

    assert _output(lab, namespace, "none").strip() == "none"


def test_the_image_has_every_program_of_the_cluster(lab: Lab, namespace: str) -> None:
    programs = ("scheduler", "device_manager", "node", "tokens")
    code = "import importlib\n" + "\n".join(
        f"importlib.import_module('kubeshare.{one}.__main__'); print('{one}')" for one in programs
    )
    _apply(lab, namespace, _pod("programs", code))

    assert tuple(_output(lab, namespace, "programs").split()) == programs


def test_no_two_nodes_have_a_gpu_of_the_same_uuid(lab: Lab, namespace: str) -> None:
    uuids = []
    for node in ("node-1", "node-2"):
        pod = _pod(node, COUNT_GPUS, limits={"nvidia.com/gpu": "2"})
        _apply(
            lab,
            namespace,
            pod | {"spec": pod["spec"] | {"nodeSelector": {"kubernetes.io/hostname": node}}},
        )
    for node in ("node-1", "node-2"):
        uuids += _output(lab, namespace, node).split()

    assert len(uuids) == len(set(uuids)) == 4


def test_a_kubelet_may_not_touch_another_nodes_object(lab: Lab) -> None:
    kubelet = lab.layout.node(1).folder / "config" / "kubelet.kubeconfig"

    with pytest.raises(LabError, match="only its own Node object"):
        lab.api.kubectl("label", "node", "node-2", "mine=yes", kubeconfig=kubelet)


def test_a_second_up_changes_nothing(lab: Lab) -> None:
    before = lab.components()

    lab.up()

    assert lab.components() == before


@pytest.mark.parametrize("part", ["kubelet", "containerd", "gpu-plugin"])
def test_up_brings_back_what_has_died(lab: Lab, part: str) -> None:
    name = f"node-1/{part}"
    before = lab.component(name).pid

    lab.restart_component(name)

    assert lab.component(name).pid not in {None, before}
    # A kubelet that comes back offers no GPU until their plugin has registered again.
    wait_until(lambda: "node-1" in lab.ready_nodes(), "node-1 to offer its GPUs again")


def test_a_pod_survives_the_restart_of_its_kubelet(lab: Lab, namespace: str) -> None:
    _apply(lab, namespace, _pod("steady", "import time; time.sleep(3600)", nodeName="node-1"))
    wait_until(lambda: _phase(lab, namespace, "steady") == "Running", "a pod to run")

    lab.restart_component("node-1/kubelet")

    found = lab.api.get(f"/api/v1/namespaces/{namespace}/pods/steady")
    (container,) = found["status"]["containerStatuses"]
    assert (found["status"]["phase"], container["restartCount"]) == ("Running", 0)
    lab.kubectl("delete", "pod", "-n", namespace, "steady", "--grace-period=1")


def test_the_machines_own_network_gets_one_interface_and_no_rule(lab: Lab) -> None:
    layout = lab.layout
    routes = _here("ip", "route").splitlines()

    assert [one for one in routes if layout.host_link in one] == [
        one for one in routes if layout.network in one
    ]
    assert "kube-proxy" not in _here("nft", "list", "tables")

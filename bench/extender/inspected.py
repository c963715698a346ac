"""``python -m bench.extender.inspected``: Alibaba's own ``kubectl inspect gpushare`` beside ours.

Both read the same objects of a real API server, and what they print is compared. First objects of
Alibaba's, without KubeShare: its own extender binds the pods and annotates them. Then objects of
KubeShare's: its extender binds them. The binaries are the user's, built from
https://github.com/AliyunContainerService/gpushare-scheduler-extender (``./cmd``) and
https://github.com/AliyunContainerService/gpushare-device-plugin (``./cmd/inspect``).
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.cluster import race_cluster
from bench.extender.programs import Extender, alibabas_extender
from bench.report import print_machine
from kubeshare.extender.http.messages import Head
from kubeshare.extender.service import PREFIX, ExtenderService
from kubeshare.kube.client.client import Client
from kubeshare.kube.resources import NODES, PODS
from kubeshare.lab.control_plane.api_server import ApiServer, local_api_server
from kubeshare.lab.progress import Progress

Raw = dict[str, Any]

THEIR_NODES: Final = {
    "b1": (32552, 2),
    "b2": (64000, 4),
    "b3": (8000, 1),
    "b4": (32553, 2),
    "b5": (500, 0),
}
"""Node → units of memory, GPUs. The API server writes 64000 as 64k."""
THEIR_PODS: Final[Mapping[str, tuple[str, tuple[int, ...]]]] = {
    "half": ("b1", (8138,)),
    "other-half": ("b1", (8138,)),
    "whole": ("b1", (16276,)),
    "two-containers": ("b2", (5000, 3000)),
    "large": ("b2", (16000,)),
    "ended": ("b2", (4000,)),
    "ending": ("b2", (2000,)),
    "all": ("b3", (8000,)),
}
"""Pod that Alibaba's extender binds → its node, and the units of its containers."""
THEIR_OTHERS: Final[Mapping[str, tuple[str, int, Mapping[str, str]]]] = {
    "unplaced": ("b2", 1000, {}),
    "strange": ("b2", 300, {"ALIYUN_COM_GPU_MEM_IDX": "first"}),
    "uncounted": ("b5", 200, {}),
    "pair": ("b2", 700, {"scheduler.framework.gpushare.allocation": '{"0":{"0":300,"3":400}}'}),
}
"""Pod that is there from the beginning → its node, units and annotations."""
OUR_PODS: Final[Mapping[str, tuple[int, tuple[int, ...], int]]] = {
    "small": (0, (3,), 1),
    "two-containers": (0, (5, 4), 1),
    "pair": (0, (4,), 2),
    "half": (1, (8,), 1),
    "whole": (1, (16,), 1),
}
"""Pod that KubeShare's extender binds → number of its node, units of its containers, GPUs."""


def main() -> int:
    """Exit code 1 if the two print something different."""
    parser = argparse.ArgumentParser(
        prog="bench.extender.inspected",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--extender", type=Path, required=True, metavar="BINARY")
    parser.add_argument("--inspect", type=Path, required=True, metavar="BINARY")
    options = parser.parse_args()
    for binary in (options.extender, options.inspect):
        if not binary.is_file():
            parser.error(f"{binary} does not exist: build it, see --help")
    print_machine()
    with local_api_server(Progress()) as server:
        with alibabas_extender(options.extender.resolve(), server.kubeconfig) as extender:
            _place_theirs(server, extender)
        same = _compare("Objects of Alibaba's gpushare", server, options.inspect)
        _remove(server)
        race_cluster.install(server)
        before = race_cluster.configure(server, "{gpushare: {door: extender}}")
        asyncio.run(_place_ours(server))
        same &= _compare("Objects of KubeShare", server, options.inspect)
        race_cluster.configure(server, before)
    print("\nBoth print the same." if same else "\nThey differ.")
    return 0 if same else 1


# Objects.


def _place_theirs(server: ApiServer, extender: Extender) -> None:
    for number, (name, (units, gpus)) in enumerate(THEIR_NODES.items(), 1):
        server.send("POST", "/api/v1/nodes", {"metadata": {"name": name}})
        offered = {"aliyun.com/gpu-mem": str(units), "aliyun.com/gpu-count": str(gpus)}
        _set_status(server, f"nodes/{name}", _node_status(offered, number))
    for name, (node, size, annotations) in THEIR_OTHERS.items():
        pod = _pod(name, (size,), annotations=annotations)
        pod["spec"]["nodeName"] = node
        _create(server, pod)
    uids = {name: _create(server, _pod(name, units)) for name, (_, units) in THEIR_PODS.items()}
    first = {"Pod": _pod("half", (1,)), "NodeNames": [*THEIR_NODES]}
    extender.wait(json.dumps(first).encode())
    for name, (node, _) in THEIR_PODS.items():
        extender.call("bind", _binding(name, "default", uids[name], node))
    _set_status(server, "namespaces/default/pods/ended", {"phase": "Succeeded"})
    server.send("DELETE", "/api/v1/namespaces/default/pods/ending")


async def _place_ours(server: ApiServer) -> None:
    async with Client.connect(server.kubeconfig) as client:
        for number in range(2):
            await race_cluster.add_node(client, number)
            gpus = race_cluster.GPUS
            offered = {"aliyun.com/gpu-count": str(gpus), "aliyun.com/gpu-mem": str(gpus * 16)}
            status = {"status": _node_status(offered, number + 1)}
            name = f"{race_cluster.NODE}{number}"
            await client.merge_patch(NODES, name, status, subresource="status")
        async with race_cluster.programs(server) as services:
            for name, (number, units, count) in OUR_PODS.items():
                labels = {"aliyun.com/gpu-count": str(count)} if count > 1 else {}
                pod = _pod(name, units, namespace=race_cluster.SPACE, labels=labels)
                await client.create(PODS, pod)
                await _bind(client, services[0], name, f"{race_cluster.NODE}{number}")


async def _bind(client: Client, service: ExtenderService, name: str, node: str) -> None:
    """Bind a pod once the node has its vGPUs and the pod is handed over."""
    head = Head("POST", f"{PREFIX}/bind")
    async with asyncio.timeout(race_cluster.SECONDS):
        while True:
            uid = (await client.get(PODS, name, race_cluster.SPACE))["metadata"]["uid"]
            body = _binding(name, race_cluster.SPACE, uid, node)
            answer = service.refuse(head) or await service.answer(head, body)
            if answer.status == 200:
                return
            await asyncio.sleep(race_cluster.PAUSE)


def _pod(
    name: str,
    units: Iterable[int],
    *,
    namespace: str = "default",
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> Raw:
    containers = [
        {
            "name": f"c{number}",
            "image": "x",
            "resources": {"limits": {"aliyun.com/gpu-mem": str(each)}},
        }
        for number, each in enumerate(units)
    ]
    metadata = {
        "name": name,
        "namespace": namespace,
        "annotations": dict(annotations or {}),
        "labels": dict(labels or {}),
    }
    return {"metadata": metadata, "spec": {"containers": containers}}


def _node_status(offered: Mapping[str, str], number: int) -> Raw:
    address = {"type": "InternalIP", "address": f"10.0.0.{number}"}
    return {"capacity": offered, "allocatable": offered, "addresses": [address]}


def _create(server: ApiServer, pod: Raw) -> str:
    path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"
    return str(server.send("POST", path, pod)["metadata"]["uid"])


def _binding(name: str, namespace: str, uid: str, node: str) -> bytes:
    named = {"PodName": name, "PodNamespace": namespace, "PodUID": uid, "Node": node}
    return json.dumps(named).encode()


def _set_status(server: ApiServer, path: str, status: Raw) -> None:
    server.requests.send(
        "PATCH",
        f"/api/v1/{path}/status",
        {"status": status},
        content_type="application/merge-patch+json",
    )


def _remove(server: ApiServer) -> None:
    server.kubectl("delete", "pods", "--all", "--force", "--grace-period=0")
    server.kubectl("delete", "nodes", "--all")


# Tables.


def _compare(title: str, server: ApiServer, binary: Path) -> bool:
    """Print the objects and the tables of both; whether these are the same."""
    print(f"\n# {title}\n")
    nodes = _show_objects(server)
    ours = Path(sys.executable).with_name("kubectl-inspect-gpushare")
    same = True
    for arguments in ([], ["-d"], *(["-d", node] for node in nodes)):
        theirs = _run(server, binary.resolve(), arguments)
        here = _run(server, ours, arguments)
        words = " ".join(["kubectl inspect gpushare", *arguments])
        print(f"\n$ {words}   # Alibaba's\n{theirs}\n\n$ {words}   # KubeShare's\n{here}")
        same &= _comparable(theirs) == _comparable(here)
    return same


def _show_objects(server: ApiServer) -> list[str]:
    """Print nodes and pods, a line each; returns the names of the nodes."""
    nodes = server.get("/api/v1/nodes")["items"]
    for node in nodes:
        print("node", node["metadata"]["name"], json.dumps(node["status"]["allocatable"]))
    for pod in server.get("/api/v1/pods")["items"]:
        metadata, spec = pod["metadata"], pod["spec"]
        limits = [each["resources"]["limits"] for each in spec["containers"]]
        written = {
            key: value
            for key, value in metadata.get("annotations", {}).items()
            if key.startswith(("ALIYUN", "scheduler.framework"))
        }
        state = "Terminating" if "deletionTimestamp" in metadata else pod["status"]["phase"]
        print("pod", metadata["name"], state, spec.get("nodeName"), json.dumps([limits, written]))
    return [node["metadata"]["name"] for node in nodes]


def _run(server: ApiServer, program: Path, arguments: Sequence[str]) -> str:
    environment = os.environ | {"KUBECONFIG": str(server.kubeconfig)}
    done = subprocess.run(
        [program, *arguments], env=environment, capture_output=True, text=True, check=True
    )
    return "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())


def _comparable(table: str) -> list[str]:
    """The lines in an order of their own, as Alibaba's has none; without the rules.

    The length of a rule follows from the row that happens to come first.
    """
    return sorted(line for line in table.splitlines() if line.strip("-"))


if __name__ == "__main__":
    sys.exit(main())

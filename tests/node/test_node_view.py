"""The cache of the node's pods."""

import asyncio
from typing import Any

from fakes.node import NODE
from fakes.objects import holder, vgpu
from kubeshare.kube.resources import PODS
from kubeshare.node.node_view import NodeVariable, NodeView
from kubeshare.simulator.control import FakeApiServer, run_virtual


def container(name: str, container_id: str = "") -> dict[str, Any]:
    return {"name": name, "ready": True} | ({"containerID": container_id} if container_id else {})


def test_containers_of_every_kind_are_known_by_their_ids_once_they_are_made() -> None:
    async def main() -> None:
        server = FakeApiServer()
        status = {
            "phase": "Running",
            "initContainerStatuses": [container("fetch", "containerd://1a")],
            "containerStatuses": [container("main", "containerd://2b"), container("waits")],
            "ephemeralContainerStatuses": [container("debug", "cri-o://3c")],
        }
        pod = {"metadata": {"name": "a", "namespace": "default", "uid": "u"}, "status": status}
        server.seed(PODS, pod | {"spec": {"nodeName": NODE}})
        async with server.client() as client:
            view = NodeView(client, NODE)
            view.pods.store.replace((await client.list(view.pods.resource)).items)
            assert view.containers() == {
                "1a": ("u", "fetch"),
                "2b": ("u", "main"),
                "3c": ("u", "debug"),
            }

    run_virtual(main())


def test_a_gpu_that_vanishes_stays_listed_for_holders_or_a_placeholder_only() -> None:
    async def main() -> None:
        async with FakeApiServer().client() as client:
            view = NodeView(client, NODE)
            view.vgpus.store.replace(
                [
                    vgpu("a", uuid="GPU-a", pool="static"),
                    vgpu("b", uuid="GPU-b", pool="static", holders=(holder("x"),)),
                    vgpu("c", uuid="GPU-c"),
                ]
            )
            assert view.promised() == {"GPU-b", "GPU-c"}

    run_virtual(main())


def test_of_environments_only_the_submitter_is_kept() -> None:
    secret = {"name": "PASSWORD", "value": "secret"}
    looked_up = {"name": "SUBMITTER", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    named = {"name": "SUBMITTER", "value": "Ada"}
    spec = {
        "nodeName": NODE,
        "containers": [
            {"name": "main", "env": [secret, named, named | {"value": "Eve"}]},
            {"name": "side", "env": [secret]},
        ],
        "initContainers": [{"name": "fetch", "env": [secret, looked_up]}],
    }

    async def main() -> None:
        server = FakeApiServer()
        server.seed(PODS, {"metadata": {"name": "a", "namespace": "default"}, "spec": spec})
        async with server.client() as client:
            view = NodeView(client, NODE)
            watch = asyncio.ensure_future(view.pods.run())
            await view.pods.wait_for_sync()
            watch.cancel()
            [pod] = view.pods.store.snapshot().values()
            found = (*pod.spec.containers, *pod.spec.init_containers)
            assert {each.name: each.env for each in found} == {
                "main": (NodeVariable("SUBMITTER", "Ada"),),
                "side": (),
                "fetch": (NodeVariable("SUBMITTER"),),
            }

    run_virtual(main())

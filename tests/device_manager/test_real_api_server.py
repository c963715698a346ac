"""Both programs with the rights of their own accounts, against a real API server.

What the API server in memory only imitates is real here: the CRDs' rules, JSON
patches, server-side apply, preconditions, admission, and RBAC. The tests play
kube-scheduler, kubelet and node agent; where it matters what follows a deletion,
Kubernetes' own garbage collector and namespace controller are at work.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import pytest
import yaml

from deadlines import DEADLINE_S
from kubeshare.api.types.constants import ANNOTATION_NODE, CONDITION_POD_SCHEDULED, LABEL_VGPU
from kubeshare.api.types.v1 import GPUNODES, SHAREPODS, VGPUS
from kubeshare.core.policies import policy
from kubeshare.device_manager.program import device_manager_program
from kubeshare.install import manifests
from kubeshare.kube import resources
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.controller.leader_election import LeaderElector
from kubeshare.kube.resources import EVENTS, LEASES, NODES, PODS
from kubeshare.lab import processes
from kubeshare.lab.control_plane.api_server import ApiServer
from kubeshare.scheduler.program import scheduler_program

pytestmark = pytest.mark.apiserver

Raw = dict[str, Any]

NAMESPACE = "real-life"
OTHER = "real-end"
SYSTEM = "kubeshare-system"
_COLUMNS = ["NAME", "PHASE", "READY", "GPUID", "NODE", "REQUEST", "LIMIT", "MEMORY"]
NAMESPACE_CONTROLLER = "--as=system:serviceaccount:kube-system:namespace-controller"
NOT_INSTALLED = {"Deployment", "DaemonSet"}
NO_PODS = {
    "kube-public": "none in the namespaces of Kubernetes (kube-*)",
    SYSTEM: "in kubeshare-system the device manager creates",
}
"""The namespaces in which SharePods get no pod, and what the condition says."""


@pytest.fixture(autouse=True)
def _long_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """No program ends because the API server is slow for some seconds."""
    defaults = LeaderElector.__init__.__kwdefaults__
    assert defaults is not None
    for name, seconds in (("duration", 60.0), ("renew_deadline", 50.0)):
        monkeypatch.setitem(defaults, name, seconds)


@pytest.fixture
def installed(apiserver: ApiServer) -> Iterator[ApiServer]:
    """Everything of KubeShare but its programs."""
    ours = manifests.load(manifests.Options())
    wanted = [manifest for manifest in ours if manifest["kind"] not in NOT_INSTALLED]
    wanted.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    apiserver.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(wanted))
    apiserver.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=180s")
    yield apiserver
    free = '{"metadata": {"finalizers": null}}'
    for name in apiserver.kubectl("get", "shp", "-n", NAMESPACE, "-o", "name").split():
        apiserver.kubectl("patch", name, "-n", NAMESPACE, "--type=merge", "-p", free)
    apiserver.kubectl("delete", "shp,pods", "--all", "-n", NAMESPACE, "--force")
    apiserver.kubectl("delete", "pods", "--all", "-n", SYSTEM, "--force", NAMESPACE_CONTROLLER)
    # Only those without holders can be deleted.
    left = '{"status": {"holders": null}}'
    for name in apiserver.kubectl("get", "vgpu", "-o", "name").split():
        apiserver.kubectl("patch", name, "--subresource=status", "--type=merge", "-p", left)
    apiserver.kubectl("delete", "vgpu", "--all")
    apiserver.kubectl("delete", "node,gpunode", "real")


class Cluster:
    """The rest of Kubernetes, and a node with one GPU."""

    def __init__(self, client: Client, kubelet: Client) -> None:
        self.client = client
        self.kubelet = kubelet

    async def add_node(self) -> None:
        await self.client.create(NODES, {"metadata": {"name": "real"}})
        status = {
            "allocatable": {"nvidia.com/gpu": "1"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        await self.client.merge_patch(NODES, "real", {"status": status}, subresource="status")
        gpu = {"uuid": "GPU-0a", "index": 0, "model": "V100", "memoryBytes": 16 << 30}
        await self.client.create(
            GPUNODES, {"metadata": {"name": "real"}, "spec": {"devices": [gpu]}}
        )
        ready = {"spec": {"taints": None}}
        await self.client.merge_patch(NODES, "real", ready)

    async def share(self, name: str, request: str, namespace: str = NAMESPACE) -> None:
        gpu = {"request": request, "memory": "1Gi"}
        spec = {"gpu": gpu, "containers": [{"name": "main", "image": "train:1"}]}
        body = {"metadata": {"name": name, "namespace": namespace}, "spec": spec}
        await self.client.create(SHAREPODS, body)

    async def run(self, name: str, namespace: str = NAMESPACE) -> Raw:
        """Bind a pod, and let it run."""
        target = {"target": {"apiVersion": "v1", "kind": "Node", "name": "real"}}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, **target}
        await self.client.post(PODS, name, "binding", body, namespace)
        conditions = [{"type": "Ready", "status": "True"}]
        known = {"podIP": "10.0.0.7", "startTime": "2026-01-01T00:00:30Z"}
        status = {"status": {"phase": "Running", "conditions": conditions} | known}
        return await self.client.merge_patch(PODS, name, status, namespace, subresource="status")

    async def end(self, name: str, namespace: str = NAMESPACE) -> None:
        """The kubelet says that the pod's containers are gone."""
        await self.kubelet.delete(PODS, name, namespace, grace=0)

    async def ready(self, gpuid: str) -> None:
        """Run the placeholder of a vGPU, and say which GPU it got."""
        placeholder = f"kubeshare-vgpu-{gpuid}"
        await eventually(lambda: self.client.get(PODS, placeholder, SYSTEM))
        await self.run(placeholder, SYSTEM)
        found = {"uuid": "GPU-0a", "model": "V100"}
        uuid = [{"op": "add", "path": f"/spec/{key}", "value": found[key]} for key in found]
        await self.client.json_patch(VGPUS, gpuid, uuid)

    async def decided(self, name: str, namespace: str = NAMESPACE) -> str:
        """The vGPU that Sched has chosen for a SharePod."""

        async def chosen() -> Any:
            return (await self.client.get(SHAREPODS, name, namespace))["spec"]["gpu"].get("id")

        return str(await eventually(chosen))

    async def going(self, name: str, namespace: str = NAMESPACE) -> None:
        """Wait until somebody has deleted a pod."""

        async def deleted() -> Any:
            return (await self.client.get(PODS, name, namespace))["metadata"].get(
                "deletionTimestamp"
            )

        await eventually(deleted)

    async def conditions(self, name: str, namespace: str = NAMESPACE) -> dict[str, Raw]:
        sharepod = await self.client.get(SHAREPODS, name, namespace)
        found = sharepod.get("status", {}).get("conditions", [])
        return {condition["type"]: condition for condition in found}

    async def holders(self, gpuid: str) -> list[Raw]:
        vgpu = await self.client.get(VGPUS, gpuid)
        found: list[Raw] = vgpu["status"]["holders"]
        return found


async def eventually(check: Callable[[], Awaitable[Any]], seconds: float = DEADLINE_S) -> Any:
    """What ``check`` returns as soon as it is something; a missing object is nothing."""
    async with asyncio.timeout(seconds):
        while True:
            try:
                if found := await check():
                    return found
            except NotFoundError:
                pass
            await asyncio.sleep(0.05)


@asynccontextmanager
async def programs(server: ApiServer) -> AsyncIterator[None]:
    def connect(account: str) -> Client:
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{SYSTEM}")
        user = f"system:serviceaccount:{SYSTEM}:{account}"
        return Client.connect(server.kubeconfig_for(user, groups))

    locality = policy("locality")
    async with connect("kubeshare-scheduler") as one, connect("kubeshare-device-manager") as two:
        started = [
            program
            for name in ("first", "second")
            for program in (
                scheduler_program(one, locality, instance=name, elect=True),
                device_manager_program(
                    two, locality, placeholder_image="none", instance=name, elect=True
                ),
            )
        ]
        tasks = [asyncio.create_task(program.run()) for program in started]
        try:
            yield
        finally:
            for program in started:
                program.stop()
            await asyncio.gather(*tasks)


async def _life(server: ApiServer) -> None:
    node = server.kubeconfig_for("system:node:real", ("system:nodes",))
    async with (
        Client.connect(server.kubeconfig) as client,
        Client.connect(node) as kubelet,
        programs(server),
    ):
        cluster = Cluster(client, kubelet)
        await cluster.add_node()
        for system, why in NO_PODS.items():
            spec = {"containers": [{"name": "main", "image": "train:1"}]}
            body = {"metadata": {"name": "no-pod", "namespace": system}, "spec": spec}
            await client.create(SHAREPODS, body)
            assert why in await eventually(partial(refusal, cluster, "no-pod", system))
            await client.delete(SHAREPODS, "no-pod", system)
        await cluster.share("a", "0.6")

        gpuid = await cluster.decided("a")
        for lease in ("kubeshare-scheduler", "kubeshare-device-manager"):
            leader = (await client.get(LEASES, lease, SYSTEM))["spec"]["holderIdentity"]
            assert leader in {"first", "second"}
        await cluster.ready(gpuid)
        await eventually(lambda: client.get(PODS, "a", NAMESPACE))
        pod = await cluster.run("a")

        async def named() -> bool:
            return [each["podUid"] for each in await cluster.holders(gpuid)] == [
                pod["metadata"]["uid"]
            ]

        await eventually(named)

        async def is_ready() -> bool:
            return (await cluster.conditions("a")).get("Ready", {}).get("status") == "True"

        await eventually(is_ready)
        shown = server.kubectl("get", "shp", "-n", NAMESPACE).splitlines()
        assert shown[0].split() == [*_COLUMNS, "WHY", "AGE"]
        row = ["a", "Running", "True", gpuid, "real", "0.6", "1", "1Gi"]
        assert shown[1].split()[:-1] == row
        wide = server.kubectl("get", "shp", "-n", NAMESPACE, "-o", "wide").splitlines()
        assert wide[0].split() == [*_COLUMNS, "WHY", "UUID", "MODEL", "MESSAGE", "IP", "AGE"]
        assert wide[1].split()[:-1] == [*row, "GPU-0a", "V100", "10.0.0.7"]
        assert "GPU-0a" in server.kubectl("get", "vgpu")
        server.kubectl("wait", "--for=condition=Ready", "shp/a", "-n", NAMESPACE, "--timeout=180s")
        status = (await client.get(SHAREPODS, "a", NAMESPACE))["status"]
        assert (status["podIP"], status["startTime"]) == ("10.0.0.7", "2026-01-01T00:00:30Z")

        await cluster.share("b", "0.6")

        async def waits() -> Any:
            return (await cluster.conditions("b")).get("Scheduled")

        assert "compute 0.4 left, 0.6 asked" in (await eventually(waits))["message"]
        shown = server.kubectl("get", "shp", "b", "-n", NAMESPACE).splitlines()
        assert shown[1].split()[:-1] == ["b", "0.6", "1", "1Gi", "NoRoom"]

        async def reported() -> bool:
            events = (await client.list(EVENTS, NAMESPACE)).items
            return any("compute 0.4 left" in event["note"] for event in events)

        await eventually(reported)
        await client.delete(SHAREPODS, "a", NAMESPACE)
        await cluster.going("a")
        await cluster.end("a")
        await client.json_patch(
            VGPUS,
            gpuid,
            [{"op": "remove", "path": "/status/holders/0"}],
            subresource="status",
        )

        async def b_is_decided() -> Any:
            """On this vGPU, when Sched is quicker than DevMgr, else on the next."""
            for pod in (await client.list(PODS, SYSTEM)).items:
                if pod["metadata"].get("deletionTimestamp"):
                    await cluster.end(pod["metadata"]["name"], SYSTEM)
            return (await client.get(SHAREPODS, "b", NAMESPACE))["spec"]["gpu"].get("id")

        await eventually(b_is_decided)


def test_a_whole_life_with_the_rights_of_the_programs_own_accounts(installed: ApiServer) -> None:
    asyncio.run(_life(installed))


async def _plain_pods(server: ApiServer) -> None:
    node = server.kubeconfig_for("system:node:real", ("system:nodes",))
    async with (
        Client.connect(server.kubeconfig) as client,
        Client.connect(node) as kubelet,
        programs(server),
    ):
        cluster = Cluster(client, kubelet)
        await cluster.add_node()
        for name, memory in (("small", "1Gi"), ("huge", "99Gi")):
            asked = {"kubeshare.nthu/request": "0.3", "kubeshare.nthu/memory": memory}
            metadata = {"name": name, "namespace": NAMESPACE, "annotations": asked}
            spec = {"containers": [{"name": "main", "image": "train:1"}]}
            await client.create(PODS, {"metadata": metadata, "spec": spec})

        async def condition(name: str) -> Any:
            pod = await client.get(PODS, name, NAMESPACE)
            conditions = pod["status"].get("conditions", [])
            ours = [one for one in conditions if one["type"] == CONDITION_POD_SCHEDULED]
            return ours and ours[0]["reason"] != "Creating" and ours[0]

        async def vgpu() -> Any:
            return [each["metadata"]["name"] for each in (await client.list(VGPUS)).items]

        [gpuid] = await eventually(vgpu)
        await cluster.ready(gpuid)
        assert (await eventually(partial(condition, "small")))["reason"] == "Bound"

        async def let_go() -> Any:
            pod = await client.get(PODS, "small", NAMESPACE)
            return None if pod["spec"].get("schedulingGates") else pod

        small = await eventually(let_go)
        assert small["metadata"]["annotations"][ANNOTATION_NODE] == "real"
        assert small["metadata"]["labels"][LABEL_VGPU] == gpuid
        assert (await eventually(partial(condition, "huge")))["reason"] == "NeverFits"
        assert (await client.get(PODS, "huge", NAMESPACE))["spec"]["schedulingGates"]


@pytest.mark.slow
def test_plain_pods_wait_and_are_let_go_with_the_rights_of_the_programs_own_accounts(
    installed: ApiServer,
) -> None:
    asyncio.run(_plain_pods(installed))


async def _nested(server: ApiServer) -> None:
    node = server.kubeconfig_for("system:node:real", ("system:nodes",))
    nonsense = "[" * 9000 + "]" * 9000
    strange = (
        '{"apiVersion": "kubeshare.nthu/v1", "kind": "SharePod", "metadata": {"name": "strange"},'
        '"spec": {"gpu": {"request": "0.2", "memory": "1Gi"},'
        '"containers": [{"name": "main", "image": "train:1"}], "nonsense": ' + nonsense + "}}"
    )
    where = f"/apis/kubeshare.nthu/v1/namespaces/{NAMESPACE}/sharepods"
    async with Client.connect(server.kubeconfig) as client, Client.connect(node) as kubelet:
        cluster = Cluster(client, kubelet)
        await cluster.add_node()
        # One is in the first list, the other comes by the watch.
        server.kubectl("create", "--raw", where, "-f", "-", stdin=strange)
        await cluster.share("before", "0.2")
        async with programs(server):
            await cluster.ready(await cluster.decided("before"))
            again = strange.replace('"strange"', '"again"')
            server.kubectl("create", "--raw", where, "-f", "-", stdin=again)
            await cluster.share("after", "0.2")
            for name in ("before", "after"):
                await eventually(partial(client.get, PODS, name, NAMESPACE))
            # A field that a pod does not have is no longer dropped without a word.
            for name in ("strange", "again"):
                refused = await eventually(partial(refusal, cluster, name))
                assert 'unknown field "spec.nonsense"' in refused


async def refusal(cluster: Cluster, name: str, namespace: str = NAMESPACE) -> str:
    """Why the API server refuses the pod of a SharePod, as its condition says; or nothing."""
    ready = (await cluster.conditions(name, namespace)).get("Ready", {})
    return str(ready["message"]) if ready.get("reason") == "InvalidPod" else ""


@pytest.mark.slow
def test_what_an_author_nests_absurdly_deep_ends_no_program(installed: ApiServer) -> None:
    asyncio.run(_nested(installed))


@contextmanager
def what_follows_deletions(server: ApiServer) -> Iterator[None]:
    """Kubernetes' controllers that act on what is deleted."""
    argv = [
        *("setpriv", "--pdeathsig", "KILL", str(server.programs / "kube-controller-manager")),
        *("--kubeconfig", str(server.kubeconfig), "--secure-port=0", "--leader-elect=false"),
        "--controllers=garbage-collector-controller,namespace-controller",
    ]
    running = processes.start(argv, server.settings.folder / "controller-manager.log")
    try:
        yield
    finally:
        processes.stop([running], gently=False)


async def _deletions(server: ApiServer) -> None:
    node = server.kubeconfig_for("system:node:real", ("system:nodes",))
    async with (
        Client.connect(server.kubeconfig) as client,
        Client.connect(node) as kubelet,
        programs(server),
    ):
        cluster = Cluster(client, kubelet)
        await cluster.add_node()
        await client.create(resources.NAMESPACES, {"metadata": {"name": OTHER}})
        places = {"gone": NAMESPACE, "watched": NAMESPACE, "orphan": NAMESPACE, "swept": OTHER}
        for name, namespace in places.items():
            await cluster.share(name, "0.2", namespace)
        await cluster.ready(await cluster.decided("gone"))
        for name, namespace in places.items():
            await eventually(partial(client.get, PODS, name, namespace))
            await cluster.run(name, namespace)

        async def has_gone(name: str, namespace: str = NAMESPACE) -> bool:
            try:
                await client.get(SHAREPODS, name, namespace)
            except NotFoundError:
                return True
            return False

        for name, how in (("gone", "background"), ("watched", "foreground")):
            server.kubectl(
                "delete", "shp", name, "-n", NAMESPACE, "--wait=false", f"--cascade={how}"
            )
            await cluster.going(name)
            assert not await has_gone(name), "its containers have not stopped"
            await cluster.end(name)
            await eventually(partial(has_gone, name))

        await asyncio.to_thread(
            server.kubectl, "delete", "shp", "orphan", "-n", NAMESPACE, "--cascade=orphan"
        )
        orphan = (await client.get(PODS, "orphan", NAMESPACE))["metadata"]
        assert not orphan.get("ownerReferences")
        assert "deletionTimestamp" not in orphan

        server.kubectl("delete", "namespace", OTHER, "--wait=false")
        await cluster.going("swept", OTHER)
        assert not await has_gone("swept", OTHER)
        await cluster.end("swept", OTHER)
        await asyncio.to_thread(
            server.kubectl, "wait", "--for=delete", f"namespace/{OTHER}", "--timeout=180s"
        )


@pytest.mark.slow
def test_a_deleted_sharepod_goes_after_its_pod_however_it_is_deleted(installed: ApiServer) -> None:
    with what_follows_deletions(installed):
        asyncio.run(_deletions(installed))

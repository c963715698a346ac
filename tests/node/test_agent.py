"""The whole agent with a kubelet, a daemon and an API server."""

import asyncio
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from deadlines import DEADLINE_S
from fakes.node import (
    A_GPU,
    NODE,
    OTHER_GPU,
    Cluster,
    FakeKubelet,
    FixedGpus,
    claim_reference,
    gpu_spec_file,
    write_daemon_status,
)
from kubeshare.api.types.constants import LABEL_ESCAPES, NAMESPACE, placeholder_name
from kubeshare.api.types.v1 import GPUNODES, VGPUS
from kubeshare.kube.client.client import Client
from kubeshare.kube.controller.runtime import Program
from kubeshare.kube.resources import EVENTS, NODES, PODS, RESOURCE_SLICES
from kubeshare.node import agent
from kubeshare.node.cgroups import CgroupIds
from kubeshare.node.escapes.policy import EscapePolicy
from kubeshare.node.gpus.discovery import GpuProcess
from kubeshare.node.library import InstalledLibrary
from kubeshare.node.paths import NodePaths
from kubeshare.node.proto import dra_pb2
from kubeshare.simulator.control import FakeApiServer, until

CLAIM = dra_pb2.Claim(**vars(claim_reference("a")))


class Lab:
    """A node that an agent runs on.

    Attributes:
        kubelet: the node's kubelet.
        paths: the node's folders.
        gpus: its GPUs and who uses them.
        used: where it looked for the API server and the driver.
    """

    def __init__(
        self, server: FakeApiServer, paths: NodePaths, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.kubelet = FakeKubelet()
        self.paths = paths
        self.gpus = FixedGpus()
        self.server = server
        self.used: list[object] = []
        monkeypatch.setattr(Client, "connect", self._connect)
        monkeypatch.setattr(agent, "NvmlGpus", self._gpus)

    def _connect(self, kubeconfig: str) -> Client:
        self.used.append(kubeconfig)
        return self.server.client()

    def _gpus(self, driver_root: Path) -> FixedGpus:
        self.used.append(driver_root)
        return self.gpus

    @asynccontextmanager
    async def agent(self, escapes: EscapePolicy = "report") -> AsyncIterator[Program]:
        """Run an agent with this option until the block ends, then stop it as SIGTERM does."""
        program = await agent.build(
            agent.Settings(
                node=NODE,
                paths=self.paths,
                driver_root=Path("/driver"),
                library=InstalledLibrary(Path("/lib.so"), Path("/preload")),
                escapes=escapes,
                kubeconfig="kubeconfig",
                port=0,
            )
        )
        running = asyncio.create_task(program.run())
        try:
            await until(self.paths.registration_socket.exists)
            await self.kubelet.register(self.paths.registration_socket)
            yield program
        finally:
            program.stop()
            await running

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        """Run a test's body beside the kubelet and the daemon."""

        async def everything() -> None:
            daemon = asyncio.create_task(self._answer_grants())
            async with self.kubelet.serve_pod_resources(self.paths.pod_resources_socket):
                await main()
            daemon.cancel()

        asyncio.run(everything())

    async def _answer_grants(self) -> None:
        grants = self.paths.run_folder / "grants"
        while True:
            for file in list(grants.glob("*.json")):
                write_daemon_status(self.paths, file.stem, "ACTIVE")
            await asyncio.sleep(0.005)


@pytest.fixture
def paths() -> Iterator[NodePaths]:
    """A node's folders in a short place: the path of a socket has 107 bytes at most."""
    with tempfile.TemporaryDirectory() as folder:
        paths = NodePaths(Path(folder))
        gpu_spec_file(paths)
        yield paths


@pytest.fixture
def lab(
    server: FakeApiServer, cluster: Cluster, paths: NodePaths, monkeypatch: pytest.MonkeyPatch
) -> Lab:
    """A node without an agent yet."""
    return Lab(server, paths, monkeypatch)


def uuid_of(server: FakeApiServer, vgpu: str) -> str:
    stored = server.stored(VGPUS, vgpu)
    assert stored is not None
    return str(stored["spec"]["uuid"])


def test_a_pod_gets_its_part_from_placeholder_to_release(
    lab: Lab, cluster: Cluster, server: FakeApiServer
) -> None:
    async def main() -> None:
        async with lab.agent() as program:
            assert program.name == "kubeshare-node-agent"
            assert program.health is not None
            assert "time-quotas" in {controller.name for controller in program._controllers}
            assert lab.used == [
                "kubeconfig",
                Path("/driver"),
            ]
            assert server.stored(GPUNODES, NODE) is not None
            await until(lambda: server.all(RESOURCE_SLICES))
            cluster.add_vgpu("red", cluster.holder("a"), uuid="")
            cluster.add_pod("a")
            preparation = asyncio.create_task(lab.kubelet.prepare(CLAIM))
            cluster.add_placeholder("red")
            lab.kubelet.devices[NAMESPACE, placeholder_name("red")] = {
                "nvidia.com/gpu": [A_GPU.uuid]
            }
            answer = (await preparation)[CLAIM.uid]
            assert answer.error == ""
            assert uuid_of(server, "red") == A_GPU.uuid
            assert len(answer.devices) == 2
            undone = await lab.kubelet.unprepare(CLAIM)
            assert undone[CLAIM.uid].error == ""
            assert cluster.holders("red") == []

    lab.run(main)


@pytest.fixture
def unheld(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """A process without the library; only the name of its cgroup is made up: that of pod ``a``."""
    of_a = CgroupIds(pods=("a-uid",))
    monkeypatch.setattr("kubeshare.node.escapes.sampling.parse_cgroup", lambda _: of_a)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "label", "is_killed"),
    [("kill", None, True), ("report", "kill", True), ("kill", "report", False)],
)
def test_who_uses_a_gpu_past_the_library_is_killed_where_the_option_or_the_nodes_label_says_so(
    lab: Lab,
    cluster: Cluster,
    unheld: subprocess.Popen[bytes],
    option: EscapePolicy,
    label: str | None,
    *,
    is_killed: bool,
) -> None:
    async def main() -> None:
        cluster.add_vgpu("red", cluster.holder("a"))
        cluster.add_pod("a")
        labels = {LABEL_ESCAPES: label} if label else {}
        lab.server.change(NODES, NODE, "", lambda node: node["metadata"].update(labels=labels))
        async with lab.agent(option):
            answer = (await lab.kubelet.prepare(CLAIM))[CLAIM.uid]
            assert answer.error == ""
            lab.gpus.used_by.append(GpuProcess(A_GPU.uuid, unheld.pid, 64 << 20))
            await until(lambda: lab.server.all(EVENTS))
            if is_killed:
                assert await asyncio.to_thread(unheld.wait, DEADLINE_S) == -signal.SIGKILL
        # The agent has ended: what it has not killed by now it never kills.
        assert (unheld.poll() is None) is not is_killed
        [event] = lab.server.all(EVENTS)
        assert (event["reason"], event["regarding"]["uid"]) == ("UnheldProcess", "a-uid")

    lab.run(main)


def test_what_one_agent_has_prepared_the_next_one_undoes(lab: Lab, cluster: Cluster) -> None:
    async def main() -> None:
        cluster.add_vgpu("red", cluster.holder("a"))
        cluster.add_pod("a")
        async with lab.agent():
            first = await lab.kubelet.prepare(CLAIM)
        assert cluster.holders("red") == ["a"]
        async with lab.agent():
            assert await lab.kubelet.prepare(CLAIM) == first
            await lab.kubelet.unprepare(CLAIM)
        assert cluster.holders("red") == []

    lab.run(main)


def test_a_pod_that_went_while_no_agent_was_there_is_released_at_the_start(
    lab: Lab, cluster: Cluster, server: FakeApiServer
) -> None:
    async def main() -> None:
        cluster.add_vgpu("red", cluster.holder("a"))
        cluster.add_pod("a")
        server.remove(PODS, "a", "default")
        async with lab.agent():
            await until(lambda: cluster.holders("red") == [])

    lab.run(main)


def test_two_pods_are_prepared_side_by_side(lab: Lab, cluster: Cluster) -> None:
    async def main() -> None:
        other = dra_pb2.Claim(**vars(claim_reference("b")))
        async with lab.agent():
            for pod in ("a", "b"):
                cluster.add_pod(pod)
            cluster.add_vgpu("red", cluster.holder("b"))
            waiting = asyncio.create_task(lab.kubelet.prepare(CLAIM))
            # The first has no holder yet and waits; the second is not held up by it.
            assert (await lab.kubelet.prepare(other))[other.uid].error == ""
            assert not waiting.done()
            cluster.add_vgpu("red", cluster.holder("b"), cluster.holder("a"))
            assert (await waiting)[CLAIM.uid].error == ""

    lab.run(main)


def plugin_offers(lab: Lab) -> None:
    lab.kubelet.offered["nvidia.com/gpu"] = [A_GPU.uuid]


def pod_has(lab: Lab) -> None:
    """The device plugin has stopped again; a pod keeps the GPU that it got."""
    lab.kubelet.devices["default", "native"] = {"nvidia.com/gpu": [A_GPU.uuid]}


def driver_offers(lab: Lab) -> None:
    attributes = {"uuid": {"string": A_GPU.uuid}}
    spec = {"driver": "gpu.nvidia.com", "nodeName": NODE, "pool": {"name": NODE}}
    devices = [{"name": "gpu-0", "attributes": attributes}]
    lab.server.seed(
        RESOURCE_SLICES, {"metadata": {"name": "s"}, "spec": spec | {"devices": devices}}
    )


def other_gpu_is_offered(lab: Lab) -> None:
    lab.kubelet.offered["nvidia.com/gpu"] = [OTHER_GPU.uuid]


def placeholder_has(lab: Lab) -> None:
    """It is being deleted, since its vGPU has become static."""
    lab.kubelet.devices[NAMESPACE, placeholder_name("red")] = {"nvidia.com/gpu": [A_GPU.uuid]}


def add_static_vgpu(lab: Lab, cluster: Cluster) -> None:
    cluster.add_vgpu("red", cluster.holder("a"))
    cluster.add_pod("a")
    lab.server.change(VGPUS, "red", "", lambda vgpu: vgpu["spec"].update(pool="static"))


@pytest.mark.parametrize(
    ("other", "refused"),
    [
        (plugin_offers, True),
        (pod_has, True),
        (driver_offers, True),
        (other_gpu_is_offered, False),
        (placeholder_has, False),
    ],
)
def test_a_share_of_a_static_vgpu_is_refused_while_another_pod_may_have_the_gpu(
    lab: Lab, cluster: Cluster, other: Callable[[Lab], None], *, refused: bool
) -> None:
    async def main() -> None:
        add_static_vgpu(lab, cluster)
        other(lab)
        async with lab.agent():
            answer = (await lab.kubelet.prepare(CLAIM))[CLAIM.uid]
        assert (f"KubeShare owns GPU {A_GPU.uuid}" in answer.error) == refused, answer.error

    lab.run(main)


def test_a_share_of_a_static_vgpu_that_was_granted_stays(lab: Lab, cluster: Cluster) -> None:
    async def main() -> None:
        add_static_vgpu(lab, cluster)
        async with lab.agent():
            first = await lab.kubelet.prepare(CLAIM)
            plugin_offers(lab)
            assert await lab.kubelet.prepare(CLAIM) == first

    lab.run(main)


def test_a_share_of_a_static_vgpu_is_refused_while_the_kubelet_does_not_answer(
    lab: Lab, cluster: Cluster
) -> None:
    async def main() -> None:
        add_static_vgpu(lab, cluster)
        async with lab.agent():
            lab.kubelet.answers = False
            answer = (await lab.kubelet.prepare(CLAIM))[CLAIM.uid]
        assert "the kubelet does not answer" in answer.error

    lab.run(main)

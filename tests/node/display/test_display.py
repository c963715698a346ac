"""gpu-manager's display API: its names, its units, and what is asked for it."""

import asyncio
import json
from typing import Any

import pytest

import kubeshare
from fakes.node import A_GPU, OTHER_GPU, Cluster, FixedGpus, Running
from kubeshare.core.units import GI
from kubeshare.dialects.vcuda import BLOCK, CORE, MEMORY
from kubeshare.kube.controller.health import UnavailableError
from kubeshare.kube.resources import PODS, Raw
from kubeshare.node.agent import Agent
from kubeshare.node.cgroups import CgroupIds
from kubeshare.node.display.pages import KEPT_SECONDS, Display
from kubeshare.node.escapes.detection import GpuUse, Sample
from kubeshare.simulator.control import run_virtual
from kubeshare.tokens.files.grants import GRANT_VERSION, Grant, GrantedPod, GrantedShare
from kubeshare.tokens.files.statuses import DaemonMissingError


def entry(claim: str, gpu: str, name: str = "", **more: Any) -> Raw:
    """What the token daemon says of a grant on one GPU."""
    used = {"share": 0.5, "memoryUsedBytes": BLOCK, "memoryTotalBytes": 16 * GI}
    return {"claim": claim, "gpu": gpu, "shareName": name} | used | more


def grant(claim: str, pod: str, gpu: str = A_GPU.uuid) -> Grant:
    share = GrantedShare(
        uuid=gpu,
        memory_total_bytes=16 * GI,
        request_micros=500_000,
        limit_micros=500_000,
        memory_bytes=GI,
    )
    return Grant(
        version=GRANT_VERSION,
        claim=claim,
        gpus=(share,),
        pod=GrantedPod(namespace="default", name=pod, uid=f"{pod}-uid"),
    )


def process(pid: int, container: str, gpu: str = A_GPU.uuid) -> GpuUse:
    cgroup = CgroupIds(pods=(), containers=(container,))
    return GpuUse(uuid=gpu, pid=pid, started=1, memory_bytes=GI, cgroup=cgroup)


def sample(*grants: Grant, uses: tuple[GpuUse, ...] = ()) -> Sample:
    containers = {"id-main": ("a-uid", "main"), "id-side": ("a-uid", "side")}
    return Sample(grants=grants, uses=uses, containers=containers, connected={}, accounts={})


def add_pod(cluster: Cluster, name: str, annotations: dict[str, str], **asked: str) -> None:
    """A pod whose containers ask for ``CORES/BLOCKS``, or for no share with ``""``."""
    containers: list[Raw] = []
    for container, amounts in asked.items():
        cores, _, blocks = amounts.partition("/")
        limits = ({CORE: cores} if cores else {}) | ({MEMORY: blocks} if blocks else {})
        containers.append({"name": container, "resources": {"limits": limits}})
    cluster.add_pod(name, phase="Running", annotations=annotations)
    # The user is the one that the first container names.
    for made, user in zip(containers, ("Ada", "Eve"), strict=False):
        made["env"] = [{"name": "SUBMITTER", "value": user}]
    cluster.server.change(
        PODS, name, "default", lambda pod: pod["spec"].update(containers=containers)
    )


class Daemon:
    """What driver and token daemon answer, and how often they were asked."""

    def __init__(self, *entries: Raw) -> None:
        self.entries = entries
        self.asked = 0
        self.fault = ""

    def snapshot(self) -> Raw:
        self.asked += 1
        if self.fault:
            raise DaemonMissingError(self.fault)
        return {"claims": self.entries}


def display(agent: Agent, daemon: Daemon, found: Sample | None) -> Display:
    return Display(
        agent.view,
        agent.inventory,
        sample=lambda: found,
        snapshot=daemon.snapshot,
        addresses=FixedGpus().addresses,
    )


def test_the_use_of_each_container_has_gpu_managers_names_and_units(
    cluster: Cluster, agent: Running
) -> None:
    add_pod(cluster, "a", {"clusterName": "here"}, main="50/4", side="200/1k", log="")
    daemon = Daemon(
        entry("c.main", A_GPU.uuid, "main", share=0.4567),
        entry("c.side", OTHER_GPU.uuid, "side", share=1.0, memoryUsedBytes=0),
        entry("another", A_GPU.uuid),
    )
    uses = (process(31, "id-main"), process(7, "id-main"), process(9, "id-of-another-pod"))
    found = sample(grant("c.main", "a"), grant("c.side", "a", OTHER_GPU.uuid), uses=uses)

    async def main() -> Raw:
        async with agent() as running:
            answer: Raw = json.loads(await display(running, daemon, found).usage())
            return answer

    assert run_virtual(main()) == {
        "usage": {
            "a-uid": {
                "stat": {
                    "main": {
                        "dev": [
                            {
                                "id": "00000000:00:00.0",
                                "card_idx": "0",
                                "gpu": 45.7,
                                "mem": 256,
                                "pids": [7, 31],
                                "device_mem": 16384,
                            }
                        ]
                    },
                    "side": {
                        "dev": [
                            {
                                "id": "00000000:01:00.0",
                                "card_idx": "1",
                                "gpu": 100.0,
                                "mem": 0,
                                "pids": [],
                                "device_mem": 16384,
                            }
                        ]
                    },
                },
                "project": "default",
                "user": "Ada",
                "cluster": "here",
                "spec": {
                    "main": {"gpu": 0.5, "mem": 1024},
                    "side": {"gpu": 2.0, "mem": 256_000},
                    "log": {"gpu": 0.0, "mem": 0},
                },
            }
        }
    }


def test_only_pods_of_gaia_that_have_their_share_are_listed(
    cluster: Cluster, agent: Running
) -> None:
    add_pod(cluster, "a", {}, main="100")
    add_pod(cluster, "waits", {}, main="50/4")
    add_pod(cluster, "other", {}, main="")
    for name in ("a", "waits"):
        cluster.server.change(PODS, name, "default", _name_no_user)
    daemon = Daemon(entry("a", A_GPU.uuid), entry("o", A_GPU.uuid))

    async def main() -> Raw:
        async with agent() as running:
            shown = display(running, daemon, sample(grant("a", "a"), grant("o", "other")))
            answer: Raw = json.loads(await shown.usage())
            return answer

    found = run_virtual(main())["usage"]
    assert list(found) == ["a-uid"]
    assert list(found["a-uid"]["stat"]) == ["main"]
    assert (found["a-uid"]["user"], found["a-uid"]["cluster"]) == ("", "")


def _name_no_user(pod: Raw) -> None:
    del pod["spec"]["containers"][0]["env"]


def test_many_clients_ask_the_daemon_once_a_second(agent: Running) -> None:
    daemon = Daemon()

    async def main() -> None:
        async with agent() as running:
            shown = display(running, daemon, sample())
            assert set(await asyncio.gather(*(shown.usage() for _ in range(20)))) == {
                b'{"usage":{}}'
            }
            assert daemon.asked == 1
            await asyncio.sleep(KEPT_SECONDS)
            await shown.usage()
            assert daemon.asked == 2

    run_virtual(main())


def test_many_clients_ask_a_daemon_that_fails_once_a_second(agent: Running) -> None:
    daemon = Daemon()
    daemon.fault = "no token daemon answers"

    async def main() -> None:
        async with agent() as running:
            shown = display(running, daemon, sample())
            asked = await asyncio.gather(
                *(shown.usage() for _ in range(20)), return_exceptions=True
            )
            assert {repr(each) for each in asked} == {repr(UnavailableError(daemon.fault))}
            assert daemon.asked == 1
            daemon.fault = ""
            await asyncio.sleep(KEPT_SECONDS)
            assert await shown.usage() == b'{"usage":{}}'
            assert daemon.asked == 2

    run_virtual(main())


@pytest.mark.parametrize("found", [None, sample()])
def test_what_cannot_be_read_now_is_an_error_with_the_reason(
    agent: Running, found: Sample | None
) -> None:
    daemon = Daemon()
    daemon.fault = "no token daemon answers"

    async def main() -> None:
        async with agent() as running:
            words = "not read yet" if found is None else daemon.fault
            with pytest.raises(UnavailableError, match=words):
                await display(running, daemon, found).usage()

    run_virtual(main())


def test_the_graph_says_what_is_left_of_each_gpu(cluster: Cluster, agent: Running) -> None:
    cluster.add_vgpu("red", Cluster.holder("a"))

    async def main() -> tuple[Raw, Raw]:
        async with agent() as running:
            shown = display(running, Daemon(), None)
            return json.loads(await shown.graph()), json.loads(await shown.version())

    graph, version = run_virtual(main())
    assert graph["graph"].splitlines()[-2:] == [
        f"├── GPU0  V100  16Gi  {A_GPU.uuid}  left: 0.7, 15Gi",
        f"└── GPU1  V100  16Gi  {OTHER_GPU.uuid}  left: 1, 16Gi",
    ]
    assert version == {"version": kubeshare.__version__}

"""A pod whose containers use different shares: all of its grants, or none."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from fakes.node import (
    A_GPU,
    OTHER_GPU,
    Cluster,
    FixedGpus,
    Running,
    claim_reference,
    write_daemon_status,
)
from kubeshare.dialects.vcuda import CORE, MEMORY
from kubeshare.kube.resources import EVENTS, PODS
from kubeshare.node.agent import Agent
from kubeshare.node.dra import cdi
from kubeshare.node.dra.driver import ClaimReference, ClaimRefusedError, PreparedDevice
from kubeshare.node.paths import NodePaths
from kubeshare.simulator.control import FakeApiServer, run_virtual

CLAIM = claim_reference("a")
LEFT, RIGHT = f"{CLAIM.uid}.left", f"{CLAIM.uid}.right"
KEY = "kubeshare.nthu/share."
ANNOTATIONS = {
    f"{KEY}left": "request=0.3,memory=1Gi,containers=main",
    f"{KEY}right": "request=0.3,memory=1Gi,containers=side",
}


def holder(share: str, parts: int = 2) -> dict[str, Any]:
    return Cluster.holder("a") | {"share": share, "parts": parts}


@pytest.fixture
def apart(cluster: Cluster, paths: NodePaths) -> Cluster:
    """Pod ``a``: both of its containers have a share of vGPU ``red``, and the daemon agrees."""
    cluster.add_pod("a", claimed=True, annotations=ANNOTATIONS)
    cluster.add_vgpu("red", holder("left"), holder("right"), Cluster.holder("b"))
    write_daemon_status(paths, LEFT, "ACTIVE")
    write_daemon_status(paths, RIGHT, "ACTIVE")
    return cluster


def prepare(running: Running, claim: ClaimReference = CLAIM) -> list[PreparedDevice]:
    async def main() -> list[PreparedDevice]:
        async with running() as agent:
            return await agent.prepare(claim)

    return run_virtual(main())


def unprepare(running: Running) -> None:
    async def main() -> None:
        async with running() as agent:
            await agent.unprepare(CLAIM)

    run_virtual(main())


def refusal(running: Running, claim: ClaimReference = CLAIM) -> str:
    with pytest.raises(ClaimRefusedError) as caught:
        prepare(running, claim)
    return str(caught.value)


def grants(paths: NodePaths) -> dict[str, Any]:
    files = sorted((paths.run_folder / "grants").glob("*.json"))
    return {file.stem: json.loads(file.read_text()) for file in files}


def nothing_is_left(paths: NodePaths) -> bool:
    return not grants(paths) and not cdi.claims(paths.dynamic_cdi_folder)


@pytest.mark.usefixtures("apart")
def test_each_container_gets_the_grant_of_its_own_share(agent: Running, paths: NodePaths) -> None:
    devices = prepare(agent)
    gpu = f"nvidia.com/gpu={A_GPU.uuid}"
    assert [(device.request, device.cdi_devices) for device in devices] == [
        ("container-0-request-0", (gpu, f"kubeshare.nthu/claim={LEFT}")),
        ("container-1-request-0", (gpu, f"kubeshare.nthu/claim={RIGHT}")),
    ]
    written = grants(paths)
    assert {name: [gpu["share"] for gpu in grant["gpus"]] for name, grant in written.items()} == {
        LEFT: ["left"],
        RIGHT: ["right"],
    }
    assert {grant["pod"]["uid"] for grant in written.values()} == {"a-uid"}
    assert cdi.claims(paths.dynamic_cdi_folder) == {CLAIM.uid}


def test_a_gpu_and_a_half_are_one_grant_for_all_containers(
    cluster: Cluster, agent: Running, paths: NodePaths
) -> None:
    cluster.add_pod("a", claimed=True, annotations={"kubeshare.nthu/request": "1.5"})
    cluster.add_vgpu("red", holder("whole"))
    cluster.add_vgpu("blue", holder("rest"), uuid=OTHER_GPU.uuid)
    write_daemon_status(paths, f"{CLAIM.uid}.rest", "ACTIVE")
    both = prepare(agent)
    (name,) = grants(paths)
    assert name == f"{CLAIM.uid}.rest"
    assert {device.cdi_devices for device in both} == {
        (
            f"nvidia.com/gpu={OTHER_GPU.uuid}",
            f"nvidia.com/gpu={A_GPU.uuid}",
            f"kubeshare.nthu/claim={name}",
        )
    }


def test_it_waits_until_the_holder_of_each_share_names_the_pod(
    apart: Cluster, agent: Running, paths: NodePaths
) -> None:
    apart.add_vgpu("red", holder("left"))
    assert "of the 2 vGPUs that it shares, 1 name this pod" in refusal(agent)
    assert nothing_is_left(paths)


@pytest.mark.usefixtures("apart")
def test_one_grant_that_the_daemon_refuses_leaves_nothing(agent: Running, paths: NodePaths) -> None:
    write_daemon_status(paths, RIGHT, "REFUSED", "memory would be over-committed")
    assert "REFUSED: memory would be over-committed" in refusal(agent)
    assert nothing_is_left(paths)


@pytest.mark.usefixtures("apart")
def test_one_grant_that_the_daemon_does_not_answer_leaves_nothing(
    agent: Running, paths: NodePaths
) -> None:
    (paths.run_folder / "status" / f"{RIGHT}.json").unlink()
    assert "does not answer" in refusal(agent)
    assert nothing_is_left(paths)


def test_a_container_that_uses_no_share_is_refused_by_its_name(
    apart: Cluster, agent: Running, paths: NodePaths
) -> None:
    both = ANNOTATIONS | {f"{KEY}right": "request=0.3,memory=1Gi,containers=other"}
    apart.add_pod("a", claimed=True, annotations=both)
    assert "pod default/a: container side asks for kubeshare.nthu/vgpu" in refusal(agent)
    assert nothing_is_left(paths)


@pytest.mark.parametrize("known", [True, False])
def test_a_pod_that_the_watch_does_not_show_yet_is_read(
    apart: Cluster, server: FakeApiServer, agent: Running, *, known: bool
) -> None:
    apart.add_pod("a", annotations=ANNOTATIONS)
    if not known:
        server.remove(PODS, "a", "default")

    async def main() -> list[PreparedDevice]:
        async with agent() as running:
            await asyncio.sleep(1)
            server.freeze_watches()
            apart.add_pod("a", claimed=True, annotations=ANNOTATIONS)
            return await running.prepare(CLAIM)

    assert len(run_virtual(main())) == 2


def test_a_claim_that_the_pods_status_does_not_name_attaches_no_shares(
    apart: Cluster, agent: Running, paths: NodePaths
) -> None:
    by_hand = apart.add_claim("a", "by-hand")
    assert "does not say which container made the request" in refusal(agent, by_hand)
    apart.server.remove(PODS, "a", "default")
    assert "not found" in refusal(agent)
    assert nothing_is_left(paths)


def test_a_namesake_says_nothing_of_the_containers_of_a_pod(
    apart: Cluster, agent: Running, paths: NodePaths
) -> None:
    pod = apart.server.stored(PODS, "a", "default")
    assert pod is not None
    apart.server.remove(PODS, "a", "default")
    apart.server.seed(PODS, pod | {"metadata": pod["metadata"] | {"uid": "new-uid"}})
    assert "does not say which container made the request" in refusal(agent)
    assert nothing_is_left(paths)


@pytest.mark.usefixtures("apart")
def test_preparing_again_after_a_restart_gives_the_same(agent: Running, paths: NodePaths) -> None:
    first, written = prepare(agent), grants(paths)
    assert prepare(agent) == first
    assert grants(paths) == written


def test_other_annotations_change_nothing_of_what_is_prepared(
    apart: Cluster, agent: Running, paths: NodePaths
) -> None:
    apart.add_vgpu("red", holder("left"))
    apart.add_vgpu("blue", holder("right"), uuid=OTHER_GPU.uuid)
    prepare(agent)
    written = grants(paths)
    joined = ANNOTATIONS | {f"{KEY}right": "request=0.3,memory=1Gi,containers=main+side"}
    apart.add_pod("a", claimed=True, annotations=joined)
    assert f"its grant {LEFT} would have other shares than before" in refusal(agent)
    assert grants(paths) == written


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("refused", [False, True])
def test_what_a_crash_interrupted_is_completed_or_removed(
    agent: Running, paths: NodePaths, *, refused: bool
) -> None:
    prepare(agent)
    (paths.run_folder / "grants" / f"{RIGHT}.json").unlink()
    if refused:
        write_daemon_status(paths, RIGHT, "REFUSED", "no room")
        refusal(agent)
        assert nothing_is_left(paths)
    else:
        prepare(agent)
        assert set(grants(paths)) == {LEFT, RIGHT}


@pytest.mark.usefixtures("apart")
def test_a_failed_repetition_leaves_the_running_containers_their_grants(
    agent: Running, paths: NodePaths
) -> None:
    prepare(agent)
    write_daemon_status(paths, RIGHT, "REFUSED", "no room")
    refusal(agent)
    assert set(grants(paths)) == {LEFT, RIGHT}


def test_unprepare_removes_all_grants_and_the_holders_of_all_shares(
    apart: Cluster, server: FakeApiServer, agent: Running, paths: NodePaths
) -> None:
    prepare(agent)
    unprepare(agent)
    assert nothing_is_left(paths)
    assert apart.holders("red") == ["b"]
    assert sum(asked.verb == "patch" for asked in server.requests) == 1


def test_a_restarted_agent_knows_the_grants_as_those_of_one_claim(
    apart: Cluster, agent: Running, paths: NodePaths
) -> None:
    prepare(agent)
    apart.add_vgpu("red", Cluster.holder("b"))

    async def look(running: Agent) -> None:
        (known,) = running.grants.all()
        assert (known.claim, known.names, known.pod_uid) == (CLAIM.uid, (LEFT, RIGHT), "a-uid")
        assert running.grants.of_pod("a-uid") == [CLAIM.uid]
        running.reconciler.start()
        assert cdi.claims(paths.dynamic_cdi_folder) == {CLAIM.uid}, "it has grants"
        await running.reconciler.reconcile_grant(CLAIM.uid)

    async def main() -> None:
        async with agent() as running:
            await look(running)

    run_virtual(main())
    assert nothing_is_left(paths), "its holders are gone"


@pytest.mark.usefixtures("apart")
def test_a_grant_that_cannot_be_read_goes_with_its_claim(agent: Running, paths: NodePaths) -> None:
    prepare(agent)
    (paths.run_folder / "grants" / f"{RIGHT}.json").write_text("{")
    (paths.run_folder / "grants" / "another.json").write_text("{")

    async def main() -> None:
        async with agent() as running:
            await running.unprepare(CLAIM)

    run_virtual(main())
    assert [file.name for file in (paths.run_folder / "grants").iterdir()] == ["another.json"]


@pytest.mark.parametrize(("cores", "gpu"), [("30", A_GPU.uuid), ("100", OTHER_GPU.uuid)])
def test_each_container_of_a_vcuda_pod_gets_what_it_asks_for(
    cluster: Cluster, agent: Running, paths: NodePaths, cores: str, gpu: str
) -> None:
    """S5: one without a GPU gets nothing, and nothing is left when the pod has gone.

    The shares have the names of the containers, and no annotation lists them.
    """
    asking = [
        {"name": name, "resources": {"limits": {CORE: amount, MEMORY: "4"}}}
        for name, amount in (("main", cores), ("side", "20"))
    ]
    spec = {"containers": [*asking, {"name": "bare"}]}
    cluster.add_pod("a", claimed=True)
    cluster.server.change(PODS, "a", "default", lambda pod: pod["spec"].update(spec))
    if gpu == A_GPU.uuid:
        cluster.add_vgpu("red", holder("main"), holder("side"))
    else:
        cluster.add_vgpu("red", holder("side"))
        cluster.add_vgpu("blue", holder("main"), uuid=gpu)
    for name in ("main", "side"):
        write_daemon_status(paths, f"{CLAIM.uid}.{name}", "ACTIVE")
    first = prepare(agent)
    assert [device.cdi_devices for device in first] == [
        (f"nvidia.com/gpu={gpu}", f"kubeshare.nthu/claim={CLAIM.uid}.main"),
        (f"nvidia.com/gpu={A_GPU.uuid}", f"kubeshare.nthu/claim={CLAIM.uid}.side"),
    ]
    assert prepare(agent) == first
    unprepare(agent)
    assert nothing_is_left(paths)


def revoked(running: Running, cluster: Cluster) -> list[dict[str, Any]]:
    """Start the agent's watches, wait until they have nothing to do, and return the events."""

    async def main() -> list[dict[str, Any]]:
        async with running() as agent:
            controller = asyncio.create_task(agent.reconciler.grants.run())
            agent.reconciler.start()
            await asyncio.sleep(1)
            cluster.add_vgpu("red", holder("left"), Cluster.holder("b"))
            await asyncio.sleep(1)
            await agent.events.flush()
            controller.cancel()
            return cluster.server.all(EVENTS)

    return run_virtual(main())


def test_a_share_that_loses_its_holder_loses_its_grant_and_the_others_stay(
    apart: Cluster, agent: Running, paths: NodePaths
) -> None:
    apart.add_pod("a", claimed=True, annotations=ANNOTATIONS, phase="Running")
    prepare(agent)

    (event,) = revoked(agent, apart)

    assert set(grants(paths)) == {LEFT}
    assert cdi.claims(paths.dynamic_cdi_folder) == {CLAIM.uid}, "its container may start again"
    assert event["reason"] == "GrantRevoked"
    assert "no holder for share right of this pod" in event["note"]
    assert refusal(agent)
    assert set(grants(paths)) == {LEFT}


def test_a_holder_that_only_the_cache_has_lost_revokes_nothing(
    apart: Cluster, server: FakeApiServer, agent: Running, paths: NodePaths
) -> None:
    apart.add_pod("a", claimed=True, annotations=ANNOTATIONS, phase="Running")
    prepare(agent)

    async def main() -> None:
        async with agent() as running:
            await asyncio.sleep(1)
            server.freeze_watches()
            vgpus = running.view.vgpus.store
            (red,) = vgpus.snapshot().values()
            kept = tuple(each for each in red.status.holders if each.share != "right")
            vgpus.replace([replace(red, status=replace(red.status, holders=kept))])
            await running.reconciler.reconcile_grant(CLAIM.uid)

    run_virtual(main())
    assert set(grants(paths)) == {LEFT, RIGHT}


def test_one_grant_of_several_gpus_is_revoked_when_one_of_them_loses_its_holder(
    cluster: Cluster, agent: Running, paths: NodePaths
) -> None:
    cluster.add_pod("a", claimed=True, annotations={"kubeshare.nthu/request": "1.5"})
    cluster.add_vgpu("red", holder("whole"))
    cluster.add_vgpu("blue", holder("rest"), uuid=OTHER_GPU.uuid)
    write_daemon_status(paths, f"{CLAIM.uid}.rest", "ACTIVE")
    prepare(agent)
    cluster.add_vgpu("blue", uuid=OTHER_GPU.uuid)

    async def main() -> None:
        async with agent() as running:
            await asyncio.sleep(1)
            await running.reconciler.reconcile_grant(CLAIM.uid)

    run_virtual(main())
    assert nothing_is_left(paths)


def unrecorded(running: Running, lose: Callable[[], None]) -> set[str]:
    """The GPUs that pod ``a`` uses without a holder, after it has lost some."""

    async def main() -> set[str]:
        async with running() as agent:
            await agent.prepare(CLAIM)
            agent.reconciler._has_processes = lambda _: True
            lose()
            await asyncio.sleep(1)
            await agent.reconciler.reconcile_grant(CLAIM.uid)
            devices = agent.inventory.found.devices
            pods = agent.unrecorded.report([device.uuid for device in devices])
            assert {each for named in pods.values() for each in named} == {"default/a"}
            return set(pods)

    return run_virtual(main())


@pytest.fixture
def on_two_gpus(cluster: Cluster, paths: NodePaths) -> Cluster:
    """Pod ``a`` runs with one grant for a share of ``red`` and one of ``blue``."""
    annotations = {"kubeshare.nthu/request": "1.5"}
    cluster.add_pod("a", claimed=True, annotations=annotations, phase="Running")
    cluster.add_vgpu("red", holder("whole"))
    cluster.add_vgpu("blue", holder("rest"), uuid=OTHER_GPU.uuid)
    write_daemon_status(paths, f"{CLAIM.uid}.rest", "ACTIVE")
    return cluster


def test_only_the_gpu_whose_holder_is_lost_is_unrecorded(
    on_two_gpus: Cluster, agent: Running
) -> None:
    def lose() -> None:
        on_two_gpus.add_vgpu("blue", uuid=OTHER_GPU.uuid)

    assert unrecorded(agent, lose) == {OTHER_GPU.uuid}


def test_a_lost_grant_that_cannot_be_read_may_be_for_any_gpu(
    on_two_gpus: Cluster, agent: Running, paths: NodePaths, gpus: FixedGpus
) -> None:
    gpus.devices = (*gpus.devices, replace(A_GPU, uuid="GPU-third", index=2))

    def lose() -> None:
        (paths.run_folder / "grants" / f"{CLAIM.uid}.rest.json").write_text("{")
        on_two_gpus.add_vgpu("red")
        on_two_gpus.add_vgpu("blue", uuid=OTHER_GPU.uuid)

    assert unrecorded(agent, lose) == {A_GPU.uuid, OTHER_GPU.uuid, "GPU-third"}

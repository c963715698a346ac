"""Prepare: what a pod gets, waits for, and is refused."""

import asyncio
import json
from typing import Any

import msgspec
import pytest

from fakes.node import (
    A_GPU,
    OTHER_GPU,
    Cluster,
    FixedGpus,
    Running,
    claim_reference,
    write_daemon_status,
)
from kubeshare.api.types.v1 import VGPUS
from kubeshare.kube.resources import RESOURCE_CLAIMS
from kubeshare.node.dra import cdi
from kubeshare.node.dra.driver import ClaimReference, ClaimRefusedError, PreparedDevice
from kubeshare.node.paths import NodePaths
from kubeshare.simulator.control import FakeApiServer, Fault, run_virtual

CLAIM = claim_reference("a")


@pytest.fixture
def ready(cluster: Cluster, paths: NodePaths) -> Cluster:
    """Pod ``a`` holds 0.3 of vGPU ``red``, and the token daemon agrees."""
    cluster.add_pod("a")
    cluster.add_vgpu("red", cluster.holder("a"))
    write_daemon_status(paths, CLAIM.uid, "ACTIVE")
    return cluster


def prepare(running: Running, claim: ClaimReference = CLAIM) -> list[PreparedDevice]:
    async def main() -> list[PreparedDevice]:
        async with running() as agent:
            return await agent.prepare(claim)

    return run_virtual(main())


def refusal(running: Running, claim: ClaimReference = CLAIM) -> str:
    with pytest.raises(ClaimRefusedError) as caught:
        prepare(running, claim)
    return str(caught.value)


def grant(paths: NodePaths, claim: str = CLAIM.uid) -> Any:
    return json.loads((paths.run_folder / "grants" / f"{claim}.json").read_text())


def nothing_is_left(paths: NodePaths) -> bool:
    grants = paths.run_folder / "grants"
    return not cdi.claims(paths.dynamic_cdi_folder) and not list(grants.glob("*"))


@pytest.mark.usefixtures("ready")
def test_the_grant_says_what_the_holder_says(agent: Running, paths: NodePaths) -> None:
    prepare(agent)
    written = grant(paths)
    assert written["pod"] == {"namespace": "default", "name": "a", "uid": "a-uid"}
    (gpu,) = written["gpus"]
    assert gpu["uuid"] == A_GPU.uuid
    assert gpu["memoryTotalBytes"] == A_GPU.memory_bytes
    assert (gpu["requestMicros"], gpu["limitMicros"], gpu["memoryBytes"]) == (
        300_000,
        600_000,
        1 << 30,
    )


def test_the_grant_has_what_the_holder_says_of_its_time(
    cluster: Cluster, agent: Running, paths: NodePaths
) -> None:
    cluster.add_pod("a")
    more = {"limitAloneMicros": 900_000, "latencySensitive": True}
    cluster.add_vgpu("red", cluster.holder("a") | more)
    write_daemon_status(paths, CLAIM.uid, "ACTIVE")
    prepare(agent)
    (gpu,) = grant(paths)["gpus"]
    assert (gpu["limitMicros"], gpu["limitAloneMicros"]) == (600_000, 900_000)
    assert gpu["latencySensitive"]


@pytest.mark.usefixtures("ready")
def test_every_container_gets_the_gpu_and_the_claims_own_device(
    agent: Running, paths: NodePaths
) -> None:
    devices = prepare(agent)
    names = (f"nvidia.com/gpu={A_GPU.uuid}", f"kubeshare.nthu/claim={CLAIM.uid}")
    assert [(device.request, device.cdi_devices) for device in devices] == [
        ("container-0-request-0", names),
        ("container-1-request-0", names),
    ]
    assert devices[0].share_id != devices[1].share_id
    assert cdi.claims(paths.dynamic_cdi_folder) == {CLAIM.uid}


def test_a_pod_on_several_gpus_gets_all_of_them(ready: Cluster, agent: Running) -> None:
    ready.add_vgpu("blue", ready.holder("a"), uuid=OTHER_GPU.uuid)
    (first, _) = prepare(agent)
    assert first.cdi_devices[:2] == (
        f"nvidia.com/gpu={OTHER_GPU.uuid}",
        f"nvidia.com/gpu={A_GPU.uuid}",
    )


def test_a_claim_of_its_own_on_our_driver_gives_a_pod_no_second_part(
    ready: Cluster, agent: Running, paths: NodePaths
) -> None:
    made_by_hand = ready.add_claim("a", "by-hand")
    write_daemon_status(paths, made_by_hand.uid, "ACTIVE")
    prepare(agent)
    assert "it already has its share of a GPU by the claim with uid a-claim-uid" in refusal(
        agent, made_by_hand
    )
    assert cdi.claims(paths.dynamic_cdi_folder) == {CLAIM.uid}
    assert grant(paths)["claim"] == CLAIM.uid


def test_of_two_claims_at_once_only_one_is_a_part(
    ready: Cluster, agent: Running, paths: NodePaths
) -> None:
    made_by_hand = ready.add_claim("a", "by-hand")
    write_daemon_status(paths, made_by_hand.uid, "ACTIVE")

    async def main() -> list[list[PreparedDevice] | BaseException]:
        async with agent() as running:
            both = (running.prepare(CLAIM), running.prepare(made_by_hand))
            return list(await asyncio.gather(*both, return_exceptions=True))

    outcomes = run_virtual(main())
    assert [type(outcome) for outcome in outcomes].count(ClaimRefusedError) == 1
    assert len(cdi.claims(paths.dynamic_cdi_folder)) == 1


@pytest.mark.usefixtures("ready")
def test_preparing_again_gives_the_same_answer_also_after_a_restart(agent: Running) -> None:
    assert prepare(agent) == prepare(agent)


@pytest.mark.usefixtures("ready")
def test_a_failed_repetition_leaves_the_running_containers_their_grant(
    agent: Running, paths: NodePaths
) -> None:
    prepare(agent)
    for file in paths.static_cdi_folder.iterdir():
        file.unlink()
    assert "no CDI spec" in refusal(agent)
    assert grant(paths)["claim"] == CLAIM.uid
    assert cdi.claims(paths.dynamic_cdi_folder) == {CLAIM.uid}


def claims_read(server: FakeApiServer) -> int:
    return sum(one.verb == "get" and one.resource == "resourceclaims" for one in server.requests)


def test_the_claim_that_a_pod_names_is_read_before_the_kubelet_asks(
    cluster: Cluster, server: FakeApiServer, agent: Running, paths: NodePaths
) -> None:
    cluster.add_vgpu("red", cluster.holder("a"))
    write_daemon_status(paths, CLAIM.uid, "ACTIVE")

    async def main() -> None:
        async with agent() as running:
            cluster.add_pod("a", claimed=True)
            await asyncio.sleep(1)
            assert claims_read(server) == 1
            await running.prepare(CLAIM)
            assert claims_read(server) == 1
            await running.prepare(CLAIM)
            assert claims_read(server) == 2, "what was read ahead serves once"

    run_virtual(main())


@pytest.mark.parametrize("trouble", ["replaced", "unreachable"])
def test_a_claim_that_was_read_ahead_in_vain_is_read_again(
    cluster: Cluster, server: FakeApiServer, agent: Running, paths: NodePaths, trouble: str
) -> None:
    cluster.add_vgpu("red", cluster.holder("a"))
    write_daemon_status(paths, CLAIM.uid, "ACTIVE")
    if trouble == "unreachable":
        server.inject(Fault.answer(403, "Forbidden"), verb="get", resource="resourceclaims")

    async def main() -> list[PreparedDevice]:
        async with agent() as running:
            cluster.add_pod("a", claimed=True)
            if trouble == "replaced":
                server.change(RESOURCE_CLAIMS, CLAIM.name, "default", _of_somebody_else)
            await asyncio.sleep(1)
            if trouble == "replaced":
                cluster.add_claim("a", CLAIM.name)
            return await running.prepare(CLAIM)

    assert run_virtual(main())


def _of_somebody_else(claim: Any) -> None:
    claim["metadata"]["uid"] = "another-uid"


def test_it_waits_for_the_pods_uid_to_be_written_into_the_holder(
    ready: Cluster, agent: Running
) -> None:
    ready.add_vgpu("red", ready.holder("a", pod_uid=""))

    async def main() -> float:
        async with agent() as running:
            preparation = asyncio.create_task(running.prepare(CLAIM))
            await asyncio.sleep(5)
            assert not preparation.done()
            ready.set_pod_uid("red", "a-uid")
            await preparation
            return asyncio.get_running_loop().time()

    assert run_virtual(main()) < 5.2


def test_it_waits_for_the_uuid_of_a_new_vgpu(
    ready: Cluster, server: FakeApiServer, agent: Running
) -> None:
    ready.add_vgpu("red", ready.holder("a"), uuid="")

    async def main() -> list[PreparedDevice]:
        async with agent() as running:
            preparation = asyncio.create_task(running.prepare(CLAIM))
            await asyncio.sleep(3)
            server.change(VGPUS, "red", "", lambda obj: obj["spec"].update(uuid=A_GPU.uuid))
            return await preparation

    assert run_virtual(main())


def test_a_pod_on_several_gpus_waits_until_each_holder_names_it(
    ready: Cluster, agent: Running, paths: NodePaths
) -> None:
    ready.add_vgpu("blue", ready.holder("a", pod_uid=""), uuid=OTHER_GPU.uuid)

    async def main() -> None:
        async with agent() as running:
            preparation = asyncio.create_task(running.prepare(CLAIM))
            await asyncio.sleep(3)
            ready.set_pod_uid("blue", "a-uid")
            await preparation

    run_virtual(main())
    assert len(grant(paths)["gpus"]) == 2


def test_a_pod_of_which_a_part_was_taken_back_does_not_run_with_the_others(
    cluster: Cluster, agent: Running, paths: NodePaths
) -> None:
    cluster.add_pod("a")
    cluster.add_vgpu("red", cluster.holder("a") | {"parts": 2})
    write_daemon_status(paths, CLAIM.uid, "ACTIVE")
    assert "of the 2 vGPUs that it shares, 1 name this pod" in refusal(agent)
    assert nothing_is_left(paths)


def test_without_a_holder_it_gives_up_after_half_a_minute_and_says_why(
    cluster: Cluster, agent: Running, paths: NodePaths
) -> None:
    cluster.add_pod("a")
    text = refusal(agent)
    assert "pod default/a gets no GPU yet" in text
    assert "no vGPU of node n1 has a holder for the pod uid a-uid" in text
    assert "(waited 30 s)" in text
    assert nothing_is_left(paths)


def test_a_holder_of_the_same_name_but_another_uid_is_not_the_pods(
    cluster: Cluster, agent: Running
) -> None:
    cluster.add_pod("a")
    cluster.add_vgpu("red", cluster.holder("a", pod_uid="somebody-else"))
    assert "no vGPU of node n1" in refusal(agent)


def test_a_holder_on_another_node_gives_nothing_here(cluster: Cluster, agent: Running) -> None:
    cluster.add_pod("a")
    cluster.add_vgpu("red", cluster.holder("a"), node="n2")
    assert "no vGPU of node n1" in refusal(agent)


def test_a_placeholder_that_does_not_come_is_named(ready: Cluster, agent: Running) -> None:
    ready.add_vgpu("red", ready.holder("a"), uuid="")
    text = refusal(agent)
    assert "vGPU red is not known yet" in text
    assert "kubeshare-vgpu-red was allocated none" in text


def test_an_unhealthy_gpu_is_not_given(
    ready: Cluster, agent: Running, gpus: FixedGpus, paths: NodePaths
) -> None:
    gpus.devices = (msgspec.structs.replace(A_GPU, healthy=False, message="GPU is lost"),)
    assert f"GPU {A_GPU.uuid} of vGPU red is unhealthy: GPU is lost" in refusal(agent)
    assert nothing_is_left(paths)


def test_a_gpu_of_another_machine_is_not_given(ready: Cluster, agent: Running) -> None:
    ready.add_vgpu("red", ready.holder("a"), uuid="GPU-ffffffff-0000-0000-0000-000000000000")
    assert "is not on this node" in refusal(agent)


def test_what_the_daemon_refuses_does_not_start_and_leaves_nothing(
    ready: Cluster, agent: Running, paths: NodePaths
) -> None:
    write_daemon_status(paths, CLAIM.uid, "REFUSED", "memory of the GPU would be over-committed")
    text = refusal(agent)
    assert "REFUSED: memory of the GPU would be over-committed" in text
    assert nothing_is_left(paths)


def test_a_daemon_that_does_not_answer_is_an_error_with_its_name(
    ready: Cluster, agent: Running, paths: NodePaths
) -> None:
    (paths.run_folder / "status" / f"{CLAIM.uid}.json").unlink()
    assert "is the pod kubeshare-token-daemon running here?" in refusal(agent)
    assert nothing_is_left(paths)


OLDER_DAEMON = f"{CLAIM.uid}.json: version 2 is not known, 1 is"
"""How a daemon of grant version 1 refused a later one."""


def test_the_upgrade_of_an_older_daemon_is_waited_for(
    ready: Cluster, agent: Running, paths: NodePaths
) -> None:
    write_daemon_status(paths, CLAIM.uid, "REFUSED", OLDER_DAEMON)

    async def main() -> None:
        async with agent() as running:
            preparation = asyncio.create_task(running.prepare(CLAIM))
            await asyncio.sleep(5)
            assert not preparation.done()
            write_daemon_status(paths, CLAIM.uid, "ACTIVE")
            await preparation

    run_virtual(main())


def test_an_older_daemon_that_is_not_upgraded_is_an_error_with_its_name(
    ready: Cluster, agent: Running, paths: NodePaths
) -> None:
    write_daemon_status(paths, CLAIM.uid, "REFUSED", OLDER_DAEMON)
    text = refusal(agent)
    assert "is older than its node agent" in text
    assert "is the rollout of the DaemonSet kubeshare-token-daemon complete?" in text
    assert nothing_is_left(paths)


def test_a_node_without_a_cdi_spec_for_the_gpu_starts_nothing(
    ready: Cluster, agent: Running, paths: NodePaths
) -> None:
    for file in paths.static_cdi_folder.iterdir():
        file.unlink()
    assert "nvidia-ctk cdi generate" in refusal(agent)
    assert nothing_is_left(paths)


def test_a_claim_of_several_pods_is_refused(cluster: Cluster, agent: Running) -> None:
    cluster.add_pod("a", reserved=2)
    assert "reserved for 2 pods" in refusal(agent)


@pytest.mark.parametrize(
    "other", [{"apiGroup": "example.com", "resource": "things"}, {"resource": "pods"}]
)
def test_a_claim_that_names_another_pod_beside_that_which_starts_is_refused(
    ready: Cluster, agent: Running, other: dict[str, str]
) -> None:
    # The kubelet is content with its pod's uid, whatever the entry says that it is the uid of.
    mine = other | {"name": "mine", "uid": "mine-uid"}
    ready.server.change(
        RESOURCE_CLAIMS,
        CLAIM.name,
        CLAIM.namespace,
        lambda obj: obj["status"]["reservedFor"].append(mine),
    )
    assert "reserved for 2 " in refusal(agent)


def test_a_claim_of_another_namespace_than_the_holders_is_refused_at_once(
    cluster: Cluster, agent: Running
) -> None:
    cluster.add_vgpu("red", cluster.holder("a") | {"namespace": "other"})
    cluster.add_pod("a")
    assert "is of namespace other, and the claim of default" in refusal(agent)


def test_a_claim_that_is_gone_or_replaced_is_refused(ready: Cluster, agent: Running) -> None:
    replaced = ClaimReference(CLAIM.namespace, CLAIM.name, "another-uid")
    assert "is another one now" in refusal(agent, replaced)
    ready.server.remove(RESOURCE_CLAIMS, CLAIM.name, CLAIM.namespace)
    assert f"ResourceClaim default/{CLAIM.name} is gone" in refusal(agent)


def test_a_claim_without_a_device_of_ours_is_refused(ready: Cluster, agent: Running) -> None:
    ready.server.change(
        RESOURCE_CLAIMS, CLAIM.name, CLAIM.namespace, lambda obj: obj["status"].pop("allocation")
    )
    assert "has no device of vgpu.kubeshare.nthu" in refusal(agent)


def test_an_api_server_that_is_away_is_an_error_not_a_grant(
    ready: Cluster, agent: Running, paths: NodePaths
) -> None:
    ready.server.inject(Fault.refuse(), verb="get", resource="resourceclaims")
    assert "cannot connect to the API server" in refusal(agent)
    assert nothing_is_left(paths)


@pytest.mark.parametrize("uid", ["", "../../x", "a/b", "a" * 200, ".", "a\n"])
def test_a_hostile_claim_uid_touches_no_file(
    ready: Cluster, agent: Running, paths: NodePaths, uid: str
) -> None:
    before = sorted(paths.root.rglob("*"))
    assert "is no name for files" in refusal(agent, ClaimReference("default", CLAIM.name, uid))
    assert sorted(paths.root.rglob("*")) == before

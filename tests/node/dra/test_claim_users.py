"""Who uses a claim on this node: the kubelet's pods, and processes that have it mounted."""

import asyncio
from pathlib import Path

import pytest

from fakes.node import NODE, FakeKubelet
from kubeshare.api.types.constants import DRA_DRIVER
from kubeshare.node.claim_mounts import ClaimMounts
from kubeshare.node.dra.cdi import claim_device
from kubeshare.node.dra.claim_users import ClaimUsers

POD = ("default", "b")


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "pod-resources.sock"


def users(socket: Path, proc: Path) -> ClaimUsers:
    own = "1 0 0:25 / /run rw - tmpfs tmpfs rw"
    proc.mkdir(exist_ok=True)
    return ClaimUsers(socket, ClaimMounts(Path("/run/kubeshare/claims"), own, proc))


GRANTS = pytest.mark.parametrize("grant", ["a-claim-uid", "a-claim-uid.share"])


@GRANTS
def test_a_pod_of_the_kubelet_uses_its_claims(socket: Path, tmp_path: Path, grant: str) -> None:
    kubelet = FakeKubelet()
    kubelet.claimed[POD] = [(DRA_DRIVER, NODE, "slots")]
    kubelet.cdi_devices[POD] = ["nvidia.com/gpu=GPU-1", claim_device(grant)]

    async def ask(claim: str) -> bool:
        async with kubelet.serve_pod_resources(socket):
            return await asyncio.to_thread(users(socket, tmp_path / "proc").in_use, claim)

    assert asyncio.run(ask("a-claim-uid"))
    assert not asyncio.run(ask("b-claim-uid"))


@GRANTS
def test_without_a_kubelet_the_processes_say_it(socket: Path, tmp_path: Path, grant: str) -> None:
    proc = tmp_path / "proc"
    assert not users(socket, proc).in_use("a-claim-uid")

    (proc / "7/ns").mkdir(parents=True)
    (proc / "7/ns/mnt").symlink_to("mnt:[7]")
    mount = f"6 5 0:25 /kubeshare/claims/{grant} /run/kubeshare/claim ro - tmpfs tmpfs rw"
    (proc / "7/mountinfo").write_text(mount)

    assert users(socket, proc).in_use("a-claim-uid")
    assert not users(socket, proc).in_use("b-claim-uid")

"""The driver's sockets, called by a fake kubelet."""

import asyncio
from pathlib import Path

from fakes.node import FakeKubelet
from kubeshare.node.dra.driver import ClaimReference, ClaimRefusedError, Driver, PreparedDevice
from kubeshare.node.proto import dra_pb2


class Scripted:
    """Prepares every claim but the one called ``bad``."""

    def __init__(self) -> None:
        self.undone: list[ClaimReference] = []

    async def prepare(self, claim: ClaimReference) -> list[PreparedDevice]:
        if claim.name == "bad":
            raise ClaimRefusedError("no GPU for you")
        return [PreparedDevice("r", "n1", "slots", ("nvidia.com/gpu=A", "x/claim=B"), "share")]

    async def unprepare(self, claim: ClaimReference) -> None:
        if claim.name == "bad":
            raise ClaimRefusedError("ask again")
        self.undone.append(claim)


GOOD = dra_pb2.Claim(namespace="default", name="good", uid="1")
BAD = dra_pb2.Claim(namespace="default", name="bad", uid="2")


def sockets(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "plugins/ours/dra.sock", tmp_path / "registry/ours-reg.sock"


def test_the_kubelet_learns_who_the_driver_is_and_where(tmp_path: Path) -> None:
    async def main() -> None:
        plugin, registration = sockets(tmp_path)
        kubelet = FakeKubelet()
        async with Driver(Scripted(), plugin, registration) as driver:
            info = await kubelet.register(registration)
            assert driver.registered.is_set()
        assert info.type == "DRAPlugin"
        assert info.name == "vgpu.kubeshare.nthu"
        assert info.endpoint == str(plugin)
        assert list(info.supported_versions) == ["v1.DRAPlugin"]

    asyncio.run(main())


def test_each_claim_of_a_call_gets_its_own_answer(tmp_path: Path) -> None:
    async def main() -> None:
        plugin, registration = sockets(tmp_path)
        kubelet, handler = FakeKubelet(), Scripted()
        async with Driver(handler, plugin, registration):
            await kubelet.register(registration)
            prepared = await kubelet.prepare(GOOD, BAD)
            undone = await kubelet.unprepare(GOOD, BAD)
        (device,) = prepared["1"].devices
        assert list(device.request_names) == ["r"]
        assert list(device.cdi_device_ids) == ["nvidia.com/gpu=A", "x/claim=B"]
        assert (device.pool_name, device.device_name, device.share_id) == ("n1", "slots", "share")
        assert prepared["2"].error == "no GPU for you"
        assert not prepared["2"].devices
        assert undone["1"].error == ""
        assert undone["2"].error == "ask again"
        assert handler.undone == [ClaimReference("default", "good", "1")]

    asyncio.run(main())


def test_a_driver_starts_where_one_has_crashed_and_leaves_no_socket(tmp_path: Path) -> None:
    async def main() -> None:
        plugin, registration = sockets(tmp_path)
        for socket in (plugin, registration):
            socket.parent.mkdir(parents=True)
            socket.touch()
        kubelet = FakeKubelet()
        for _ in range(2):
            async with Driver(Scripted(), plugin, registration):
                await kubelet.register(registration)
                assert (await kubelet.prepare(GOOD))["1"].error == ""
            assert not plugin.exists()
            assert not registration.exists()

    asyncio.run(main())

"""The device plugin and a kubelet that restarts, on real sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from fakes.node.device_plugins import PluginKubelet
from kubeshare.dialects.vcuda import CORE, MEMORY
from kubeshare.node.device_plugin import plugin as plugin_module
from kubeshare.node.device_plugin.plugin import DevicePlugin
from kubeshare.node.device_plugin.units import GpuUnits
from kubeshare.node.device_plugin.vcuda import CORE_ENDPOINT, MEMORY_ENDPOINT
from kubeshare.node.proto import deviceplugin_pb2 as messages
from kubeshare.simulator.control import until

RESOURCE = "aliyun.com/gpu-mem"
TWO = (GpuUnits("GPU-a", 2, healthy=True),)
SICK = (GpuUnits("GPU-a", 2, healthy=False),)


@asynccontextmanager
async def running(
    folder: Path, resource: str = RESOURCE, endpoint: str = "ours.sock"
) -> AsyncIterator[tuple[PluginKubelet, DevicePlugin]]:
    kubelet, plugin = PluginKubelet(folder), DevicePlugin(folder, resource, endpoint)
    await kubelet.start()
    task = asyncio.create_task(plugin.run())
    try:
        yield kubelet, plugin
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await kubelet.stop()


def test_it_registers_and_lists_what_is_offered(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as (kubelet, plugin):
            plugin.offer(TWO)
            await kubelet.expect_devices(2)
            (request,) = kubelet.requests
            assert (request.version, request.resource_name) == ("v1beta1", RESOURCE)
            assert set(kubelet.devices.values()) == {"Healthy"}
            plugin.offer(SICK)
            await until(lambda: set(kubelet.devices.values()) == {"Unhealthy"})

    asyncio.run(main())


def test_nothing_is_registered_where_nothing_is_offered(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as (kubelet, plugin):
            assert plugin.offered is None
            plugin.offer(TWO)
            await kubelet.expect_devices(2)
            plugin.offer(None)
            await kubelet.expect_devices(0)
            await until(lambda: not (tmp_path / "ours.sock").exists())
            assert len(kubelet.requests) == 1

    asyncio.run(main())


def test_allocate_answers_nothing_that_attaches(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as (kubelet, plugin):
            plugin.offer(TWO)
            await kubelet.expect_devices(2)
            answer = await kubelet.allocate("GPU-a-_-0")
            assert list(answer.container_responses) == [messages.ContainerAllocateResponse()]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("resource", "endpoint", "units", "asked"),
    [(CORE, CORE_ENDPOINT, 100, 10), (MEMORY, MEMORY_ENDPOINT, 64, 1)],
)
def test_both_resources_of_gaia_are_registered_and_allocated(
    tmp_path: Path, resource: str, endpoint: str, units: int, asked: int
) -> None:
    """S6: two containers of 10 cores and one block each."""

    async def main() -> None:
        async with running(tmp_path, resource, endpoint) as (kubelet, plugin):
            plugin.offer((GpuUnits("GPU-a", units, healthy=True),))
            await kubelet.expect_devices(units)
            (request,) = kubelet.requests
            assert (request.resource_name, request.endpoint) == (resource, endpoint)
            ids = sorted(kubelet.devices)
            for first in (0, asked):
                answer = await kubelet.allocate(*ids[first : first + asked])
                assert len(answer.container_responses) == 1

    asyncio.run(main())


def test_it_registers_again_with_a_kubelet_that_restarts(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as (kubelet, plugin):
            plugin.offer(TWO)
            await kubelet.expect_devices(2)
            await kubelet.stop()
            kubelet.devices = {}
            await kubelet.start()
            await kubelet.expect_devices(2)
            assert plugin.registrations == 2

    asyncio.run(main())


def test_it_registers_with_a_kubelet_that_starts_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin_module, "_POLL_SECONDS", 0.01)

    async def main() -> None:
        async with running(tmp_path) as (kubelet, plugin):
            await kubelet.stop()
            kubelet.devices = {}
            plugin.offer(TWO)
            for _ in range(10):
                await asyncio.sleep(0)
            await kubelet.start()
            await kubelet.expect_devices(2)

    asyncio.run(main())


def test_it_registers_when_the_kubelet_accepts_it_at_last(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as (kubelet, plugin):
            kubelet.refuses = True
            plugin.offer(TWO)
            await until((tmp_path / "ours.sock").exists)
            kubelet.refuses = False
            await kubelet.expect_devices(2)

    asyncio.run(main())


def test_a_socket_that_cannot_be_made_is_tried_again(tmp_path: Path) -> None:
    """Shares are attached without the plugin, so its failure does not end the agent."""

    async def main() -> None:
        async with running(tmp_path) as (kubelet, plugin):
            (tmp_path / "ours.sock").mkdir()
            with capture_logs() as logs:
                plugin.offer(TWO)
                await until(lambda: len(logs) > 0)
            assert logs[0]["socket"] == str(tmp_path / "ours.sock")
            (tmp_path / "ours.sock").rmdir()
            await kubelet.expect_devices(2)

    asyncio.run(main())


def test_a_restarted_plugin_offers_the_same_devices(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as (kubelet, plugin):
            plugin.offer(TWO)
            await kubelet.expect_devices(2)
            before = dict(kubelet.devices)
        async with running(tmp_path) as (kubelet, plugin):
            plugin.offer(TWO)
            await until(lambda: kubelet.devices == before)

    asyncio.run(main())

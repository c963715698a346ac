"""What is wrong with a node's vGPUs reaches `kubeshare top`."""

import asyncio
from pathlib import Path

from msgspec import to_builtins

from fakes.node import NODE
from fakes.objects import vgpu, with_degraded
from kubeshare.api.types.v1 import VGPU, VGPUS
from kubeshare.node.degraded_gpus import DegradedGpus
from kubeshare.node.node_view import NodeView
from kubeshare.simulator.control import FakeApiServer, run_virtual
from kubeshare.tokens.files.degraded import read_degraded, write_degraded
from kubeshare.tokens.files.run_folder import Paths


def degraded(name: str, message: str, status: str = "True") -> VGPU:
    found = vgpu(name, NODE, f"GPU-{name}", pool="static")
    return with_degraded(found, "GPUsOffered", message, status)


def test_the_file_says_what_is_wrong_now_and_no_former_state(tmp_path: Path) -> None:
    paths = Paths(tmp_path / "run")
    write_degraded(paths, {"GPU-a": "of a former agent"})

    async def main() -> None:
        server = FakeApiServer()
        async with server.client() as client:
            view = NodeView(client, NODE)
            watching = asyncio.create_task(view.vgpus.run())
            await view.vgpus.wait_for_sync()
            DegradedGpus(view, paths).follow()
            assert read_degraded(paths) == {}
            assert not paths.degraded.exists()
            for found in (degraded("a", "run this"), vgpu("b", NODE, "GPU-b")):
                server.seed(VGPUS, to_builtins(found))
            await asyncio.sleep(1)
            assert read_degraded(paths) == {"GPU-a": "GPUsOffered: run this"}
            for found in (degraded("a", "", "False"), degraded("b", "x" * 4096)):
                server.seed(VGPUS, to_builtins(found))
            await asyncio.sleep(1)
            [(uuid, message)] = read_degraded(paths).items()
            assert (uuid, len(message)) == ("GPU-b", 1024)
            watching.cancel()

    run_virtual(main())


def test_a_file_that_is_none_says_nothing(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    assert read_degraded(paths) == {}
    paths.degraded.write_text("[")
    assert read_degraded(paths) == {}

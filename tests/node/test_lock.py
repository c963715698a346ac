"""One agent runs on a node at a time."""

import asyncio
import os
from pathlib import Path

from kubeshare.node.lock import acquire
from kubeshare.simulator.control import run_virtual, until


def test_the_second_waits_until_the_first_has_ended(tmp_path: Path) -> None:
    async def main() -> None:
        first = await acquire(tmp_path / "folder/lock")
        second = asyncio.create_task(acquire(tmp_path / "folder/lock"))
        await asyncio.sleep(30)
        assert not second.done()
        os.close(first)
        await until(second.done)
        os.close(await second)

    run_virtual(main())

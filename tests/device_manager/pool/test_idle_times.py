"""For how long vGPUs have been idle."""

from types import SimpleNamespace
from typing import Any, cast

from fakes.objects import holder, vgpu
from kubeshare.device_manager.pool.idle_times import FIRST_HOLDER_SECONDS, IdleTimes
from kubeshare.simulator.control import run_virtual


def times() -> IdleTimes:
    return IdleTimes(cast("Any", SimpleNamespace(subscribe=lambda _: None)))


def test_a_vgpu_that_has_lost_its_holder_may_go_at_once() -> None:
    async def main() -> None:
        idle = times()
        assert idle.seconds(vgpu(version=20, holders=(holder("a"),))) == 0
        assert idle.minimum_seconds(vgpu(version=21)) == 0

    run_virtual(main())


def test_a_vgpu_whose_record_is_older_than_the_last_one_stays_for_a_while() -> None:
    async def main() -> None:
        idle = times()
        assert idle.seconds(vgpu(version=20, holders=(holder("a"),))) == 0
        assert idle.minimum_seconds(vgpu(version=10)) == FIRST_HOLDER_SECONDS

    run_virtual(main())

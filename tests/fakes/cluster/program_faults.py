"""Faults at one write, and programs that are killed at it and come back."""

from collections.abc import Callable

from fakes.cluster.cluster import FakeCluster
from kubeshare.simulator.control import Fault


def kill(program: str, *, after: bool = False) -> Callable[[FakeCluster], Fault]:
    """A program is killed at the write, and comes back."""

    def fault(cluster: FakeCluster) -> Fault:
        async def again() -> None:
            await cluster.kill(program)
            await cluster.quiet(2)
            cluster.start(program)

        return Fault.reset(after=after, action=lambda: cluster.beside(again()))

    return fault


def always(fault: Fault) -> Callable[[FakeCluster], Fault]:
    return lambda _: fault


FAULTS = {
    "409": always(Fault.answer(409, "Conflict")),
    "409 after it": always(Fault.answer(409, "Conflict", after=True)),
    "500": always(Fault.answer(500, "InternalError")),
    "500 after it": always(Fault.answer(500, "InternalError", after=True)),
    "reset": always(Fault.reset()),
    "reset after it": always(Fault.reset(after=True)),
    "no answer": always(Fault.hang()),
    "no answer after it": always(Fault.hang(after=True)),
    "late": always(Fault.late(4.0)),
    "twice": always(Fault.duplicate()),
    "extender killed": kill("extender"),
    "extender killed after it": kill("extender", after=True),
    "device manager killed": kill("devices"),
    "scheduler killed": kill("scheduler"),
}

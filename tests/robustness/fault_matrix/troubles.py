"""The troubles: what happens to one write, and to whom besides."""

import asyncio
from collections.abc import Callable

from fakes.cluster import RESTART, World
from kubeshare.simulator.control import Fault

OUTAGE = 5.0
"""Seconds for which a killed API server is away."""
LATE = 20.0
"""Seconds that a write is held up on the way: its sender has given it up before."""
SILENCE = 20.0
"""Seconds for which watches tell nothing."""

Trouble = Callable[[World], Fault]
"""Given the world, what the write meets."""


def _killed(*, after: bool) -> Trouble:
    """The program that writes is killed, and started again."""
    return lambda world: Fault.hang(after=after, action=lambda: _kill(world, _writer(world)))


def _zombie(seconds: float) -> Trouble:
    """The program that writes is killed, and its write arrives when the next one is at work."""

    def trouble(world: World) -> Fault:
        # The next one may have decided otherwise: until that is seen there are both decisions.
        world.invariants.doubles = True
        return Fault.late(seconds, action=lambda: _kill(world, _writer(world)))

    return trouble


def _other_killed(world: World) -> Fault:
    """The other programs are killed meanwhile."""
    names = [name for name in world.programs if name != _writer(world)]
    return Fault.meanwhile(lambda: _kill(world, *names))


def _all_killed(world: World) -> Fault:
    return Fault.hang(after=True, action=lambda: _kill(world, *world.programs))


def _server_killed(*, after: bool) -> Trouble:
    """The API server is killed, and has forgotten its history when it is back."""
    return lambda world: Fault.reset(after=after, action=lambda: _outage(world))


def _answer(status: int, reason: str, *, after: bool = False, retry: int | None = None) -> Trouble:
    return lambda _world: Fault.answer(status, reason, after=after, retry_after=retry)


def _expired(world: World) -> Fault:
    """The history is gone: 410 to the write, and to every watch."""
    world.server.expire_watches()
    return Fault.answer(410, "Expired")


def _silent(world: World) -> Fault:
    """Nobody is told anything for a while; then the connections break."""
    return Fault.meanwhile(lambda: _silence(world))


def _mute(world: World) -> Fault:
    """Nobody is told anything any more: each has to notice by itself that it is cut off."""
    return Fault.meanwhile(world.server.mute_watches)


def _same(fault: Fault) -> Trouble:
    return lambda _world: fault


TROUBLES: dict[str, Trouble] = {
    "writer killed before it": _killed(after=False),
    "writer killed after it": _killed(after=True),
    "the other programs killed": _other_killed,
    "all programs killed after it": _all_killed,
    "API server killed before it": _server_killed(after=False),
    "API server killed after it": _server_killed(after=True),
    "duplicated": _same(Fault.duplicate()),
    "late": _same(Fault.late(LATE)),
    "writer killed, its write late": _zombie(3.0),
    "writer killed, its write later": _zombie(LATE),
    "409": _answer(409, "Conflict"),
    "410": _expired,
    "429": _answer(429, "TooManyRequests", retry=2),
    "500 before it": _answer(500, "InternalError"),
    "500 after it": _answer(500, "InternalError", after=True),
    "timed out before it": _same(Fault.hang()),
    "timed out after it": _same(Fault.hang(after=True)),
    "reset before it": _same(Fault.reset()),
    "reset after it": _same(Fault.reset(after=True)),
    "watches silent": _silent,
    "watches mute": _mute,
}

HARD = (
    "writer killed after it",
    "API server killed after it",
    "duplicated",
    "late",
    "writer killed, its write late",
    "timed out after it",
    "watches silent",
    "watches mute",
)
"""Those after which least is known; every life meets them."""


def _writer(world: World) -> str:
    """The program whose write it is: the last one that arrived."""
    return world.server.requests[-1].client.partition("-")[0]


def _kill(world: World, *names: str) -> None:
    async def killing() -> None:
        await world.kill(*names)
        await asyncio.sleep(RESTART)
        world.start(*names)

    world.beside(killing())


def _outage(world: World) -> None:
    server = world.server
    server.down = True
    server.reset_watches()

    def back() -> None:
        server.compact()
        server.down = False

    asyncio.get_running_loop().call_later(OUTAGE, back)


def _silence(world: World) -> None:
    server = world.server
    server.freeze_watches()

    def back() -> None:
        server.freeze_watches(frozen=False)
        server.reset_watches()

    asyncio.get_running_loop().call_later(SILENCE, back)

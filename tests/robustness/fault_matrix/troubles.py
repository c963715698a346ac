"""What strikes a write, and how its effect shows afterwards."""

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

from fakes.cluster import RESTART, FakeCluster
from kubeshare.simulator.control import Fault
from robustness.fault_matrix.strikes import RESET, Strike

OUTAGE = 5.0
"""Seconds for which a killed API server is down."""
LATE = 20.0
"""Seconds by which a write is delayed on its way: its sender has timed out before."""
SILENCE = 20.0
"""Seconds for which watches deliver nothing."""
NOTICED = 10.0
"""Seconds within which programs watch again once their connections broke."""

Effect = Callable[[FakeCluster, Strike], bool]
"""Whether a run shows what the trouble did; false also where the run ended too soon for it."""


class Trouble(NamedTuple):
    """What the write meets, and the effect by which a run shows it."""

    strike: Callable[[FakeCluster], Fault]
    shows: Effect


# Faults


def _killed(*, after: bool) -> Callable[[FakeCluster], Fault]:
    """Kill the program that writes; it is restarted."""
    return lambda cluster: Fault.hang(after=after, action=lambda: _kill(cluster, _writer(cluster)))


def _killed_late(seconds: float) -> Callable[[FakeCluster], Fault]:
    """Kill the program that writes; its write arrives when its successor is at work."""

    def strike(cluster: FakeCluster) -> Fault:
        # The successor may decide otherwise: until it sees the write, both decisions hold.
        cluster.invariants.doubles = True
        return Fault.late(seconds, action=lambda: _kill(cluster, _writer(cluster)))

    return strike


def _others_killed(cluster: FakeCluster) -> Fault:
    names = [name for name in cluster.programs if name != _writer(cluster)]
    return Fault.preceded_by(lambda: _kill(cluster, *names))


def _all_killed(cluster: FakeCluster) -> Fault:
    return Fault.hang(after=True, action=lambda: _kill(cluster, *cluster.programs))


def _server_killed(*, after: bool) -> Callable[[FakeCluster], Fault]:
    """Kill the API server; it has lost its watch history when it is back."""
    return lambda cluster: Fault.reset(after=after, action=lambda: _outage(cluster))


def _expired(cluster: FakeCluster) -> Fault:
    """Answer 410 to the write and to every watch."""
    cluster.server.expire_watches()
    return Fault.answer(410, "Expired")


def _same(fault: Fault) -> Callable[[FakeCluster], Fault]:
    return lambda _cluster: fault


# Effects


def _answered(answer: str, *performed: float) -> Effect:
    """The sender saw that answer; the server performed the write so many seconds later."""

    def shows(cluster: FakeCluster, strike: Strike) -> bool:
        times = [round(time - strike.at, 6) for time in strike.performed]
        return strike.answer == answer and times == list(performed)

    return shows


def _performed_twice(cluster: FakeCluster, strike: Strike) -> bool:
    return len(strike.performed) == 2 and strike.answer not in {"", RESET}


def _restarted(cluster: FakeCluster, clients: Iterable[str], at: float) -> bool:
    """None of the clients sent anything after that time, and a successor of each did."""
    sent = {each.client for each in cluster.server.requests if each.at > at}
    programs = {_program(client) for client in sent}
    dead = set(clients)
    return bool(dead) and not dead & sent and {_program(client) for client in dead} <= programs


def _writer_restarted(*performed: float) -> Effect:
    """The writer never saw an answer and was replaced."""
    unanswered = _answered("", *performed)

    def shows(cluster: FakeCluster, strike: Strike) -> bool:
        return unanswered(cluster, strike) and _restarted(cluster, [strike.client], strike.at)

    return shows


def _others_restarted(cluster: FakeCluster, strike: Strike) -> bool:
    return _restarted(cluster, strike.running - {strike.client}, strike.at)


def _all_restarted(cluster: FakeCluster, strike: Strike) -> bool:
    return _restarted(cluster, strike.running, strike.at)


def _server_was_down(*performed: float) -> Effect:
    """Nothing arrived for as long as the server was down, and requests did afterwards."""
    broken = _answered(RESET, *performed)

    def shows(cluster: FakeCluster, strike: Strike) -> bool:
        later = cluster.server.requests[strike.index + 1 :]
        return broken(cluster, strike) and bool(later) and later[0].at >= strike.at + OUTAGE

    return shows


def _relisted(cluster: FakeCluster, strike: Strike) -> bool:
    """Every program listed again, as one must after 410."""
    later = cluster.server.requests[strike.index + 1 :]
    listed = {each.client for each in later if each.verb == "list"}
    return strike.answer == "410" and not strike.performed and strike.running <= listed


def _watched_again(cluster: FakeCluster, strike: Strike) -> bool:
    """Every program watched again when the silence ended."""
    end = strike.at + SILENCE
    watched = {
        each.client
        for each in cluster.server.requests
        if each.verb == "watch" and end <= each.at <= end + NOTICED
    }
    return strike.running <= watched


def _muted(cluster: FakeCluster, strike: Strike) -> bool:
    """Every watch that was open is mute, and a program opened another by itself."""
    later = cluster.server.requests[strike.index + 1 :]
    return (
        bool(strike.watchers)
        and all(watcher.mute for watcher in strike.watchers)
        and any(each.verb == "watch" and each.client in strike.running for each in later)
    )


TROUBLES: dict[str, Trouble] = {
    "writer killed before it": Trouble(_killed(after=False), _writer_restarted()),
    "writer killed after it": Trouble(_killed(after=True), _writer_restarted(0.0)),
    "the other programs killed": Trouble(_others_killed, _others_restarted),
    "all programs killed after it": Trouble(_all_killed, _all_restarted),
    "API server killed before it": Trouble(_server_killed(after=False), _server_was_down()),
    "API server killed after it": Trouble(_server_killed(after=True), _server_was_down(0.0)),
    "duplicated": Trouble(_same(Fault.duplicate()), _performed_twice),
    "late": Trouble(_same(Fault.late(LATE)), _answered("", LATE)),
    "writer killed, its write late": Trouble(_killed_late(3.0), _writer_restarted(3.0)),
    "writer killed, its write later": Trouble(_killed_late(LATE), _writer_restarted(LATE)),
    "409": Trouble(_same(Fault.answer(409, "Conflict")), _answered("409")),
    "410": Trouble(_expired, _relisted),
    "429": Trouble(_same(Fault.answer(429, "TooManyRequests", retry_after=2)), _answered("429")),
    "500 before it": Trouble(_same(Fault.answer(500, "InternalError")), _answered("500")),
    "500 after it": Trouble(
        _same(Fault.answer(500, "InternalError", after=True)), _answered("500", 0.0)
    ),
    "timed out before it": Trouble(_same(Fault.hang()), _answered("")),
    "timed out after it": Trouble(_same(Fault.hang(after=True)), _answered("", 0.0)),
    "reset before it": Trouble(_same(Fault.reset()), _answered(RESET)),
    "reset after it": Trouble(_same(Fault.reset(after=True)), _answered(RESET, 0.0)),
    "watches silent": Trouble(
        lambda cluster: Fault.preceded_by(lambda: _silence(cluster)), _watched_again
    ),
    "watches mute": Trouble(lambda cluster: Fault.preceded_by(cluster.server.mute_watches), _muted),
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
"""Those after which the programs know least; the sample of every life has them."""


def _writer(cluster: FakeCluster) -> str:
    """The program that sent the write: the last request that arrived."""
    return _program(cluster.server.requests[-1].client)


def _program(client: str) -> str:
    return client.partition("-")[0]


def _kill(cluster: FakeCluster, *names: str) -> None:
    async def killing() -> None:
        await cluster.kill(*names)
        await asyncio.sleep(RESTART)
        cluster.start(*names)

    cluster.beside(killing())


def _outage(cluster: FakeCluster) -> None:
    server = cluster.server
    server.down = True
    server.reset_watches()

    def back() -> None:
        server.compact()
        server.down = False

    asyncio.get_running_loop().call_later(OUTAGE, back)


def _silence(cluster: FakeCluster) -> None:
    server = cluster.server
    server.freeze_watches()

    def back() -> None:
        server.freeze_watches(frozen=False)
        server.reset_watches()

    asyncio.get_running_loop().call_later(SILENCE, back)

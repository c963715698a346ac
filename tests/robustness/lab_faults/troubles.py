"""The troubles: what happens to one write, and to whom besides."""

from collections.abc import Callable
from typing import Final

from kubeshare.simulator.control import Fault
from robustness.lab_faults.programs import Programs
from robustness.lab_faults.proxy import Proxy

OUTAGE: Final = 3.0
"""Seconds for which the API server is away."""

Trouble = Callable[[Proxy, Programs, str], Fault]
"""Given who there is, and who writes, what the write meets."""


def _killed(*, after: bool) -> Trouble:
    """The program that writes is killed, and started again."""

    def trouble(proxy: Proxy, programs: Programs, writer: str) -> Fault:
        return Fault.hang(after=after, action=lambda: programs.kill(writer))

    return trouble


def _all_killed(proxy: Proxy, programs: Programs, writer: str) -> Fault:
    return Fault.hang(after=True, action=programs.kill)


def _away(*, after: bool) -> Trouble:
    """All connections break, and nobody is let in for a while."""

    def trouble(proxy: Proxy, programs: Programs, writer: str) -> Fault:
        return Fault.reset(after=after, action=lambda: proxy.outage(OUTAGE))

    return trouble


def _same(fault: Fault) -> Trouble:
    return lambda _proxy, _programs, _writer: fault


KILLING: Final[dict[str, Trouble]] = {
    "writer killed before it": _killed(after=False),
    "writer killed after it": _killed(after=True),
    "both programs killed after it": _all_killed,
}
"""They meet scheduler and device manager only: a kubelet takes longer and longer to start an
agent again that is killed again and again."""

TROUBLES: Final[dict[str, Trouble]] = KILLING | {
    "API server away before it": _away(after=False),
    "API server away after it": _away(after=True),
    "duplicated": _same(Fault.duplicate()),
    "409": _same(Fault.answer(409, "Conflict")),
    "429": _same(Fault.answer(429, "TooManyRequests", retry_after=1)),
    "500 after it": _same(Fault.answer(500, "InternalError", after=True)),
    "reset after it": _same(Fault.reset(after=True)),
}

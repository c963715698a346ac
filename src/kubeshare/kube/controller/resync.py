"""Queues every key of a controller again from time to time.

It is a net under event handlers, which pass over most changes: one that passes over too much would
leave an object as it is until the next restart. A resync ends that within two rounds of
:data:`RESYNC_SECONDS`. A round is spread evenly, and its keys yield to those of changes. Above
:data:`KEYS_PER_SECOND` x :data:`RESYNC_SECONDS` objects it takes longer: reconciling what needs
nothing must cost next to nothing.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Final, TypeVar

from kubeshare.kube.controller.controller import Controller
from kubeshare.kube.controller.runtime import Program

K = TypeVar("K", bound=Hashable)

RESYNC_SECONDS: Final = 600.0
"""Seconds in which all keys are queued once."""
KEYS_PER_SECOND: Final = 50.0
"""The most keys that one controller is given in a second."""


def add_resync(
    program: Program, controller: Controller[K], keys: Callable[[], Iterable[K]]
) -> None:
    """Queue keys again and again while a program leads.

    Args:
        program: runs it.
        controller: reconciles the keys; one whose object has gone does no harm.
        keys: returns all of them; called at the start of each round.
    """
    program.add_task(partial(_resync, controller, keys), leading=True)


async def _resync(controller: Controller[K], keys: Callable[[], Iterable[K]]) -> None:
    while True:
        listed = tuple(keys())
        pause = max(RESYNC_SECONDS / max(len(listed), 1), 1 / KEYS_PER_SECOND)
        for key in listed:
            await asyncio.sleep(pause)
            controller.queue.add(key, initial=True)
        if not listed:
            await asyncio.sleep(pause)

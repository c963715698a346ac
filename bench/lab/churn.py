"""Kills each of eight programs while SharePods come and go, in the lab.

``PYTHONPATH=tests python -m bench.lab.churn`` (root; five minutes besides the boot). SharePods of
random sizes are created and deleted all the while; five pods run from the beginning to the end.
After each kill it is measured how long it takes until a SharePod that was created afterwards runs.
Objects, grants and placeholders are compared four times a second: no GPU may be given out twice,
and the five must not have been restarted.
"""

import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Final

from bench.report import NO_GOAL, Met, at_least, at_most, print_machine, report, summarize
from e2e import trio
from e2e.booting import booted, space_in
from e2e.space import REST, Space
from e2e.stage import DEVICE_MANAGER, NODE_AGENT, SCHEDULER, TOKEN_DAEMON, Place, Stage, eventually
from kubeshare.lab.boot import CONTROL_PLANE_PARTS
from kubeshare.lab.errors import LabError
from robustness.lab_faults.watcher import Watcher

SEED: Final = 15
AT_ONCE: Final = 5
"""SharePods that come and go are at most so many."""
PAUSE_SECONDS: Final = 0.5
CALM_SECONDS: Final = 20.0
"""Of coming and going after a program is back, before the next is killed."""
MOST_SECONDS: Final = 60.0
LEAST_LOOKS: Final = 300
STEADY: Final = ("steady-a", "steady-b")
PROBE_SECONDS: Final = 180.0


class Churn:
    """Creates and deletes SharePods until it is told to stop.

    Args:
        space: where.

    Attributes:
        created: how many there have been.
        refused: requests that the API server did not answer.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._random = random.Random(SEED)
        self._there: deque[str] = deque()
        self._over = threading.Event()
        self.created = 0
        self.refused = 0

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Have them come and go within the block; none is left at its end."""
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
        while self._there:
            self._delete()

    def _run(self) -> None:
        while not self._over.wait(PAUSE_SECONDS):
            try:
                self._create()
                if len(self._there) > AT_ONCE:
                    self._delete()
            except LabError:  # what it asks was killed
                self.refused += 1

    def _create(self) -> None:
        name = f"comes-{self.created}"
        request = self._random.choice(("0.1", "0.2", "0.3", "0.5"))
        self.created += 1
        self._there.append(name)
        self._space.share(name, {"request": request, "memory": "256Mi"}, REST)

    def _delete(self) -> None:
        name = self._there.popleft()
        if self._space.sharepod(name) is not None:
            self._space.delete("sharepod", name)


def main() -> int:
    """Boot a lab, measure, take it down, and say how many goals are met."""
    with booted("churn") as stage, space_in(stage) as space:
        print_machine()
        return summarize(_measure(stage, space))


def _measure(stage: Stage, space: Space) -> list[Met]:
    place = trio.come(space)
    for name in STEADY:
        space.share(name, {"request": "0.1", "memory": "256Mi"}, REST)
        space.ready(name)
    pods = (*trio.PODS, *STEADY)
    lives = {pod: space.lives(pod) for pod in pods}
    churn, probes = Churn(space), count()
    with Watcher(stage) as watcher, churn.going_on():
        took = {
            name: _until_another_runs(stage, space, kill, f"probe-{next(probes)}")
            for name, kill in _kills(stage, place).items()
        }
    restarted = [pod for pod in pods if space.lives(pod) != lives[pod]]
    return [
        *(
            report(
                f"s from the death of {name} until a SharePod created after it runs",
                at_most(MOST_SECONDS),
                seconds,
            )
            for name, seconds in took.items()
        ),
        report("GPUs given out twice", at_most(0), len(watcher.overcommitted)),
        report(
            "looks at all objects, grants and placeholders", at_least(LEAST_LOOKS), watcher.checks
        ),
        report("of five pods, restarted", at_most(0), len(restarted), pods=restarted),
        report("SharePods that came and went", NO_GOAL, churn.created, unanswered=churn.refused),
    ]


def _kills(stage: Stage, place: Place) -> dict[str, Callable[[], None]]:
    """How each program is ended by force, and started again where nothing else does it."""

    def of_control_plane(part: str) -> Callable[[], None]:
        return lambda: stage.lab.restart_component(f"control-plane/{part}")

    def of_node(component: str) -> Callable[[], None]:
        return lambda: stage.kill_process(component, place.node)

    def of_leader(component: str) -> Callable[[], None]:
        return lambda: stage.delete_pod(component)

    return {
        **{part: of_control_plane(part) for part in CONTROL_PLANE_PARTS},
        **{f"kubeshare-{each}": of_leader(each) for each in (SCHEDULER, DEVICE_MANAGER)},
        **{f"kubeshare-{each}": of_node(each) for each in (NODE_AGENT, TOKEN_DAEMON)},
    }


def _until_another_runs(stage: Stage, space: Space, kill: Callable[[], None], name: str) -> float:
    """Kill, and wait until a new SharePod runs; then it goes, and all is calm for a while."""
    began = time.monotonic()
    kill()
    eventually(lambda: _created(space, name), f"{name} to be accepted", seconds=PROBE_SECONDS)
    eventually(lambda: _runs(space, name), f"{name} to run", seconds=PROBE_SECONDS)
    took = time.monotonic() - began
    space.delete("sharepod", name)
    for component in (SCHEDULER, DEVICE_MANAGER, NODE_AGENT, TOKEN_DAEMON):
        stage.until_ready(component)
    time.sleep(CALM_SECONDS)
    return took


def _created(space: Space, name: str) -> bool:
    try:
        space.share(name, {"request": "0.1", "memory": "256Mi"}, REST)
    except LabError:
        return False
    return True


def _runs(space: Space, name: str) -> bool:
    try:
        return space.phase(name) == "Running"
    except LabError:
        return False


if __name__ == "__main__":
    sys.exit(main())

"""What the driver counts for the processes of commands beyond what the library tracks."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pynvml
import pytest
from structlog.testing import capture_logs

from deadlines import DEADLINE_S
from kubeshare.simulator.control import until
from kubeshare.tokens import overheads
from kubeshare.tokens.files import counters
from kubeshare.tokens.files.counters import Process
from kubeshare.tokens.files.grants import Grant
from kubeshare.tokens.files.run_folder import Paths
from tokens.helpers import GPU_A, GPU_B, grant


class Machine:
    """The driver's and the library's counts, which the watch reads in turn.

    Attributes:
        driver: (GPU, pid) → bytes; an error is raised instead.
        library: what each read of the counters finds.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.driver: Mapping[tuple[str, int], int | None] | Exception = {}
        self.library: list[list[Process]] = [[]]
        self.asked: list[set[str]] = []
        self.reported: list[tuple[str, str, int]] = []
        self.commands: dict[str, tuple[Grant, list[int]]] = {}
        monkeypatch.setattr(overheads, "memory_of_processes", self._memory)
        monkeypatch.setattr(counters, "processes", self._processes)
        monkeypatch.setattr(overheads, "_PERIOD_S", 0.001)

    def _memory(self, uuids: Any) -> Mapping[tuple[str, int], int | None]:
        self.asked.append(set(uuids))
        if isinstance(self.driver, Exception):
            raise self.driver
        return self.driver

    def _processes(self, _: object) -> list[Process]:
        return self.library.pop(0) if len(self.library) > 1 else self.library[0]

    def watch(self, paths: Paths, samples: int) -> None:
        """Watch until so many samples were taken and reported."""

        async def run() -> None:
            task = asyncio.create_task(overheads.watch(paths, self._held, self._report))
            await until(lambda: len(self.asked) > samples or task.done(), seconds=DEADLINE_S)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        asyncio.run(run())

    def _held(self) -> Mapping[str, tuple[Grant, list[int]]]:
        return self.commands

    def _report(self, claim: str, uuid: str, overhead: int) -> None:
        self.reported.append((claim, uuid, overhead))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def process(pid: int, *memory: int) -> Process:
    return Process(pid, memory, (0,) * len(memory))


def test_the_rest_of_all_processes_is_reported_for_each_gpu(machine: Machine, paths: Paths) -> None:
    machine.commands = {"c": (grant("c", gpus=(GPU_A, GPU_B)), [8])}
    machine.library = [[process(7, 100, 10), process(9, 20, 5)]]
    # Process 8 has a connection and no slot yet, 66 is nobody's of ours.
    machine.driver = {(GPU_A, 7): 500, (GPU_A, 8): 300, (GPU_A, 66): 9000, (GPU_B, 9): 50}
    machine.watch(paths, samples=2)
    assert machine.asked[0] == {GPU_A, GPU_B}
    assert set(machine.reported) == {("c", GPU_A, 680), ("c", GPU_B, 35)}


def test_the_larger_count_of_the_library_is_subtracted(machine: Machine, paths: Paths) -> None:
    machine.commands = {"c": (grant("c"), [])}
    machine.library = [[process(7, 100)], [process(7, 400)]] * 20 + [[process(7, 400)]]
    machine.driver = {(GPU_A, 7): 500}
    machine.watch(paths, samples=3)
    assert set(machine.reported) == {("c", GPU_A, 100)}


def test_what_the_library_counts_beyond_the_driver_is_no_overhead(
    machine: Machine, paths: Paths
) -> None:
    machine.commands = {"c": (grant("c"), [])}
    machine.library = [[process(7, 900)]]
    machine.driver = {(GPU_A, 7): 500}
    machine.watch(paths, samples=1)
    assert machine.reported[0] == ("c", GPU_A, 0)


def test_a_process_without_memory_has_no_overhead(machine: Machine, paths: Paths) -> None:
    machine.commands = {"c": (grant("c"), [7, 8])}
    machine.driver = {(GPU_A, 7): 0, (GPU_A, 8): 500}
    machine.watch(paths, samples=2)
    assert set(machine.reported) == {("c", GPU_A, 500)}


def test_nothing_is_reported_where_the_driver_does_not_report_a_process(
    machine: Machine, paths: Paths
) -> None:
    machine.commands = {"c": (grant("c"), [7, 8])}
    machine.driver = {(GPU_A, 7): None, (GPU_A, 8): 500}
    machine.watch(paths, samples=3)
    assert not machine.reported


def test_a_driver_that_does_not_answer_is_asked_again(machine: Machine, paths: Paths) -> None:
    machine.commands = {"c": (grant("c"), [7])}
    machine.driver = pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)
    with capture_logs() as logs:
        machine.watch(paths, samples=3)
    assert len(machine.asked) > 3
    assert not machine.reported
    words = {"event": "contexts are not charged: the driver does not answer"}
    assert logs == [words | {"reason": str(machine.driver), "log_level": "warning"}]


def test_a_larger_overhead_is_believed_when_two_samples_agree() -> None:
    stable, key = overheads.StableOverheads(), ("c", GPU_A)
    assert stable.add({key: 5}) == {}
    assert stable.add({key: 7}) == {key: 5}
    assert stable.add({key: 7}) == {key: 7}
    assert stable.add({key: 3}) == {key: 3}
    assert stable.add({}) == {}
    assert stable.add({key: 7}) == {}
    assert stable.add({key: 0}) == {key: 0}

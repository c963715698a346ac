"""Hardware queues: streams of one process side by side, and those that share a queue."""

from pathlib import Path
from typing import Any

import pytest

from fakes.gpu_client import drive
from kubeshare import fakegpu

pytestmark = [pytest.mark.native, pytest.mark.slow]

MILLISECOND_NS = 1_000_000
READY, NOT_READY = "CUDA_SUCCESS", "CUDA_ERROR_NOT_READY"

STREAMS = """
    streams = [good(d.cuStreamCreate(1)) for _ in range(4)]
    event = good(d.cuEventCreate(0))
"""


def machine(folder: Path, queues: int) -> str:
    path = folder / f"queues-{queues}.profile"
    path.write_text(f"hardware_queues = {queues}\n")
    return str(path)


def run(folder: Path, queues: int, script: str, connections: str = "") -> tuple[Any, float]:
    """What the script answers, and the milliseconds that the GPU was busy."""
    answer = drive(
        folder,
        STREAMS + script,
        machine(folder, queues),
        CUDA_DEVICE_MAX_CONNECTIONS=connections,
    )
    return answer, fakegpu.stat(folder).gpus[0].busy_ns / MILLISECOND_NS


LONG_AND_SHORT = """
    launch({long_us}, streams[0])
    launch(10_000, streams[1])
    good(d.cuStreamSynchronize(streams[1]))
    answer = d.cuStreamQuery(streams[0])[0].name
"""
WITHOUT_END_US = 120_000_000
"""Of a kernel that ends with its process, which a busy machine may hold up for seconds."""


def test_kernels_of_different_queues_run_side_by_side(tmp_path: Path) -> None:
    answer, _ = run(tmp_path, 8, LONG_AND_SHORT.format(long_us=WITHOUT_END_US))
    assert answer == NOT_READY


@pytest.mark.parametrize("queues", [0, 1])
def test_kernels_of_one_queue_run_one_after_another(tmp_path: Path, queues: int) -> None:
    assert run(tmp_path, queues, LONG_AND_SHORT.format(long_us=100_000)) == (READY, 110)


EVENT_OF_AN_IDLE_STREAM = f"""
    launch({WITHOUT_END_US}, streams[0])
    answer = []
    for stream in streams[1:]:
        good(d.cuEventRecord(event, stream))
        answer.append(d.cuEventQuery(event)[0].name)
"""


@pytest.mark.parametrize(
    ("queues", "variable", "expected"),
    [
        (0, "1", [READY, READY, READY]),
        (1, "", [NOT_READY, NOT_READY, NOT_READY]),
        (2, "", [READY, NOT_READY, READY]),
        (8, "", [READY, READY, READY]),
        (8, "2", [READY, NOT_READY, READY]),
        (2, "0", [READY, NOT_READY, READY]),
        (2, "33", [READY, NOT_READY, READY]),
        (2, "many", [READY, NOT_READY, READY]),
    ],
)
def test_an_event_waits_for_what_shares_its_queue(
    tmp_path: Path, queues: int, variable: str, expected: list[str]
) -> None:
    answer, _ = run(tmp_path, queues, EVENT_OF_AN_IDLE_STREAM, variable)
    assert answer == expected


@pytest.mark.parametrize("queues", [1, 2, 8])
def test_who_waits_for_a_stream_waits_for_the_events_that_it_waits_for(
    tmp_path: Path, queues: int
) -> None:
    script = """
    answer = []
    for other in streams[1:]:
        launch(50_000, streams[0])
        good(d.cuEventRecord(event, streams[0]))
        good(d.cuStreamWaitEvent(other, event, 0))
        good(d.cuStreamSynchronize(other))
        answer.append(d.cuEventQuery(event)[0].name)
    """
    assert run(tmp_path, queues, script) == ([READY] * 3, 150)


def test_a_stream_waits_for_another_ones_event(tmp_path: Path) -> None:
    script = """
    launch(100_000, streams[0])
    good(d.cuEventRecord(event, streams[0]))
    good(d.cuStreamWaitEvent(streams[1], event, 0))
    launch(10_000, streams[1])
    good(d.cuStreamSynchronize(streams[1]))
    answer = d.cuStreamQuery(streams[0])[0].name
    """
    assert run(tmp_path, 8, script) == (READY, 110)


def test_the_legacy_stream_and_blocking_ones_wait_for_each_other(tmp_path: Path) -> None:
    script = """
    first, second = good(d.cuStreamCreate(0)), good(d.cuStreamCreate(0))
    launch(100_000, first)
    launch(10_000)
    launch(1_000, second)
    good(d.cuStreamSynchronize(second))
    answer = [d.cuStreamQuery(each)[0].name for each in (first, 0)]
    """
    assert run(tmp_path, 8, script) == ([READY, READY], 111)


@pytest.mark.parametrize("queues", [2, 8])
def test_an_event_of_a_context_is_after_all_its_streams(tmp_path: Path, queues: int) -> None:
    script = """
    start = good(d.cuEventCreate(0))
    good(d.cuEventRecord(start, streams[0]))
    word = ctypes.c_uint32(0)
    for number, stream in enumerate(streams):
        good(d.cuStreamWaitValue32(stream, ctypes.addressof(word), 1, 0))
        launch(100_000 * (4 - number), stream)
    good(d.cuCtxRecordEvent(context, event))
    pending = d.cuEventQuery(event)[0].name
    word.value = 1
    good(d.cuStreamWaitEvent(streams[3], event, 0))
    launch(1_000, streams[3])
    good(d.cuEventSynchronize(event))
    idle = [d.cuStreamQuery(each)[0].name for each in streams[:3]]
    good(d.cuStreamSynchronize(streams[3]))
    answer = [pending, idle, good(d.cuEventElapsedTime(start, event)) >= 400]
    """
    answer, busy_ms = run(tmp_path, queues, script)
    assert answer == [NOT_READY, [READY] * 3, True]
    assert {2: 601, 8: 401}[queues] <= busy_ms <= 1001


def test_events_keep_their_time_when_their_places_are_used_again(tmp_path: Path) -> None:
    script = """
    start = good(d.cuEventCreate(0))
    good(d.cuEventRecord(start, streams[0]))
    launch(50_000, streams[0])
    launch(20_000, streams[1])
    good(d.cuCtxRecordEvent(context, event))
    for _ in range(3000):
        launch(1, streams[2])
    good(d.cuCtxSynchronize())
    answer = good(d.cuEventElapsedTime(start, event))
    """
    answer, busy_ms = run(tmp_path, 8, script)
    assert 50 <= answer < busy_ms + 50


def test_a_thousand_kernels_of_all_queues_wait_then_a_launch_does(tmp_path: Path) -> None:
    script = """
    for number in range(2500):
        launch(100, streams[number % 4])
    good(d.cuCtxSynchronize())
    answer = [d.cuStreamQuery(each)[0].name for each in streams]
    """
    answer, busy_ms = run(tmp_path, 4, script)
    assert answer == [READY] * 4
    assert 62.5 <= busy_ms <= 250


def test_processes_take_turns_whatever_their_queues(tmp_path: Path) -> None:
    script = f"""
    for stream in streams:
        launch({WITHOUT_END_US}, stream)
    elsewhere("launch(100_000); good(d.cuCtxSynchronize()); answer = 0")
    answer = d.cuStreamQuery(streams[0])[0].name
    """
    answer, _ = run(tmp_path, 8, script)
    assert answer == NOT_READY
    gpu = fakegpu.stat(tmp_path).gpus[0]
    shares_ns = [process.busy_ns for process in gpu.processes]
    assert min(shares_ns) == 100 * MILLISECOND_NS
    assert sum(shares_ns) == gpu.busy_ns

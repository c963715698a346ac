"""Work that waits: functions of the program, values that somebody writes, other GPUs' events."""

from pathlib import Path

import pytest

from fakes.gpu_client import drive
from kubeshare import fakegpu

pytestmark = pytest.mark.native

FUNCTIONS = """
    import threading, time
    log = []
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    note = function(lambda data: log.append([data, d.cuStreamQuery(stream)[0].name]))
    gate = threading.Event()
    wait = function(lambda data: gate.wait())

    def call(what, stream, data=0):
        good(d.cuLaunchHostFunc(stream, ctypes.cast(what, ctypes.c_void_p).value, data))

    stream, other = good(d.cuStreamCreate(1)), good(d.cuStreamCreate(1))
    start, end = good(d.cuEventCreate(0)), good(d.cuEventCreate(0))
"""


def test_functions_run_in_order_and_may_not_use_the_driver(tmp_path: Path) -> None:
    script = (
        FUNCTIONS
        + """
    call(wait, stream)
    for number in range(1, 4):
        launch(1000, stream)
        call(note, stream, number)
    pending = d.cuStreamQuery(stream)[0].name
    gate.set()
    good(d.cuStreamSynchronize(stream))
    answer = [pending, log]
    """
    )
    refused = "CUDA_ERROR_NOT_PERMITTED"
    log = [[1, refused], [2, refused], [3, refused]]
    assert drive(tmp_path, script) == ["CUDA_ERROR_NOT_READY", log]
    assert fakegpu.stat(tmp_path).gpus[0].busy_ns == 3_000_000


def test_what_follows_a_function_waits_for_it_and_nothing_else_does(tmp_path: Path) -> None:
    script = (
        FUNCTIONS
        + """
    call(wait, stream)
    launch(1000, stream)
    good(d.cuEventRecord(end, stream))
    launch(2000, other)
    good(d.cuStreamSynchronize(other))
    held = [d.cuEventQuery(end)[0].name, d.cuStreamQuery(stream)[0].name]
    gate.set()
    good(d.cuEventSynchronize(end))
    answer = held + [d.cuStreamQuery(stream)[0].name]
    """
    )
    not_ready = "CUDA_ERROR_NOT_READY"
    assert drive(tmp_path, script) == [not_ready, not_ready, "CUDA_SUCCESS"]


def test_the_legacy_stream_waits_for_a_function_in_a_blocking_stream(tmp_path: Path) -> None:
    script = (
        FUNCTIONS
        + """
    blocking = good(d.cuStreamCreate(0))
    call(wait, blocking)
    launch(100)
    held = [d.cuStreamQuery(0)[0].name, d.cuStreamQuery(other)[0].name]
    gate.set()
    good(d.cuStreamSynchronize(0))
    answer = held + [d.cuStreamQuery(blocking)[0].name]
    """
    )
    assert drive(tmp_path, script) == ["CUDA_ERROR_NOT_READY", "CUDA_SUCCESS", "CUDA_SUCCESS"]


def test_a_callback_is_told_its_stream(tmp_path: Path) -> None:
    script = (
        FUNCTIONS
        + """
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    told = kind(lambda stream, status, data: log.append([stream, status, data]))
    good(d.cuStreamAddCallback(stream, ctypes.cast(told, ctypes.c_void_p).value, 9, 0))
    good(d.cuStreamDestroy(stream))
    good(d.cuCtxSynchronize())
    answer = log == [[int(stream), 0, 9]]
    """
    )
    assert drive(tmp_path, script) is True


def test_a_stream_waits_for_a_value_and_writes_one(tmp_path: Path) -> None:
    script = (
        FUNCTIONS
        + """
    cells = int(good(d.cuMemHostAlloc(64, 0)))
    cell = lambda place: ctypes.c_uint32.from_address(cells + 4 * place)
    for place in range(8):
        cell(place).value = 0
    good(d.cuStreamWaitValue32(stream, cells, 5, 0))
    launch(300, stream)
    good(d.cuStreamWriteValue32(stream, cells + 4, 77, 0))
    good(d.cuEventRecord(end, stream))
    good(d.cuStreamWaitEvent(other, end, 0))
    call(note, other, 1)
    launch(50, good(d.cuStreamCreate(1)))
    before = [cell(1).value, d.cuStreamQuery(other)[0].name, list(log)]
    cell(0).value = 6
    good(d.cuStreamSynchronize(other))
    answer = [before, cell(1).value, len(log)]
    """
    )
    assert drive(tmp_path, script) == [[0, "CUDA_ERROR_NOT_READY", []], 77, 1]
    assert fakegpu.stat(tmp_path).gpus[0].busy_ns == 350_000


def test_a_wide_value_is_written_and_the_device_says_that_it_can(tmp_path: Path) -> None:
    script = """
    import ctypes
    cell = ctypes.c_uint64.from_address(int(good(d.cuMemHostAlloc(64, 0))))
    good(d.cuStreamWriteValue64(0, ctypes.addressof(cell), 1 << 40, 0))
    good(d.cuCtxSynchronize())
    asked = [
        d.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
        d.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR,
    ]
    answer = [cell.value, *[good(d.cuDeviceGetAttribute(each, device)) for each in asked]]
    """
    assert drive(tmp_path, script) == [1 << 40, 1, 1]


def test_a_value_is_compared_as_asked(tmp_path: Path) -> None:
    script = (
        FUNCTIONS
        + """
    cell = ctypes.c_uint32.from_address(int(good(d.cuMemHostAlloc(64, 0))))
    flags = {"at least": 0, "equal": 1, "and": 2, "nor": 3}
    answer = []
    for how, wanted, too_early, then in CASES:
        cell.value = too_early
        good(d.cuStreamWaitValue32(stream, ctypes.addressof(cell), wanted, flags[how]))
        call(note, other, 1)
        good(d.cuStreamSynchronize(other))
        held = d.cuStreamQuery(stream)[0].name
        cell.value = then
        good(d.cuStreamSynchronize(stream))
        answer.append(held)
    """
    )
    cases = [
        ("at least", 5, 4, 6),
        ("at least", 1, 0xFFFFFFFF, 1),
        ("equal", 5, 6, 5),
        ("and", 12, 3, 8),
        ("nor", 0xF0, 0xFFFFFF0F, 7),
    ]
    answers = drive(tmp_path, script.replace("CASES", repr(cases)))
    assert answers == ["CUDA_ERROR_NOT_READY"] * len(cases)


def test_a_stream_waits_for_an_event_of_another_gpu_and_its_caller_does_not(
    tmp_path: Path,
) -> None:
    script = (
        FUNCTIONS
        + """
    call(wait, stream)
    launch(60000, stream)
    good(d.cuEventRecord(end, stream))
    second = good(d.cuDevicePrimaryCtxRetain(good(d.cuDeviceGet(1))))
    good(d.cuCtxSetCurrent(second))
    there = good(d.cuStreamCreate(1))
    begin, after = good(d.cuEventCreate(0)), good(d.cuEventCreate(0))
    good(d.cuEventRecord(begin, there))
    good(d.cuStreamWaitEvent(there, end, 0))
    launch(1000, there)
    good(d.cuEventRecord(after, there))
    pending = d.cuEventQuery(end)[0].name
    gate.set()
    good(d.cuEventSynchronize(after))
    took = good(d.cuEventElapsedTime(begin, after))
    answer = [pending, d.cuEventQuery(end)[0].name, took]
    """
    )
    pending, over, took = drive(tmp_path, script, "V100x2")
    assert [pending, over] == ["CUDA_ERROR_NOT_READY", "CUDA_SUCCESS"]
    assert took >= 60


def test_an_event_is_recorded_again_while_its_recording_is_held_up(tmp_path: Path) -> None:
    script = (
        FUNCTIONS
        + """
    call(wait, stream)
    good(d.cuEventRecord(end, stream))
    good(d.cuEventRecord(end, other))
    good(d.cuEventSynchronize(end))
    good(d.cuEventRecord(end, stream))
    good(d.cuEventDestroy(end))
    gate.set()
    good(d.cuStreamSynchronize(stream))
    answer = "done"
    """
    )
    assert drive(tmp_path, script) == "done"


def test_every_stream_of_a_context_waits_for_an_event(tmp_path: Path) -> None:
    script = (
        FUNCTIONS
        + """
    call(wait, stream)
    good(d.cuEventRecord(end, stream))
    good(d.cuCtxWaitEvent(context, end))
    launch(10, other)
    held = [d.cuStreamQuery(other)[0].name, d.cuStreamQuery(0)[0].name]
    gate.set()
    good(d.cuCtxSynchronize())
    answer = held + [d.cuStreamQuery(other)[0].name]
    """
    )
    not_ready = "CUDA_ERROR_NOT_READY"
    assert drive(tmp_path, script) == [not_ready, not_ready, "CUDA_SUCCESS"]


def test_what_is_set_of_a_stream_is_kept(tmp_path: Path) -> None:
    script = (
        FUNCTIONS
        + """
    ids = d.CUlaunchAttributeID
    policy, priority = (ids.CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY,
                        ids.CU_LAUNCH_ATTRIBUTE_PRIORITY)
    value = d.CUstreamAttrValue()
    value.syncPolicy = d.CUsynchronizationPolicy.CU_SYNC_POLICY_YIELD
    good(d.cuStreamSetAttribute(stream, policy, value))
    good(d.cuStreamCopyAttributes(other, stream))
    value.priority = -2
    good(d.cuStreamSetAttribute(stream, priority, value))
    answer = [good(d.cuStreamGetAttribute(other, policy)).syncPolicy.name,
              good(d.cuStreamGetPriority(stream)),
              d.cuStreamSetAttribute(stream, ids.CU_LAUNCH_ATTRIBUTE_COOPERATIVE, value)[0].name]
    """
    )
    assert drive(tmp_path, script) == ["CU_SYNC_POLICY_YIELD", -2, "CUDA_ERROR_INVALID_VALUE"]


def test_a_stream_that_waits_with_all_it_can_hold_up_holds_up_no_other(tmp_path: Path) -> None:
    script = (
        FUNCTIONS
        + """
    call(wait, stream)
    for _ in range(1023):
        launch(1, stream)
    launch(500, other)
    good(d.cuStreamSynchronize(other))
    held = d.cuStreamQuery(stream)[0].name
    gate.set()
    good(d.cuStreamSynchronize(stream))
    answer = held
    """
    )
    assert drive(tmp_path, script) == "CUDA_ERROR_NOT_READY"
    assert fakegpu.stat(tmp_path).gpus[0].busy_ns == 1_523_000

"""What breaks a capture, and with which error: as NVIDIA documents it and users have seen it."""

from pathlib import Path

import pytest

from fakes.gpu_client import drive

pytestmark = pytest.mark.native

RULES = """
    import threading
    modes = d.CUstreamCaptureMode
    names = {"global": modes(0), "local": modes(1), "relaxed": modes(2)}

    def rule(call, capture, thread, foreign, blocking):
        stream = good(d.cuStreamCreate(0 if blocking else 1))
        other = good(d.cuStreamCreate(1))
        event, captured = good(d.cuEventCreate(0)), good(d.cuEventCreate(0))
        good(d.cuEventRecord(event, other))
        memory = good(d.cuMemAlloc(4096))
        good(d.cuStreamBeginCapture(stream, names[capture]))
        good(d.cuEventRecord(captured, stream))
        results = []
        scope = {**globals(), **locals()}

        def ask():
            good(d.cuCtxSetCurrent(context))
            before = good(d.cuThreadExchangeStreamCaptureMode(names[thread]))
            results.append(eval(call, scope)[0].name)
            good(d.cuThreadExchangeStreamCaptureMode(before))

        if foreign:
            asking = threading.Thread(target=ask)
            asking.start()
            asking.join()
        else:
            ask()
        return results + [d.cuStreamEndCapture(stream)[0].name]

    answer = [rule(*case) for case in CASES]
"""

FINE = ["CUDA_SUCCESS", "CUDA_SUCCESS"]
INVALIDATED = "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
UNSUPPORTED = ["CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", INVALIDATED]
IMPLICIT = ["CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", INVALIDATED]
CAPTURED = ["CUDA_ERROR_CAPTURED_EVENT", INVALIDATED]
ISOLATION = ["CUDA_ERROR_STREAM_CAPTURE_ISOLATION", INVALIDATED]

LAUNCH = "d.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, {}, ((1,), (ctypes.c_uint32,)), 0)"

Case = tuple[str, str, str, bool, bool]
"""A call; the modes of the capture and of the thread that calls; whether that is another thread
than the capture's; whether the captured stream waits for the legacy one."""


def check(tmp_path: Path, expected: dict[Case, list[str]]) -> None:
    """What calls answer while a stream is captured, and what the end of the capture then does."""
    cases = list(expected)
    answers = drive(tmp_path, RULES.replace("CASES", repr(cases)))
    assert dict(zip(cases, answers, strict=True)) == expected


def test_a_call_that_might_do_harm_is_refused_by_the_two_modes(tmp_path: Path) -> None:
    expected: dict[Case, list[str]] = {}
    for call in (
        "d.cuEventQuery(event)",
        "d.cuStreamSynchronize(other)",
        "d.cuStreamQuery(other)",
        "d.cuMemAlloc(4096)",
        "d.cuMemHostAlloc(4096, 0)",
        "d.cuMemFree(memory)",
        "d.cuModuleLoadData(b'any image')",
        "d.cuMemcpyHtoD(memory, b'word', 4)",
    ):
        expected |= {
            (call, "global", "global", True, False): UNSUPPORTED,
            (call, "global", "local", True, False): FINE,
            (call, "global", "relaxed", True, False): FINE,
            (call, "local", "global", True, False): FINE,
            (call, "relaxed", "global", True, False): FINE,
            (call, "global", "global", False, False): UNSUPPORTED,
            (call, "local", "local", False, False): UNSUPPORTED,
            (call, "relaxed", "global", False, False): FINE,
            (call, "global", "relaxed", False, False): FINE,
        }
    check(tmp_path, expected)


def test_a_call_that_gets_in_the_way_is_refused_in_every_mode(tmp_path: Path) -> None:
    answers = {
        "d.cuCtxSynchronize()": UNSUPPORTED,
        "d.cuCtxRecordEvent(context, event)": UNSUPPORTED,
        "d.cuStreamQuery(stream)": UNSUPPORTED,
        "d.cuStreamSynchronize(stream)": UNSUPPORTED,
        "d.cuEventQuery(captured)": CAPTURED,
        "d.cuEventSynchronize(captured)": CAPTURED,
        "d.cuStreamWaitEvent(stream, event, 0)": ISOLATION,
    }
    expected: dict[Case, list[str]] = {
        (call, capture, "relaxed", True, False): answer
        for call, answer in answers.items()
        for capture in ("global", "local", "relaxed")
    }
    check(tmp_path, expected)


def test_the_legacy_stream_breaks_the_capture_of_a_stream_that_waits_for_it(
    tmp_path: Path,
) -> None:
    expected: dict[Case, list[str]] = {}
    for call in ("d.cuEventRecord(event, 0)", "d.cuStreamSynchronize(0)", LAUNCH.format(0)):
        expected[call, "local", "relaxed", True, True] = IMPLICIT
        expected[call, "local", "relaxed", True, False] = FINE
    check(tmp_path, expected)


def test_calls_that_do_no_harm_are_free_to_all(tmp_path: Path) -> None:
    calls = [
        "d.cuEventRecord(event, other)",
        "d.cuStreamWaitEvent(other, event, 0)",
        "d.cuEventCreate(0)",
        "d.cuStreamIsCapturing(other)",
        "d.cuMemGetInfo()",
        LAUNCH.format("other"),
    ]
    check(tmp_path, {(call, "global", "global", True, False): FINE for call in calls})


FORK = """
    modes = d.CUstreamCaptureMode
    a, b, c = (good(d.cuStreamCreate(1)) for _ in range(3))
    fork, back = good(d.cuEventCreate(0)), good(d.cuEventCreate(0))
    good(d.cuStreamBeginCapture(a, modes(0)))
    launch(100, a)
    good(d.cuEventRecord(fork, a))
    good(d.cuStreamWaitEvent(b, fork, 0))
    launch(200, b)
    good(d.cuEventRecord(back, b))
"""


def test_a_fork_that_comes_back_is_one_graph(tmp_path: Path) -> None:
    script = (
        FORK
        + """
    both = [good(d.cuStreamIsCapturing(stream)).value for stream in (a, b, c)]
    launch(300, a)
    good(d.cuStreamWaitEvent(a, back, 0))
    launch(400, a)
    graph = good(d.cuStreamEndCapture(a))
    _, _, _, edges = good(d.cuGraphGetEdges(graph, 0))
    after = [good(d.cuStreamIsCapturing(stream)).value for stream in (a, b, c)]
    answer = [both, good(d.cuGraphGetNodes(graph, 0))[1], edges, after]
    """
    )
    assert drive(tmp_path, script) == [[1, 1, 0], 4, 4, [0, 0, 0]]


def test_a_capture_that_cannot_end_well_says_why(tmp_path: Path) -> None:
    steps = {
        "d.cuStreamEndCapture(a)": "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
        "d.cuStreamEndCapture(b)": "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
        "d.cuStreamEndCapture(c)": "CUDA_ERROR_ILLEGAL_STATE",
        "d.cuStreamBeginCapture(b, modes(0))": "CUDA_ERROR_ILLEGAL_STATE",
        "d.cuStreamBeginCapture(0, modes(0))": "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        "(good(d.cuStreamBeginCapture(c, modes(0))), d.cuStreamWaitEvent(c, back, 0))[1]": (
            "CUDA_ERROR_STREAM_CAPTURE_MERGE"
        ),
    }
    script = "    answer = {}\n"
    for step in steps:
        script += FORK + f"    answer[{step!r}] = {step}[0].name\n"
    assert drive(tmp_path, script) == steps


def test_only_a_relaxed_capture_may_end_in_another_thread(tmp_path: Path) -> None:
    script = """
    import threading
    answer = []
    for mode in d.CUstreamCaptureMode:
        stream = good(d.cuStreamCreate(1))
        good(d.cuStreamBeginCapture(stream, mode))
        end = lambda: answer.append(d.cuStreamEndCapture(stream)[0].name)
        thread = threading.Thread(target=end)
        thread.start()
        thread.join()
    """
    wrong = "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD"
    assert drive(tmp_path, script) == [wrong, wrong, "CUDA_SUCCESS"]

"""Events that processes share by handle."""

from pathlib import Path

import pytest

from fakes.gpu_client import drive

pytestmark = pytest.mark.native

EVENTS = """
import time
INTERPROCESS = 6
stream = good(d.cuStreamCreate(1))

def launch(microseconds):
    good(d.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream,
                          ((microseconds,), (ctypes.c_uint32,)), 0))

def given(text):
    made = d.CUipcEventHandle()
    ctypes.memmove(made.getPtr(), bytes.fromhex(text), 64)
    return made

def text_of(event):
    return ctypes.string_at(good(d.cuIpcGetEventHandle(event)).getPtr(), 64).hex()
"""

OTHER = """
event = good(d.cuIpcOpenEventHandle(given(os.environ["EVENT"])))
print(d.cuEventQuery(event)[0].name, flush=True)
good(d.cuStreamWaitEvent(stream, event, 0))
answer = [d.cuEventQuery(event)[0].name]
word = ctypes.c_uint32.from_address(int(good(d.cuMemHostAlloc(64, 0))))
word.value = 0
good(d.cuStreamWaitValue32(stream, ctypes.addressof(word), 1, 0))
good(d.cuEventRecord(event, stream))
answer.append(d.cuEventQuery(event)[0].name)
word.value = 1
good(d.cuEventSynchronize(event))
answer.append(d.cuEventQuery(event)[0].name)
good(d.cuEventDestroy(event))
print(json.dumps(answer))
"""


def test_an_event_is_waited_for_in_another_process_and_recorded_there(tmp_path: Path) -> None:
    script = f"""
event = good(d.cuEventCreate(INTERPROCESS))
handle = text_of(event)
flag = good(d.cuMemAlloc(4))
good(d.cuMemsetD8(flag, 0, 4))
good(d.cuStreamWaitValue32(stream, flag, 1, 1))
good(d.cuEventRecord(event, stream))
other = subprocess.Popen(
    [sys.executable, "-c", os.environ["PRELUDE"] + {EVENTS!r} + {OTHER!r}],
    env={{**os.environ, "EVENT": handle}}, stdout=subprocess.PIPE, text=True)
before = other.stdout.readline().strip()
good(d.cuMemsetD8(flag, 1, 1))
seen = json.loads(other.communicate()[0])
answer = [before, seen, d.cuEventQuery(event)[0].name, text_of(event) == handle]
good(d.cuEventDestroy(event))
answer.append(os.listdir(os.environ["FAKEGPU_STATE"]))
"""
    before, seen, query, same, files = drive(tmp_path, EVENTS + script)
    ready, not_ready = "CUDA_SUCCESS", "CUDA_ERROR_NOT_READY"
    assert (before, seen) == (not_ready, [ready, not_ready, ready])
    assert (query, same, files) == (ready, True, ["engine"])


def test_what_a_process_recorded_before_it_died_holds_nothing_up(tmp_path: Path) -> None:
    leave = """
event = good(d.cuIpcOpenEventHandle(given(os.environ["EVENT"])))
launch(60000000)
good(d.cuEventRecord(event, stream))
answer = d.cuEventQuery(event)[0].name
sys.stdout.write(json.dumps(answer))
sys.stdout.flush()
os.kill(os.getpid(), 9)
"""
    script = f"""
event = good(d.cuEventCreate(INTERPROCESS))
done = subprocess.run([sys.executable, "-c", os.environ["PRELUDE"] + {EVENTS!r} + {leave!r}],
                      env={{**os.environ, "EVENT": text_of(event)}}, capture_output=True, text=True)
good(d.cuEventSynchronize(event))
answer = [json.loads(done.stdout), done.returncode, d.cuEventQuery(event)[0].name]
"""
    assert drive(tmp_path, EVENTS + script) == ["CUDA_ERROR_NOT_READY", -9, "CUDA_SUCCESS"]


def test_only_events_made_for_it_have_handles(tmp_path: Path) -> None:
    script = """
event = good(d.cuEventCreate(2))
shared = good(d.cuEventCreate(INTERPROCESS))
answer = [d.cuEventCreate(4)[0].name, d.cuIpcGetEventHandle(event)[0].name,
          d.cuIpcOpenEventHandle(given("00" * 64))[0].name,
          d.cuIpcOpenEventHandle(given(text_of(shared)))[0].name]
"""
    assert drive(tmp_path, EVENTS + script) == [
        "CUDA_ERROR_INVALID_VALUE",
        "CUDA_ERROR_INVALID_HANDLE",
        "CUDA_ERROR_INVALID_HANDLE",
        "CUDA_ERROR_INVALID_CONTEXT",
    ]

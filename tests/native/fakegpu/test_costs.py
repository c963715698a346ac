"""What calls of the driver take their thread, where the profile says so."""

from pathlib import Path

import pytest

from fakes.gpu_client import drive

pytestmark = pytest.mark.native

CALLS = {
    "launch": "launch(1)",
    "event_record": "good(d.cuEventRecord(event, stream))",
    "event_query": "d.cuEventQuery(event)",
    "context_retain": "good(d.cuDevicePrimaryCtxRetain(device))",
}
COST_US = 2000
REPEATS = 10
LONG_COST_US = 400_000


def times_us(folder: Path, profile: str) -> dict[str, tuple[float, float]]:
    """The mean of each call, by the clock and on its thread's CPU."""
    path = folder / "costs.profile"
    path.write_text(profile)
    script = (
        """
import time
stream, event = good(d.cuStreamCreate(1)), good(d.cuEventCreate(0))
def means(call):
    before = time.perf_counter_ns(), time.thread_time_ns()
    for _ in range(REPEATS):
        exec(call, globals())
    after = time.perf_counter_ns(), time.thread_time_ns()
    return [(end - begin) / REPEATS / 1000 for begin, end in zip(before, after)]
""".replace("REPEATS", str(REPEATS))
        + f"answer = {{name: means(call) for name, call in {CALLS!r}.items()}}\n"
    )
    found: dict[str, tuple[float, float]] = drive(folder, script, str(path))
    return found


@pytest.mark.parametrize("dear", CALLS)
def test_a_call_takes_what_the_profile_says(tmp_path: Path, dear: str) -> None:
    times = times_us(tmp_path, f"cost.{dear} = {COST_US}\n")
    took, _ = times.pop(dear)
    assert took >= COST_US
    # A busy machine lengthens them by the clock.
    assert max(on_cpu for _, on_cpu in times.values()) < COST_US / 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "lock", "contexts"),
    [*((call, "context", 1) for call in CALLS), ("launch", "process", 2)],
)
def test_a_call_keeps_other_threads_waiting_where_the_profile_says(
    tmp_path: Path, call: str, lock: str, contexts: int
) -> None:
    path = tmp_path / "locks.profile"
    path.write_text(f"count = 2\ncost.{call} = {LONG_COST_US}\nlock.{call} = {lock}\n")
    script = f"""
import threading, time
def use(device):
    good(d.cuCtxSetCurrent(contexts[device]))
    names = dict(globals(), device=device)
    exec("stream, event = good(d.cuStreamCreate(1)), good(d.cuEventCreate(0))", names)
    ready.wait()
    begin.wait()
    exec({CALLS[call]!r}, names)
contexts = [context, good(d.cuDevicePrimaryCtxRetain(1))]
ready, begin = threading.Barrier(3), threading.Barrier(3)
threads = [threading.Thread(target=use, args=(i % {contexts},)) for i in range(2)]
for thread in threads:
    thread.start()
ready.wait()
before = time.perf_counter_ns()
begin.wait()
for thread in threads:
    thread.join()
answer = (time.perf_counter_ns() - before) / 1000
"""
    assert drive(tmp_path, script, str(path)) >= 2 * LONG_COST_US

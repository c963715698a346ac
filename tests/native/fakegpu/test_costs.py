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


def times_us(folder: Path, profile: str) -> dict[str, float]:
    """The mean of each call on its thread's CPU, which no other process can lengthen."""
    path = folder / "costs.profile"
    path.write_text(profile)
    script = (
        """
import time
stream, event = good(d.cuStreamCreate(1)), good(d.cuEventCreate(0))
def mean(call):
    before = time.thread_time_ns()
    for _ in range(REPEATS):
        exec(call, globals())
    return (time.thread_time_ns() - before) / REPEATS / 1000
""".replace("REPEATS", str(REPEATS))
        + f"answer = {{name: mean(call) for name, call in {CALLS!r}.items()}}\n"
    )
    found: dict[str, float] = drive(folder, script, str(path))
    return found


@pytest.mark.parametrize("dear", CALLS)
def test_a_call_takes_what_the_profile_says(tmp_path: Path, dear: str) -> None:
    times = times_us(tmp_path, f"cost.{dear} = {COST_US}\n")
    # The clock that the driver reads runs on while its thread does not.
    assert times.pop(dear) > COST_US / 2
    assert max(times.values()) < COST_US / 2

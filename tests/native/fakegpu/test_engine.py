"""The engine: what it does with the time and the memory that processes ask for."""

import os
import random
import signal
import subprocess
from functools import partial
from pathlib import Path

import pytest

from deadlines import eventually
from fakes.gpu_client import Client
from kubeshare import fakegpu, native

pytestmark = pytest.mark.native

GIB = 1 << 30
OUT_OF_MEMORY = 2
NOT_INITIALIZED = 3
SLICE_NS = 1_000_000


def truth(state: Path) -> fakegpu.GpuTruth:
    return fakegpu.stat(state).gpus[0]


def busy(state: Path) -> dict[int, int]:
    return {process.pid: process.busy_ns for process in truth(state).processes}


def have_worked(state: Path, pids: list[int], busy_ns: int) -> bool:
    seen = busy(state)
    return all(seen.get(pid, 0) >= busy_ns for pid in pids)


def test_a_kernel_takes_exactly_the_time_that_its_argument_says(tmp_path: Path) -> None:
    with Client(tmp_path) as client:
        client("launch", 20_000)
        client("launch", 3_000)
        client("launch", 1)
        client("synchronize")
        assert truth(tmp_path).busy_ns == 23_001_000


def test_kernels_of_a_stream_run_in_order_and_events_have_the_engines_time(tmp_path: Path) -> None:
    with Client(tmp_path) as client:
        stream = client("stream")
        client("hold", stream)
        client("launch", 200_000, 1, stream)  # meanwhile a busy machine submits the others
        first = client("record", stream)
        client("launch", 3_000, 1, stream)
        second = client("record", stream)
        client("launch", 5_000, 2, stream)
        third = client("record", stream)
        assert not client("done", first)
        client("release")
        assert client("elapsed", first, second) == pytest.approx(3, abs=1e-4)
        assert client("elapsed", second, third) == pytest.approx(10, abs=1e-4)
        assert client("done", third)


def test_an_event_of_the_context_comes_after_all_of_its_streams(tmp_path: Path) -> None:
    with Client(tmp_path) as client:
        streams = [client("stream", 1), client("stream", 1)]
        client("hold", streams[1])
        for stream in streams:
            client("launch", 2_000, 1, stream)
        last = client("record", streams[1])
        whole = client("record_context")
        client("release")
        assert client("elapsed", last, whole) == 0


def test_an_idle_stream_is_done_while_another_is_busy(tmp_path: Path) -> None:
    with Client(tmp_path) as client:
        working, idle = client("stream", 1), client("stream", 1)
        client("hold", working)
        client("launch", 1_000, 1, working)
        assert client("done", client("record", idle))
        assert not client("done", client("record", working))


def test_the_legacy_default_stream_waits_for_blocking_streams_only(tmp_path: Path) -> None:
    with Client(tmp_path) as client:
        blocking, free = client("stream", 0), client("stream", 1)
        client("hold", free)
        client("launch", 1_000, 1, free)
        assert client("done", client("record", 0))
        client("hold", blocking)
        client("launch", 1_000, 1, blocking)
        assert not client("done", client("record", 0))


def test_a_stream_waits_for_the_event_of_another(tmp_path: Path) -> None:
    with Client(tmp_path) as client:
        working, waiting = client("stream", 1), client("stream", 1)
        client("hold", working)
        event = client("record", working)
        client("wait_event", waiting, event)
        assert not client("done", client("record", waiting))


def test_the_times_of_events_outlive_the_queues_places(tmp_path: Path) -> None:
    with Client(tmp_path) as client:
        client("hold")
        client("launch", 1_000)
        first = client("record")
        client("launch", 2_000)
        second = client("record")
        client("release")
        client("launch", 1, 3_000)
        client("synchronize")
        assert client("elapsed", first, second) == pytest.approx(2, abs=1e-4)


@pytest.mark.slow
def test_the_launch_after_1024_queued_ones_waits_for_room(tmp_path: Path) -> None:
    with Client(tmp_path) as client:
        client("launch", 1_000_000)
        head = client("record")
        client("launch", 1, 1024)
        assert client("done", head)


def test_two_processes_with_work_have_the_gpu_half_and_half(tmp_path: Path) -> None:
    with Client(tmp_path) as short, Client(tmp_path) as long:
        asked_ns = 0
        while True:
            short("launch", 900, 1000)
            long("launch", 7_000, 120)
            asked_ns += 900_000_000
            before = busy(tmp_path)
            enough = before[long.pid] + 100_000_000
            eventually(partial(have_worked, tmp_path, [long.pid], enough), "a window is over")
            after = busy(tmp_path)
            if after[short.pid] < asked_ns:  # else it ran out of work: this process came too late
                break
        shares = [after[client.pid] - before[client.pid] for client in (short, long)]
        assert abs(shares[0] - shares[1]) <= 2 * SLICE_NS


def test_a_process_without_work_leaves_the_whole_gpu_to_the_other(tmp_path: Path) -> None:
    with Client(tmp_path) as idle, Client(tmp_path) as working:
        idle("launch", 1)
        working("launch", 10_000, 30)
        working("synchronize")
        assert busy(tmp_path) == {idle.pid: 1_000, working.pid: 300_000_000}


def test_memory_runs_out_over_all_processes_to_the_byte(tmp_path: Path) -> None:
    with Client(tmp_path) as first, Client(tmp_path) as second:
        assert first("allocate", 10 * GIB)[0] == 0
        result, pointer = second("allocate", 6 * GIB)
        assert result == 0
        assert first("memory") == second("memory") == [0, 16 * GIB]
        assert second("allocate", 1)[0] == OUT_OF_MEMORY
        assert first("allocate", GIB)[0] == OUT_OF_MEMORY
        assert second("free", pointer) == 0
        assert first("allocate", 6 * GIB)[0] == 0
        assert second("allocate", 512)[0] == OUT_OF_MEMORY


def test_what_is_written_to_the_gpu_is_read_back(tmp_path: Path) -> None:
    with Client(tmp_path) as client:
        pointer = client("allocate", GIB)[1]
        assert client("write_and_read", pointer + GIB - 5, "hello") == "hello"


def test_a_dead_process_gives_back_its_memory_and_its_turn(tmp_path: Path) -> None:
    with Client(tmp_path) as heir:
        with Client(tmp_path) as victim:
            assert victim("allocate", 16 * GIB)[0] == 0
            victim("launch", 60_000_000, 10)
            assert heir("allocate", 1)[0] == OUT_OF_MEMORY
        assert heir("allocate", 16 * GIB)[0] == 0
        heir("launch", 1_000)
        heir("synchronize")
        seen = {process.pid: process for process in truth(tmp_path).processes}
        assert not seen[victim.pid].alive
        assert seen[victim.pid].memory == 0
        spent = seen[victim.pid].busy_ns
        heir("launch", 1_000, 10)
        heir("synchronize")
        assert busy(tmp_path)[victim.pid] == spent


@pytest.mark.slow
def test_processes_killed_in_the_midst_of_everything_leave_the_log_consistent(
    tmp_path: Path,
) -> None:
    chance = random.Random(7)
    burn = [str(native.path("burn")), "--kernel-us", "1", "--inflight", "64", "--memory", str(GIB)]
    variables = {**os.environ, **fakegpu.environment("V100x1", tmp_path)}
    with Client(tmp_path) as witness:
        for _ in range(25):
            victims = [subprocess.Popen(burn, env=variables) for _ in range(2)]
            enough = chance.randrange(1, 10_000_000)
            eventually(
                partial(have_worked, tmp_path, [victim.pid for victim in victims], enough),
                "they have worked",
            )
            for victim in victims:
                victim.send_signal(signal.SIGKILL)
                victim.wait()
            witness("launch", 1)
            witness("synchronize")
        seen = truth(tmp_path)
    assert seen.busy_ns == sum(process.busy_ns for process in seen.processes)
    assert len({process.id for process in seen.processes}) == 51
    assert seen.used_memory == 0


def test_a_child_of_a_fork_cannot_use_its_parents_gpu(tmp_path: Path) -> None:
    with Client(tmp_path) as client:
        assert client("result_in_fork") == NOT_INITIALIZED
        client("launch", 1_000)
        client("synchronize")
        assert busy(tmp_path)[client.pid] == 1_000_000


@pytest.mark.parametrize(
    ("visible", "count"),
    [("0,1", 2), ("1", 1), ("2,0", 2), ("1,7,0", 1), ("GPU-", 4)],
)
def test_the_environment_chooses_among_the_gpus(tmp_path: Path, visible: str, count: int) -> None:
    chosen = {} if visible == "GPU-" else {"CUDA_VISIBLE_DEVICES": visible}
    with Client(tmp_path, "V100x4", chosen) as client:
        assert client("devices") == count


def test_a_gpu_is_chosen_by_its_uuid(tmp_path: Path) -> None:
    chosen = fakegpu.gpus("V100x4")[2]
    with Client(tmp_path, "V100x4", {"CUDA_VISIBLE_DEVICES": chosen.uuid}) as client:
        client("launch", 1_000)
        client("synchronize")
    seen = fakegpu.stat(tmp_path).gpus
    assert [gpu.busy_ns for gpu in seen] == [0, 0, 1_000_000, 0]


def test_a_state_in_use_is_not_taken_for_another_profile(tmp_path: Path) -> None:
    variables = fakegpu.environment("V100x2", tmp_path)
    burn = [str(native.path("burn")), "--steps", "1"]
    with Client(tmp_path) as client:
        client("launch", 1)
        done = subprocess.run(
            burn, env={**os.environ, **variables}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        assert "another profile" in done.stderr
    done = subprocess.run(
        burn, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0

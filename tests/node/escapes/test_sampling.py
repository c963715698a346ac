"""What one sample makes of two readings."""

from kubeshare.node.escapes.sampling import _maximum


def test_of_two_readings_the_larger_one_of_each_process_and_gpu_counts() -> None:
    before = {"a": {1: {"GPU-0": 5, "GPU-1": 3}, 2: {"GPU-0": 1}}, "b": {}}
    after = {"a": {1: {"GPU-0": 4, "GPU-2": 7}, 3: {"GPU-0": 2}}, "b": {4: {"GPU-0": 9}}}
    assert _maximum(before, after) == {
        "a": {1: {"GPU-0": 5, "GPU-1": 3, "GPU-2": 7}, 2: {"GPU-0": 1}, 3: {"GPU-0": 2}},
        "b": {4: {"GPU-0": 9}},
    }

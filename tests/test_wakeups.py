"""Late wake-ups are counted once, and a disturbed window is measured again."""

import sys
import time

import pytest

import wakeups
from wakeups import MAX_WINDOWS, UNDISTURBED, Wakeups, covered, least_disturbed


def test_time_that_two_cpus_lost_counts_once() -> None:
    assert covered([]) == 0
    assert covered([(0, 2), (5, 6), (1, 3)]) == 4
    assert covered([(0, 9), (1, 2), (3, 4)]) == 9


def test_a_cpu_that_is_taken_is_lost_time() -> None:
    """This thread keeps the interpreter's lock, so the watching threads run late."""
    interval = sys.getswitchinterval()
    with Wakeups() as seen:
        sys.setswitchinterval(0.2)
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            pass
        sys.setswitchinterval(interval)
    assert seen.lost_seconds > 0.15
    assert 0 < seen.lost <= 1


@pytest.mark.parametrize(
    ("lost", "taken", "windows"),
    [
        ([0.0], 0, 1),
        ([UNDISTURBED], 0, 1),
        ([0.3, 0.0], 1, 2),
        ([0.3, 0.1, 0.2, 0.4, 0.5], 1, MAX_WINDOWS),
    ],
)
def test_a_disturbed_window_is_measured_again_and_the_best_one_counts(
    monkeypatch: pytest.MonkeyPatch, lost: list[float], taken: int, windows: int
) -> None:
    measured: list[int] = []
    monkeypatch.setattr(wakeups.Wakeups, "lost", property(lambda _: lost[len(measured) - 1]))

    def measure() -> int:
        measured.append(len(measured))
        return measured[-1]

    assert least_disturbed(measure) == (taken, lost[taken])
    assert len(measured) == windows

"""The engine's arithmetic: promises that a C program checks over random histories."""

import subprocess

import pytest

import samples
from kubeshare import native

pytestmark = pytest.mark.native


@pytest.mark.slow
@pytest.mark.sampled
def test_time_does_not_depend_on_who_looks_and_survives_whoever_is_killed() -> None:
    done = subprocess.run(
        [native.path("tests/timeline_test"), "1", str(samples.count(whole=40, sample=12))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "ok\n"
    assert done.returncode == 0

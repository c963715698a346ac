"""The engine's arithmetic: promises that a C program checks over random histories."""

import subprocess

import pytest

from kubeshare import native

pytestmark = pytest.mark.native


@pytest.mark.slow
def test_time_does_not_depend_on_who_looks_and_survives_whoever_is_killed() -> None:
    done = subprocess.run(
        [native.path("tests/timeline_test"), "1", "40"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "ok\n"
    assert done.returncode == 0

"""A bench that waits for one of our programs notices when that has ended."""

from pathlib import Path

import pytest
from bench.cluster.control_plane import check_running

from deadlines import eventually
from kubeshare.lab import processes


def test_a_program_that_has_ended_is_named_with_its_last_lines(tmp_path: Path) -> None:
    def log(name: str) -> Path:
        return tmp_path / f"{name}.log"

    ends = processes.start(["sh", "-c", "echo no such policy; exit 3"], log("ends"))
    stays = processes.start(["sleep", "600"], log("stays"))
    try:
        eventually(lambda: not processes.alive(ends), "the program to end")
        check_running({"stays": stays}, log)
        with pytest.raises(RuntimeError, match=r"ends has ended.*:\nno such policy"):
            check_running({"stays": stays, "ends": ends}, log)
    finally:
        processes.stop([stays], gently=False)

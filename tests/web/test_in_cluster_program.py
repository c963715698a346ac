"""The program `python -m kubeshare.web` as a process."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import pytest

from deadlines import DEADLINE_S, eventually
from kubeshare.lab.control_plane.ports import reserve_ports

pytestmark = pytest.mark.slow

HEADERS = {"host": "gpus.example"}
TOKEN = "a-token-that-nobody-may-read"


@contextmanager
def started(page: int, health: int) -> Iterator[subprocess.Popen[str]]:
    """The program before an API server that is not there."""
    command = [sys.executable, "-m", "kubeshare.web", "--host", "gpus.example", "--insecure-http"]
    command += ["--port", str(page), "--health-port", str(health)]
    command += ["--server", "https://127.0.0.1:1"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def is_ready(health: int) -> bool:
    try:
        return httpx2.get(f"http://127.0.0.1:{health}/readyz", trust_env=False).status_code == 200
    except httpx2.HTTPError:
        return False


def test_it_is_ready_says_what_is_away_and_ends_at_sigterm() -> None:
    page, health = reserve_ports(2)
    with started(page, health) as process:
        eventually(lambda: is_ready(health), "the page is ready")
        with httpx2.Client(
            base_url=f"http://127.0.0.1:{page}",
            headers=HEADERS,
            trust_env=False,
            timeout=DEADLINE_S,
        ) as http:
            assert "KubeShare" in http.get("/").text
            assert http.get("/api/tables").status_code == 401
            away = http.get("/api/tables", headers={"authorization": f"Bearer {TOKEN}"})
            assert away.status_code == 502
            assert "cannot connect to the API server" in away.json()["error"]
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0, said
        assert TOKEN not in said
        assert "Traceback" not in said


@pytest.mark.parametrize("taken", ["page", "health"])
def test_a_port_that_is_taken_is_said_in_one_line(taken: str) -> None:
    first, second, third = reserve_ports(3)
    with started(first, second) as running:
        eventually(lambda: is_ready(second), "the first one is ready")
        ports = (first, third) if taken == "page" else (third, second)
        with started(*ports) as process:
            said, _ = process.communicate(timeout=DEADLINE_S)
            assert process.returncode == 3, said
            assert len(said.splitlines()) == 1
            assert "cannot go on" in said
        running.send_signal(signal.SIGTERM)
        assert running.wait(DEADLINE_S) == 0

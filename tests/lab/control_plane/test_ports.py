"""A reserved port is taken neither by another run nor by a connection."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kubeshare.lab.control_plane import ports
from kubeshare.lab.control_plane.ports import reserve_ports

OTHER_RUN = """
import sys
from pathlib import Path
from kubeshare.lab.control_plane import ports
ports._BELOW_EPHEMERAL = 3
print(ports.reserve_ports(3, Path(sys.argv[1])))
"""


def test_two_runs_reserve_different_ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_BELOW_EPHEMERAL", 3)
    mine = reserve_ports(2, tmp_path)
    other = subprocess.run(
        [sys.executable, "-c", OTHER_RUN, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    theirs = {int(each) for each in other.stdout.strip("[]\n").split(",") if each}
    first = int(ports._EPHEMERAL.read_text().split()[0])
    assert theirs.isdisjoint(mine)
    assert theirs | {*mine} <= {first - 1, first - 2, first - 3}
    for port in mine:
        socket.create_server(("127.0.0.1", port)).close()


def test_a_port_that_is_in_use_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "_is_free", lambda port: port % 2 == 0)
    assert all(port % 2 == 0 for port in reserve_ports(5, tmp_path))

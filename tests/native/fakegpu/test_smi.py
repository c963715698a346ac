"""The fake `nvidia-smi`: what people and programs read from it."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from fakes.gpu_client import Client
from kubeshare import fakegpu, native
from kubeshare.core.topology.nvidia_smi import read_matrix

pytestmark = pytest.mark.native


def smi(
    state: Path, *arguments: str, profile: str | Path = "V100x2", code: int = 0, **extra: str
) -> str:
    done = subprocess.run(
        [native.path("fakegpu/nvidia-smi"), *arguments],
        env={**os.environ, **fakegpu.environment(profile, state), **extra},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def test_each_gpu_has_its_line(tmp_path: Path) -> None:
    gpus = fakegpu.gpus("V100x2")
    expected = [f"GPU {gpu.index}: {gpu.model} (UUID: {gpu.uuid})" for gpu in gpus]
    assert smi(tmp_path, "-L").splitlines() == expected
    assert smi(tmp_path, "-L", "-i", gpus[1].uuid).splitlines() == expected[1:]


def test_the_table_has_every_gpu_and_every_process(tmp_path: Path) -> None:
    with Client(tmp_path, "V100x2") as client:
        client("allocate", 3 << 30)
        table = smi(tmp_path)
        assert re.search(r"\| +0 +Tesla V100-SXM2-16GB .* 3072MiB / 16384MiB", table)
        assert re.search(r"\| +1 +Tesla V100-SXM2-16GB .* 0MiB / 16384MiB", table)
        assert re.search(rf"\| +0 .* {client.pid} +C .* 3072MiB", table)
    assert "No running processes found" in smi(tmp_path)
    assert {len(line) for line in smi(tmp_path).splitlines()[1:] if line} == {83}


def test_the_matrix_is_one_that_our_reader_and_others_understand(tmp_path: Path) -> None:
    profile = tmp_path / "four.profile"
    profile.write_text(
        "model = V100\ncount = 4\nlink = SYS\nlink.0.1 = NV2\nlink.2.3 = PXB\nlink.0.2 = NODE\n"
        "cpus.0 = 0-3,8-11\ncpus.1 = 4\nnuma.2 = 1\n"
    )
    text = smi(tmp_path / "state", "topo", "-m", profile=profile)
    links = read_matrix(text, "text")
    rows = [line.split("\t") for line in text.splitlines()]
    assert rows[0][1:5] == ["\x1b[4mGPU0", "GPU1", "GPU2", "GPU3"]
    assert rows[1][:6] == ["GPU0", " X ", "NV2", "NODE", "SYS", "0-3,8-11"]
    assert rows[1][6:] == ["0", "", "N/A"]
    assert rows[3] == ["GPU2", "NODE", "SYS", " X ", "PXB", "4", "1", "", "N/A"]
    assert len(links) == 4


def test_a_query_gives_what_it_was_asked_for(tmp_path: Path) -> None:
    fields = "--query-gpu=index,name,memory.total,compute_cap,power.draw"
    lines = smi(tmp_path, fields, "--format=csv").splitlines()
    assert lines == [
        "index, name, memory.total [MiB], compute_cap, power.draw [W]",
        "0, Tesla V100-SXM2-16GB, 16384 MiB, 7.0, [N/A]",
        "1, Tesla V100-SXM2-16GB, 16384 MiB, 7.0, [N/A]",
    ]
    bare = smi(tmp_path, "-i", "1", fields, "--format=csv,noheader,nounits")
    assert bare == "1, Tesla V100-SXM2-16GB, 16384, 7.0, [N/A]\n"


def test_a_query_for_processes_names_them(tmp_path: Path) -> None:
    fields = "--query-compute-apps=pid,used_memory,gpu_uuid"
    with Client(tmp_path, "V100x2") as client:
        client("allocate", 1 << 30)
        line = f"{client.pid}, 1024, {fakegpu.gpus('V100x2')[0].uuid}\n"
        assert smi(tmp_path, fields, "--format=csv,noheader,nounits") == line


@pytest.mark.slow
def test_how_busy_a_gpu_is_is_seen_by_who_looks_once(tmp_path: Path) -> None:
    with Client(tmp_path, "V100x2") as client:
        client("launch", 60_000_000)
        lines: list[str] = []
        while not lines or (int(lines[-1]) < 50 and len(lines) < 200):
            query = ("-i", "0", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")
            lines.append(smi(tmp_path, *query))
    assert int(lines[-1]) >= 50


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--what"], 2, "no option of this nvidia-smi"),
        (["--query-gpu=index"], 2, "a query needs --format=csv"),
        (["--query-gpu=colour", "--format=csv"], 2, '"colour" is not a valid field'),
        (["-i", "7"], 6, "there is no GPU 7"),
    ],
)
def test_what_cannot_be_answered_is_said(
    tmp_path: Path, arguments: list[str], code: int, words: str
) -> None:
    assert words in smi(tmp_path, *arguments, code=code)


def test_without_a_driver_it_says_so(tmp_path: Path) -> None:
    assert "libnvidia-ml.so.1" in smi(tmp_path, code=12, LD_LIBRARY_PATH="")


def test_mig_devices_are_listed_below_their_gpu(tmp_path: Path) -> None:
    profile = tmp_path / "cut.profile"
    profile.write_text("model = V100\ncount = 2\nmig.0 = 2\ncompute_mode = exclusive_process\n")
    lines = smi(tmp_path / "state", "-L", profile=profile).splitlines()
    assert [line[:5] for line in lines] == ["GPU 0", "  MIG", "  MIG", "GPU 1"]
    uuids = re.findall(r"MIG-[0-9a-f-]{36}", "\n".join(lines))
    assert len(set(uuids)) == 2
    query = ("--query-gpu=mig.mode.current,compute_mode", "--format=csv,noheader")
    modes = smi(tmp_path / "state", *query, profile=profile).splitlines()
    assert modes == ["Enabled, Exclusive_Process", "[N/A], Exclusive_Process"]

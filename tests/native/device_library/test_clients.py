"""Whole programs under the device library, as people run them."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.session import (
    MIB,
    Connection,
    FakeSession,
    Machine,
    Probe,
    eventually,
    waits_for_its_turn,
)
from kubeshare import native
from kubeshare.tokens.wire.protocol import MessageType

pytestmark = pytest.mark.native

EXAMPLES = Path(__file__).parents[3] / "native" / "examples"
STEP_NS = 1_000_000


def test_burn_works_in_its_turns(machine: Machine, session: FakeSession) -> None:
    command = [str(native.path("burn")), "--steps", "300"]
    with machine.run(command, session.environment) as burn:
        connection = session.accept()
        for _ in range(3):
            session.open()
            session.drain(connection)
        session.open()
        assert burn.answer()["summary"]["kernels"] == 300
        assert machine.gpu()["busy_ns"] == 300 * STEP_NS


def test_nvidias_python_client_is_gated_and_limited(machine: Machine, session: FakeSession) -> None:
    memory = ["--memory", str(900 * MIB)]
    command = [sys.executable, str(EXAMPLES / "burn.py"), "--seconds", "0.3", *memory]
    with machine.run(command, session.environment) as burn:
        session.accept()
        assert burn.is_silent()
        session.open()
        kernels = burn.answer()["summary"]["kernels"]
        filled_ns = 900 * MIB * 1000 // 750_000
        assert machine.gpu()["busy_ns"] == kernels * STEP_NS + filled_ns > filled_ns
    too_much = [sys.executable, str(EXAMPLES / "burn.py"), "--memory", str(1025 * MIB)]
    with machine.run(too_much, session.environment) as burn:
        assert burn.answer()["error"] == "CUDA_ERROR_OUT_OF_MEMORY"
        assert burn.finish() == 1


def test_nvidias_nvml_client_sees_the_limit(machine: Machine, session: FakeSession) -> None:
    program = (
        "import json, pynvml as nvml\n"
        "nvml.nvmlInit()\n"
        "device = nvml.nvmlDeviceGetHandleByIndex(0)\n"
        "old = nvml.nvmlDeviceGetMemoryInfo(device)\n"
        "new = nvml.nvmlDeviceGetMemoryInfo(device, version=nvml.nvmlMemory_v2)\n"
        "seen = [old.total, old.free, old.used, new.total, new.free, new.used]\n"
        "print(json.dumps({'seen': seen}))\n"
    )
    with machine.run([sys.executable, "-c", program], session.environment) as asking:
        limit = 1024 * MIB
        assert asking.answer()["seen"] == [limit, limit, 0, limit, limit, 0]


CLIENTS = Path(__file__).parent / "clients"
TESTS = Path(__file__).parents[2]
# The packages that lie apart come after those of the environment.
APART = f"import site, runpy, sys; site.addsitedir({str(Path(sys.prefix) / 'clients')!r}); "


def command_of(client: str) -> list[str]:
    """What runs one of `clients/`."""
    program = CLIENTS / f"with_{client}.py"
    run = f"sys.path.insert(0, {str(TESTS)!r}); runpy.run_path({str(program)!r})"
    return [sys.executable, "-c", APART + run]


@pytest.fixture(params=["bindings", "core", "numba", "runtime"])
def client(
    request: pytest.FixtureRequest, machine: Machine, session: FakeSession
) -> Iterator[tuple[Probe, Connection]]:
    """A Python client of PyPI, unchanged, and its connection; the gate is open once."""
    with machine.run(command_of(request.param), session.environment) as started:
        yield started, session.accept()


@pytest.mark.slow
def test_a_python_client_lives_within_its_share(
    machine: Machine, session: FakeSession, client: tuple[Probe, Connection]
) -> None:
    program, connection = client

    def do(*words: object) -> object:
        program.send(*words)
        return program.answer()["error"]

    program.send("total")
    assert program.answer()["total"] == 1024 * MIB
    assert "CUDA_ERROR_OUT_OF_MEMORY" in str(do("alloc", 1025 * MIB))
    assert do("alloc", 500 * MIB) is None
    assert session.charged() >= 500 * MIB
    assert "CUDA_ERROR_OUT_OF_MEMORY" in str(do("alloc", 600 * MIB))
    for command in [("launch", 1000), ("fill", MIB)]:
        waits_for_its_turn(machine, session, connection, program, *command)
    assert program.finish() == 0
    assert eventually(lambda: session.charged() == 0)


@pytest.mark.slow
@pytest.mark.parametrize("client", ["core"], indirect=True)
def test_cuda_cores_graphs_wait_and_its_memory_resources_are_limited(
    session: FakeSession, client: tuple[Probe, Connection]
) -> None:
    program, connection = client
    for resource in ("pool", "physical", "managed"):
        program.send(resource, 1100 * MIB)
        assert "CUDA_ERROR_OUT_OF_MEMORY" in program.answer()["error"], resource
        before = session.charged()
        program.send(resource, 64 * MIB)
        assert program.answer()["error"] is None
        assert session.charged() >= before + 64 * MIB
    charged = session.charged()
    program.send("pinned", 64 * MIB)
    assert program.answer()["error"] is None
    assert session.charged() == charged
    program.send("graph", 1000)
    connection.expect(MessageType.WANT)
    assert program.is_silent()
    session.open()
    assert program.answer()["error"] is None
    session.drain(connection)


@pytest.mark.slow
@pytest.mark.parametrize("client", ["runtime"], indirect=True)
def test_kernels_of_code_that_nvcc_compiled_wait_and_a_reset_gives_all_back(
    machine: Machine, session: FakeSession, client: tuple[Probe, Connection]
) -> None:
    program, connection = client
    program.do("register", 0, expect=None)
    waits_for_its_turn(machine, session, connection, program, "launch_registered", 1000)
    for _ in range(2):
        program.do("alloc", 64 * MIB, expect=None)
        assert session.charged() == 64 * MIB
        program.do("reset", 0, expect=None)
        assert session.charged() == 0


@pytest.mark.slow
def test_the_runtime_gets_no_context_on_a_gpu_of_another_container(folder: Path) -> None:
    state = folder / "gpus"
    state.mkdir()
    machine = Machine(state, profile="V100x2")
    with (
        FakeSession(folder, [machine.grant(0)]) as session,
        machine.run(command_of("runtime"), session.environment) as program,
    ):
        session.accept()
        program.send("use", 1)
        assert program.answer() == {"error": "cudaErrorNotPermitted"}
        program.send("use", 0)
        assert program.answer() == {"error": None}
        session.open()
        program.send("launch", 1000)
        assert program.answer() == {"error": None}
        assert [machine.gpu(gpu)["busy_ns"] for gpu in (0, 1)] == [STEP_NS, 0]


@pytest.fixture
def neighbours(machine: Machine, session: FakeSession) -> Iterator[tuple[int, int]]:
    """The processes of the claim and of a stranger, which have 256 MiB each."""
    with machine.start(session.environment) as mine, machine.start({}, preload="") as other:
        for probe in (mine, other):
            probe.do("init")
            probe.do("retain", 0)
            probe.do("alloc", 256 * MIB)
        yield mine.process.pid, other.process.pid


def printed(machine: Machine, session: FakeSession, *command: str | Path) -> str:
    """What a program prints that runs in the claim."""
    preloaded = {"LD_PRELOAD": str(machine.library)} | dict(session.environment)
    environment = machine.environment() | preloaded
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_nvidia_smi_shows_the_claim_and_its_own_processes(
    machine: Machine, session: FakeSession, neighbours: tuple[int, int]
) -> None:
    smi, form = native.path("fakegpu/nvidia-smi"), "--format=csv,noheader,nounits"
    memory = printed(machine, session, smi, "--query-gpu=memory.total,memory.used", form)
    assert memory == "1024, 256\n"
    processes = printed(machine, session, smi, "--query-compute-apps=pid", form)
    assert processes == f"{neighbours[0]}\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "used"),
    [
        ("runpy.run_module('nvitop', None, '__main__')", "256.0MiB"),
        ("runpy.run_path(sys.prefix + '/clients/bin/py3smi', None, '__main__')", "256MiB"),
    ],
    ids=["nvitop", "py3smi"],
)
def test_tools_that_show_gpus_show_the_limit_and_the_claims_processes(
    machine: Machine, session: FakeSession, neighbours: tuple[int, int], tool: str, used: str
) -> None:
    program = f"{APART}sys.argv[1:] = []; {tool}"
    shown = printed(machine, session, sys.executable, "-c", program)
    assert f"{used} / 1024MiB" in " ".join(shown.split())
    lines = [line.split() for line in shown.splitlines()]
    mine, other = map(str, neighbours)
    (of_mine,) = [line for line in lines if mine in line]
    assert used in of_mine
    assert not [line for line in lines if other in line]

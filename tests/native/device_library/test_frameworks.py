"""Frameworks under the device library, as their wheels come from PyPI (`make test-frameworks`)."""

import sys
from pathlib import Path

import pytest

from fakes.session import MIB, FakeSession, Machine, eventually, waits_for_its_turn

pytestmark = [pytest.mark.native, pytest.mark.frameworks]

PYTHON = Path(sys.prefix) / "frameworks/bin/python"
CLIENTS = Path(__file__).parent / "clients"
TESTS = Path(__file__).parents[2]
IMPORT_S = 300  # of gigabytes of libraries, from a cold disk
OUT_OF_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"


def command_of(client: str) -> list[str]:
    """What runs one of `clients/` with the frameworks' own Python."""
    if not PYTHON.exists():
        pytest.fail(f"{PYTHON} does not exist: `make test-frameworks` installs it")
    run = f"import runpy, sys; sys.path.insert(0, {str(TESTS)!r}); "
    program = CLIENTS / f"with_{client}.py"
    return [str(PYTHON), "-c", run + f"runpy.run_path({str(program)!r})"]


@pytest.mark.parametrize("framework", ["compiled", "cupy", "jax", "torch"])
def test_a_framework_lives_within_its_share_and_recovers(folder: Path, framework: str) -> None:
    # JAX writes its arrays as it makes them, and its pool keeps what it has.
    is_jax = framework == "jax"
    state = folder / "gpus"
    state.mkdir()
    machine = Machine(state, profile="H100x1")
    with (
        FakeSession(folder, [machine.grant()]) as session,
        machine.run(command_of(framework), session.environment) as program,
    ):
        program.send("drop")
        assert program.answer(IMPORT_S) == {"error": None}
        connection = session.accept()
        if is_jax:
            session.open()

        def do(*words: object) -> str:
            program.send(*words)
            return str(program.answer()["error"])

        program.send("total")
        assert program.answer()["total"] == 1024 * MIB
        assert OUT_OF_MEMORY in do("alloc", 1025 * MIB)
        assert do("alloc", 500 * MIB) == "None"
        assert session.charged() >= 500 * MIB
        assert OUT_OF_MEMORY in do("alloc", 600 * MIB)
        assert do("drop") == "None"
        assert is_jax or session.charged() < 100 * MIB
        assert do("alloc", (400 if is_jax else 900) * MIB) == "None"
        assert do("drop") == "None"
        if is_jax:
            session.drain(connection)
        for command in [("launch", 10), ("fill", MIB)]:
            waits_for_its_turn(machine, session, connection, program, *command)
        assert program.finish() == 0
        assert eventually(lambda: session.charged() == 0)

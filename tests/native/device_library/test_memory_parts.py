"""Parts of the account, by programs of their own: they compare, and say what differs."""

import subprocess

import pytest

from deadlines import DEADLINE_S
from fakes.session import Machine
from kubeshare import native

pytestmark = pytest.mark.native


def run(machine: Machine, name: str) -> str:
    done = subprocess.run(
        [native.path(f"tests/{name}")],
        env=machine.environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_table_of_allocations_agrees_with_a_plain_list(machine: Machine) -> None:
    assert run(machine, "allocations-test") == "1000000 steps\n"


def test_the_formula_for_arrays_agrees_with_the_driver_for_every_format(machine: Machine) -> None:
    assert run(machine, "array-size-test") == "3640 sizes compared\n"

"""The front door: what it costs to start, and how it speaks when something is wrong."""

import json
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType

import click
import pytest

from deadlines import DEADLINE_S
from kubeshare.cli import main as front_door
from kubeshare.native import NativeMissingError

Install = Callable[[click.Command], None]


def run_python(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=DEADLINE_S
    ).stdout


def command_that(raises: BaseException) -> click.Command:
    @click.command()
    def broken() -> None:
        raise raises

    return broken


@pytest.fixture
def with_command(monkeypatch: pytest.MonkeyPatch) -> Install:
    def install(command: click.Command) -> None:
        module = ModuleType("kubeshare_test_command")
        module.command = command  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setattr(
            front_door, "COMMANDS", {"it": (f"{module.__name__}:command", "A command of a test.")}
        )

    return install


def test_help_imports_nothing_heavy() -> None:
    loaded = json.loads(
        run_python(
            "import sys, json, io, contextlib\n"
            "from kubeshare.cli.main import main\n"
            "with contextlib.redirect_stdout(io.StringIO()): main(['--help'])\n"
            "print(json.dumps(sorted(sys.modules)))"
        )
    )

    heavy = {"asyncio", "rich", "msgspec", "lightkube", "structlog", "yaml", "pynvml", "grpc"}
    assert heavy.isdisjoint(loaded)
    assert not any(name.startswith("kubeshare.core") for name in loaded)


def test_help_lists_every_command_with_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert front_door.main(["--help"]) == 0

    text = capsys.readouterr().out
    for name, (_, line) in front_door.COMMANDS.items():
        assert name in text
        assert line.split(".")[0].split()[0] in text


@pytest.mark.parametrize("name", front_door.COMMANDS)
def test_each_commands_help_has_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert front_door.main([name, "--help"]) == 0

    assert f"kubeshare {name} " in capsys.readouterr().out.partition("Example")[2]


def test_an_unknown_command_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert front_door.main(["frobnicate"]) == 2

    assert "No such command 'frobnicate'" in capsys.readouterr().err


def test_a_commands_return_value_is_the_exit_code(with_command: Install) -> None:
    with_command(click.Command("it", callback=lambda: 1))

    assert front_door.main(["it"]) == 1


def test_an_error_of_ours_is_one_line_and_its_own_exit_code(
    with_command: Install,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with_command(command_that(NativeMissingError("burn is not built:\n  run `make native`")))

    assert front_door.main(["it"]) == 3
    assert capsys.readouterr().err == "kubeshare: burn is not built: run `make native`\n"


def test_an_unexpected_error_shows_no_traceback(
    with_command: Install,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with_command(command_that(KeyError("surprise")))

    assert front_door.main(["it"]) == 3
    text = capsys.readouterr().err
    assert text.startswith("kubeshare: internal error: KeyError")
    assert "Traceback" not in text


def test_ctrl_c_exits_with_130(with_command: Install) -> None:
    with_command(command_that(KeyboardInterrupt()))

    assert front_door.main(["it"]) == 130


def test_colours_stop_when_piped() -> None:
    assert "\x1b[" not in run_python("from kubeshare.cli.main import main; main(['--help'])")

"""Entry point: finds the command, runs it, prints errors as one line.

A command is a click command in a module of its own. It returns its exit code
(`None` means 0) and raises for everything that went wrong:

====  =======================================================
0     fine
1     the answer is no (a GPU is full, a check failed)
2     wrong use: an option, a value, a file that is not valid
3     something could not be reached, or is missing
130   interrupted from the keyboard
141   whoever was reading the output hung up
====  =======================================================

Every exception class of this project carries a message for people, and may
carry an `exit_code`. No traceback is shown unless `KUBESHARE_DEBUG` is set.
"""

import importlib
import os
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

import click

import kubeshare

COMMANDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {  # name -> (module:attribute, one line of help), in the order of the help text
        "run": (
            "kubeshare.cli.run.command:run",
            "Run a command on a share of one of this machine's GPUs.",
        ),
        "top": ("kubeshare.cli.top:top", "Watch who holds this machine's GPUs, and how much."),
        "plan": (
            "kubeshare.cli.plan.command:plan",
            "Say where pods of a scenario file would be placed.",
        ),
        "sim": (
            "kubeshare.cli.simulate.command:simulate",
            "Run jobs on a simulated cluster, and compare policies.",
        ),
        "trace": (
            "kubeshare.cli.trace.command:trace",
            "Record what a cluster runs, to simulate it again.",
        ),
        "reproduce": (
            "kubeshare.cli.reproduce.command:reproduce",
            "Run figures and tables of the papers again.",
        ),
        "get": (
            "kubeshare.cli.get.command:get",
            "List SharePods, vGPUs and nodes.",
        ),
        "explain": (
            "kubeshare.cli.explain:explain",
            "Say where a pod of a cluster went or would go, and why not elsewhere.",
        ),
        "inspect": (
            "kubeshare.cli.inspect.command:inspect",
            "Show the GPU memory of gpushare nodes, and which pods have it.",
        ),
        "topo": (
            "kubeshare.cli.topo:topo",
            "Show how the GPUs of a node are linked.",
        ),
        "web": ("kubeshare.cli.web:web", "Show a cluster on a page in the browser."),
        "usage": (
            "kubeshare.cli.usage.command:usage",
            "Report who used how much of the GPUs.",
        ),
        "migrate": (
            "kubeshare.cli.migrate.command:migrate",
            "Move a cluster of gpushare or gpu-manager, whose pods run on.",
        ),
        "lab": ("kubeshare.cli.lab:lab", "A real Kubernetes with fake GPUs on this machine."),
        "install": ("kubeshare.cli.install:install", "Install KubeShare on a cluster."),
        "doctor": (
            "kubeshare.cli.doctor:doctor",
            "Check what a cluster or a node needs, and say what mends it.",
        ),
        "must-gather": (
            "kubeshare.cli.must_gather:must_gather",
            "Collect what others need to find a fault in a cluster.",
        ),
        "completion": (
            "kubeshare.cli.shell_completion:completion",
            "Let a shell complete kubeshare's commands.",
        ),
        "extender": (
            "kubeshare.cli.extender:extender",
            "Configure a kube-scheduler that calls the extender of gpushare.",
        ),
        "uninstall": (
            "kubeshare.cli.uninstall:uninstall",
            "Take KubeShare off a cluster, and end nothing that runs.",
        ),
    }
)

EXIT_WRONG_USE = 2
EXIT_UNREACHABLE = 3
EXIT_INTERRUPTED = 130
EXIT_PIPE_CLOSED = 141


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        """The names, without importing anything."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the command's module; None for a name that is not one of ours."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module_name, _, attribute = entry[0].partition(":")
        return cast("click.Command", getattr(importlib.import_module(module_name), attribute))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the table of commands from their static lines."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: kubeshare run --fake V100x1 --request .3 --memory 1Gi -- python train.py",
)
@click.version_option(kubeshare.__version__, prog_name="kubeshare")
def cli() -> None:
    """Share one GPU between many pods or processes, each with its own part."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command line.

    Args:
        arguments: without the program's name; by default those of this process.

    Returns:
        The exit code, as the module's table says.
    """
    return _run(cli, arguments, _program_name())


def inspect_gpushare() -> int:
    """Run as the plugin ``kubectl inspect gpushare``; returns the exit code."""
    return _run(_inspect(), None, "kubectl inspect gpushare")


def complete() -> int:
    """Complete the words after ``kubectl kubeshare``, as kubectl asks; returns the exit code."""
    return _complete(cli)


def complete_inspect_gpushare() -> int:
    """Complete the words after ``kubectl inspect gpushare``; returns the exit code."""
    return _complete(_inspect())


def _inspect() -> click.Command:
    found = cli.get_command(click.Context(cli), "inspect")
    assert found is not None
    return found


def _complete(command: click.Command) -> int:
    from kubeshare.cli import completion  # noqa: PLC0415 - no other command pays for it

    click.echo(completion.for_kubectl(command, sys.argv[1:]), nl=False)
    return 0


def _run(command: click.Command, arguments: list[str] | None, name: str) -> int:
    try:
        result = command.main(args=arguments, prog_name=name, standalone_mode=False)
    except click.Abort:
        return EXIT_INTERRUPTED
    except SystemExit as ended:  # click exits with 1 when a pipe is closed; here 1 is an answer
        return EXIT_PIPE_CLOSED if ended.code else 0  # 0: it has completed words for a shell
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except Exception as error:
        if os.environ.get("KUBESHARE_DEBUG"):
            raise
        click.echo(f"kubeshare: {_line_for_people(error)}", err=True)
        return _exit_code(error)
    return result if isinstance(result, int) else 0


def _program_name() -> str:
    """`kubectl kubeshare` when kubectl runs us as its plugin."""
    called = os.path.basename(sys.argv[0])  # noqa: PTH119  pathlib costs time at this start
    return "kubectl kubeshare" if called == "kubectl-kubeshare" else "kubeshare"


def _is_ours(error: Exception) -> bool:
    return type(error).__module__.partition(".")[0] == "kubeshare"


def _line_for_people(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("kubeshare."):
        return f"{error.name} is not installed: run `pip install 'kubeshare[lab]'`"
    if _is_ours(error) or isinstance(error, OSError):
        return text
    return f"internal error: {type(error).__name__}: {text} (KUBESHARE_DEBUG=1 shows where)"


def _exit_code(error: Exception) -> int:
    stated = getattr(error, "exit_code", None)
    if isinstance(stated, int):
        return stated
    is_wrong_value = _is_ours(error) and isinstance(error, ValueError)
    return EXIT_WRONG_USE if is_wrong_value else EXIT_UNREACHABLE


if __name__ == "__main__":
    sys.exit(main())

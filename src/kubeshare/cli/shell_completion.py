"""``kubeshare completion``: prints what lets a shell complete the command."""

import click
from click.shell_completion import get_completion_class

_PROGRAM = "kubeshare"
_VARIABLE = "_KUBESHARE_COMPLETE"


@click.command(
    epilog='\b\nExamples:\n  eval "$(kubeshare completion bash)"     # in ~/.bashrc\n'
    '  eval "$(kubeshare completion zsh)"      # in ~/.zshrc\n'
    "  kubeshare completion fish > ~/.config/fish/completions/kubeshare.fish"
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script with which SHELL completes commands, options and names."""
    from kubeshare.cli.main import cli  # noqa: PLC0415 - it imports this module

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(cli, {}, _PROGRAM, _VARIABLE).source())

"""Completes the arguments of the kubectl plugins, as kubectl asks for it.

For ``kubectl inspect gpushare WORDS`` kubectl runs ``kubectl_complete-inspect-gpushare WORDS``; the
last word is the one to complete. Each line of the answer is a completion, then a tab and a
description; the last line is a directive of the library Cobra after a colon. Source:
``plugin_completion.go`` of k8s.io/kubectl.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import click
from click.shell_completion import ShellComplete

_FILES: Final = 0
_NO_FILES: Final = 4
_FOLDERS: Final = 16
_DIRECTIVES: Final = {"file": _FILES, "dir": _FOLDERS}
"""What click calls a completion that the shell has to find → the directive for it."""


def for_kubectl(command: click.Command, words: Sequence[str]) -> str:
    """The answer to kubectl.

    Args:
        command: the plugin.
        words: what was typed after its name; the last word, which may be empty, is to be completed.
    """
    return "".join(f"{line}\n" for line in _lines(command, words))


def _lines(command: click.Command, words: Sequence[str]) -> Iterator[str]:
    *before, incomplete = words or ("",)
    option, equals, _ = incomplete.partition("=")
    prefix = option + equals if equals and option.startswith("-") else ""
    directive = _NO_FILES
    for item in ShellComplete(command, {}, "kubectl", "").get_completions(before, incomplete):
        if item.type in _DIRECTIVES:
            directive = _DIRECTIVES[item.type]
            continue
        yield f"{prefix}{item.value}\t{item.help}" if item.help else f"{prefix}{item.value}"
    yield f":{directive}"

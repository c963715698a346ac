"""What is wrong with the GPUs of a node, for `kubeshare top`.

The node agent knows it from the vGPUs, and the token daemon does not speak to Kubernetes. The file
decides nothing: a GPU whose shares end is one whose grants are removed.
"""

import contextlib
from collections.abc import Mapping
from typing import Final

import msgspec

from kubeshare.tokens.files.run_folder import GrantError, Paths, read_document, write_whole

_MESSAGE_MAX: Final = 1024
"""Characters of a message, so that those of all GPUs of a node fit into the file."""


def write_degraded(paths: Paths, messages: Mapping[str, str]) -> None:
    """Write what is wrong with GPUs, by UUID; nothing removes the file.

    Raises:
        OSError: the run folder cannot be written.
    """
    if not messages:
        with contextlib.suppress(FileNotFoundError):
            paths.degraded.unlink()
        return
    shown = {uuid: message[:_MESSAGE_MAX] for uuid, message in messages.items()}
    paths.make()
    write_whole(paths.degraded, msgspec.json.encode(shown))


def read_degraded(paths: Paths) -> dict[str, str]:
    """What is wrong with GPUs, by UUID; empty where nobody says anything."""
    try:
        return read_document(paths.degraded, dict[str, str])
    except (GrantError, OSError):
        return {}

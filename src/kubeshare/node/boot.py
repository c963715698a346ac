"""Whether the machine has been started anew since grants were written.

They lie on a tmpfs and go with it. Where they do not, because an administrator has put the
folder elsewhere, those of a former boot are void: what they were written for has ended, and
the kubelet asks for each pod that it starts again.
"""

from pathlib import Path

from kubeshare.tokens.files.grants import process_start_time

FILE = "boot"
"""Beside the grants: the boot in which they were written."""


def current(kernel: Path = Path("/proc/sys/kernel")) -> str:
    """A name of this boot; of a machine that is only namespaces, those of its first process."""
    return f"{(kernel / 'random/boot_id').read_text().strip()} {process_start_time(1)}"


def has_changed(folder: Path, boot: str) -> bool:
    """Note in which boot this is; whether it was another one before, and that is known.

    Args:
        folder: with the grants; it exists.
        boot: this one.
    """
    file = folder / FILE
    try:
        before = file.read_text()
    except FileNotFoundError:
        before = boot
    if before != boot or not file.exists():
        file.write_text(boot)
    return before != boot

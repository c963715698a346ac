"""Detects that the machine has rebooted since grants were written.

Grants are on a tmpfs and usually disappear with a reboot. If an administrator put their
folder elsewhere, those of an earlier boot are void: their pods have ended, and the kubelet
prepares each pod that it starts again.
"""

from pathlib import Path

from kubeshare.tokens.files.grants import process_start_time
from kubeshare.tokens.files.run_folder import Paths


def current(kernel: Path = Path("/proc/sys/kernel")) -> str:
    """Identify this boot; in a machine of namespaces only, its first process tells them apart."""
    return f"{(kernel / 'random/boot_id').read_text().strip()} {process_start_time(1)}"


def has_changed(folder: Path, boot: str) -> bool:
    """Save this boot in the run folder; whether an earlier one was saved there.

    The token daemon waits for that file.
    """
    file = Paths(folder).boot
    try:
        before = file.read_text()
    except FileNotFoundError:
        before = boot
    if before != boot or not file.exists():
        file.write_text(boot)
    return before != boot

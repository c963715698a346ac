"""Detects that the machine has rebooted since grants were written.

Grants are on a tmpfs and usually disappear with a reboot. If an administrator put their
folder elsewhere, those of an earlier boot are void: their pods have ended, and the kubelet
prepares each pod that it starts again.
"""

from pathlib import Path

from kubeshare.tokens.files.grants import process_start_time
from kubeshare.tokens.files.run_folder import Paths, write_whole


def current(kernel: Path = Path("/proc/sys/kernel")) -> str:
    """Identify this boot; in a machine of namespaces only, its first process tells them apart."""
    return f"{(kernel / 'random/boot_id').read_text().strip()} {process_start_time(1)}"


def is_another(folder: Path, boot: str) -> bool:
    """Whether an earlier boot than this one is saved in the run folder."""
    return _saved(folder) not in {None, boot}


def save(folder: Path, boot: str) -> None:
    """Save this boot in the run folder, whole or not at all; the token daemon waits for that file.

    Half of it would be another boot's, whose grants are void.

    Raises:
        OSError: it is not saved, and the run folder cannot be written.
    """
    if _saved(folder) != boot:
        write_whole(Paths(folder).boot, boot.encode())


def _saved(folder: Path) -> str | None:
    try:
        return Paths(folder).boot.read_text()
    except FileNotFoundError:
        return None

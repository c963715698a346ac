"""Files that a running program may have open, be watching or have mapped; folders of many."""

import contextlib
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_HANDS = 8


def replace(path: Path, data: bytes | str, mode: int = 0o644) -> Path:
    """Give a file this content, by rename, and only if it has another.

    kube-proxy ends when its configuration is written, be it with the same
    text, and a library that is written to changes under those who use it.

    Args:
        path: its folder must exist.
        data: the whole content.
        mode: the permissions, from the first moment on.

    Returns:
        The path.
    """
    encoded = data.encode() if isinstance(data, str) else data
    if not path.exists() or path.read_bytes() != encoded:
        new = path.with_name(f".{path.name}.new")
        new.unlink(missing_ok=True)
        new.touch(mode=mode)
        new.write_bytes(encoded)
        new.replace(path)
    return path


def remove(folder: Path) -> None:
    """Delete a folder and all that is in it, as far as it can be; nobody writes there any more.

    By several hands: for each file one waits for the disk, and an image has thousands.
    """

    def remove_files(found: tuple[str, list[str], list[str]]) -> None:
        path, _, names = found
        for name in names:
            with contextlib.suppress(OSError):
                Path(path, name).unlink()

    with ThreadPoolExecutor(_HANDS) as hands:
        list(hands.map(remove_files, os.walk(folder)))
    shutil.rmtree(folder, ignore_errors=True)

"""Replaces files that running programs use, and removes large folders."""

import contextlib
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_HANDS = 8


def replace(path: Path, data: bytes | str, mode: int = 0o644) -> Path:
    """Write a file by rename, only if its content differs.

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
    """Delete a folder and its contents as far as possible; nothing may write there any more.

    In parallel: each deletion waits for the disk, and an image has thousands of files.
    """

    def remove_files(found: tuple[str, list[str], list[str]]) -> None:
        path, _, names = found
        for name in names:
            with contextlib.suppress(OSError):
                Path(path, name).unlink()

    with ThreadPoolExecutor(_HANDS) as hands:
        list(hands.map(remove_files, os.walk(folder)))
    shutil.rmtree(folder, ignore_errors=True)

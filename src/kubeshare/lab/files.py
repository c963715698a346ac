"""Writing a file that a running program may have open, be watching or have mapped."""

from pathlib import Path


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

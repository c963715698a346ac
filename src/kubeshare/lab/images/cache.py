"""Keeps what is built once in a folder for each recipe.

The folder's name ends in a hash of everything the result depends on, so what
is there is right and is never built again, and a change makes a new one. It is
built under another name and renamed at the end: what was interrupted is not
there, and the next run starts that step anew.
"""

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/kubeshare``, by default ``~/.cache/kubeshare``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kubeshare"


def digest(parts: Iterable[bytes | str | Path]) -> str:
    """The first 16 hexadecimal digits of a SHA-256 over strings and the contents of files.

    Each part is preceded by its length, so moving a byte from one part to the
    next gives another hash.
    """
    total = hashlib.sha256()
    for part in parts:
        data = part.read_bytes() if isinstance(part, Path) else part
        encoded = data.encode() if isinstance(data, str) else data
        total.update(f"{len(encoded)}:".encode())
        total.update(encoded)
    return total.hexdigest()[:16]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_cached(name: str, key: str) -> bool:
    """Whether the folder ``NAME-KEY`` is there, whole."""
    return (cache_folder() / f"{name}-{key}").is_dir()


def cached(name: str, key: str, build: Callable[[Path], None]) -> Path:
    """The folder ``NAME-KEY`` of the cache, built if it is not there.

    Two processes that want the same folder build it once: the second waits.

    Args:
        name: what it is, for people who look into the cache.
        key: the :func:`digest` of what it depends on.
        build: fills an empty folder; when it raises, nothing is kept.
    """
    root = cache_folder()
    result = root / f"{name}-{key}"
    if is_cached(name, key):
        return result
    root.mkdir(parents=True, exist_ok=True)
    with _locked(root / f".{name}-{key}.lock"):
        if not result.is_dir():
            for left in root.glob(f".{name}-{key}.partial-*"):
                shutil.rmtree(left, ignore_errors=True)
            # A new name each time: a compiler whose parent was killed may still write to the old.
            partial = Path(tempfile.mkdtemp(prefix=f".{name}-{key}.partial-", dir=root))
            try:
                build(partial)
                partial.chmod(0o755)
                partial.rename(result)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    return result

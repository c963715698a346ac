"""Collects all tests and runs those of the core and of kube on each Python that is here.

Exit code 1 when one of them fails. A Python of the list that is not on this machine is named:
uv brings none, since not every package index serves interpreters.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
VERSIONS: Final = ("3.11", "3.12", "3.13", "3.14")
RUN: Final = ("tests/core", "tests/kube", "tests/dialects", "tests/conformance")
NOT_HERE: Final = "not here"


def interpreter(version: str) -> str | None:
    """The path of a Python of that version that runs; None where there is none."""
    for path in (shutil.which(f"python{version}"), *_of_pyenv(version)):
        if (
            path
            and not subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode
        ):
            return path
    return None


def _of_pyenv(version: str) -> list[str]:
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    return [str(path) for path in sorted(versions.glob(f"{version}.*/bin/python"))]


def environment(version: str, python: str) -> Path:
    """A virtual environment with the pinned packages; the path of its Python."""
    folder = ROOT / ".venv" / f"python-{version}"
    uv = str(Path(sys.executable).with_name("uv"))
    found = folder / "bin" / "python"
    if not found.exists():
        subprocess.run([uv, "venv", "--quiet", "--python", python, str(folder)], check=True)
    sync = [uv, "pip", "sync", "--quiet", "--require-hashes", "--python", str(found)]
    subprocess.run([*sync, str(ROOT / "requirements" / "dev.txt")], check=True)
    return found


def tested(python: Path) -> bool:
    """Whether all tests can be collected and those of :data:`RUN` pass."""
    pytest = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    for arguments in (
        ["--collect-only", "-qq"],
        ["-m", "not apiserver and not slow and not frameworks", *RUN],
    ):
        done = subprocess.run(
            [*pytest, *arguments],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            print(done.stdout[-2000:])
            return False
    return True


def main() -> int:
    """Print one line a version; exit code 1 when one fails or none is here."""
    results: dict[str, str] = {}
    for version in VERSIONS:
        python = interpreter(version)
        if python is None:
            results[version] = NOT_HERE
        else:
            results[version] = "passed" if tested(environment(version, python)) else "FAILED"
        print(f"Python {version}: {results[version]}", flush=True)
    ran = [result for result in results.values() if result != NOT_HERE]
    return 0 if ran and "FAILED" not in ran else 1


if __name__ == "__main__":
    sys.exit(main())

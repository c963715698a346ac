"""Builds the lab's two images, ``pause`` and ``kubeshare:dev``.

``kubeshare:dev`` has three layers, from what seldom changes to what often does:
a Debian root with Python, the pinned packages, and the code of this clone with
its native programs. The lower two are in the cache; the third is made each
time, and is all that travels to a node that has the others.
"""

import compileall
import json
import py_compile
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from kubeshare import compiled, native
from kubeshare.lab.errors import LabError
from kubeshare.lab.images import python_packages
from kubeshare.lab.images.archive import Entry, Layer, layer, write_archive, write_layer
from kubeshare.lab.images.binaries import SOURCES
from kubeshare.lab.images.cache import cached, digest
from kubeshare.lab.progress import Progress

PAUSE_IMAGE = "localhost/kubeshare-lab/pause:1"
KUBESHARE_IMAGE = "docker.io/library/kubeshare:dev"

_INSTALLED = "/usr/local/lib/kubeshare"
_NATIVE_PROGRAMS = ("burn", "fakegpu-stat")
_NATIVE_FILES = (native.DEVICE_LIBRARY, compiled.FOLDER, *_NATIVE_PROGRAMS)
_CONFIG = {
    "Entrypoint": ["python3"],
    "WorkingDir": "/",
    "Env": [
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        f"PYTHONPATH={_INSTALLED}/src:{_INSTALLED}/packages",
        "PYTHONDONTWRITEBYTECODE=1",
        "PYTHONUNBUFFERED=1",
        f"KUBESHARE_NATIVE={_INSTALLED}",
    ],
}
_BASE_RECIPE = (
    "mmdebstrap",
    "--variant=essential",
    "--include=python3,libstdc++6",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    # Only containers are made of it: nothing more will be installed.
    "--customize-hook=rm -rf $1/var/lib/apt $1/var/cache $1/var/lib/dpkg/info $1/usr/share/doc",
    "--customize-hook=rm -rf $1/usr/lib/x86_64-linux-gnu/gconv",
    "--customize-hook=rm -rf $1/usr/lib/x86_64-linux-gnu/perl-base",
    "bookworm",
)
_COMMAND = """#!/usr/bin/python3
import sys

from kubeshare.cli.main import main

sys.exit(main())
"""


def _run(command: list[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(
            f"{what} failed; the last words of {command[0]}: {done.stderr[-800:].strip()}"
        )


def _cached_layer(name: str, key: str, make_tar: Callable[[Path], None]) -> Layer:
    """A layer from the cache, with its digest beside it, which need not be computed again."""

    def build(folder: Path) -> None:
        tar = folder / "layer.tar"
        make_tar(tar)
        made = layer(tar)
        about = {"digest": made.digest, "size": made.size}
        (folder / "layer.json").write_text(json.dumps(about))

    folder = cached(name, key, build)
    about = json.loads((folder / "layer.json").read_text())
    return msgspec.convert(about | {"path": folder / "layer.tar"}, Layer)


def base_layer(progress: Progress) -> Layer:
    """Build the layer with a minimal Debian 12 and Python 3.11."""

    def make(tar: Path) -> None:
        with progress.step("bootstrap a Debian root for the image"):
            *recipe, suite = _BASE_RECIPE
            _run([*recipe, suite, str(tar)], "making a Debian root")

    return _cached_layer("image-base", digest(_BASE_RECIPE), make)


def packages_layer(progress: Progress) -> Layer:
    """The Python packages that KubeShare needs at run time, by their hashes."""
    requirements = SOURCES.parent / "requirements" / "runtime.txt"

    def make(tar: Path) -> None:
        target = tar.parent / "packages"
        with progress.step("install the image's Python packages"):
            python_packages.install(requirements, target, "the image's Python packages")
            compile_bytecode(target)
            write_layer(tar, [Entry(target, f"{_INSTALLED}/packages")])
        shutil.rmtree(target)

    return _cached_layer("image-packages", digest([requirements]), make)


def compile_bytecode(folder: Path) -> None:
    """Compile a folder's modules so that a container need not, whatever their times say."""
    if sys.version_info[:2] == (3, 11):
        compileall.compile_dir(
            str(folder),
            quiet=2,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )


def code_layer(folder: Path) -> Layer:
    """The code of this clone and what was built from it; the same bytes for the same code.

    Args:
        folder: where to put the tar.

    Raises:
        NativeMissingError: the native programs have not been built.
    """
    work = folder / "code"
    shutil.rmtree(work, ignore_errors=True)
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(SOURCES.parent / "src" / "kubeshare", work / "kubeshare", ignore=skip)
    compile_bytecode(work / "kubeshare")
    command = work / "command"
    command.write_text(_COMMAND)
    command.chmod(0o755)
    entries = [
        Entry(work / "kubeshare", f"{_INSTALLED}/src/kubeshare"),
        Entry(SOURCES.parent / "deploy", f"{_INSTALLED}/deploy"),
        Entry(command, "usr/local/bin/kubeshare"),
    ]
    entries += [Entry(native.path(name), f"{_INSTALLED}/{name}") for name in _NATIVE_FILES]
    entries += [Entry(native.path(name), f"usr/local/bin/{name}") for name in _NATIVE_PROGRAMS]
    made = write_layer(folder / "code.tar", entries)
    shutil.rmtree(work)
    return made


def kubeshare_layers(folder: Path, progress: Progress) -> list[Layer]:
    """All layers of ``kubeshare:dev``, from the lowest up."""
    with ThreadPoolExecutor() as pool:
        base = pool.submit(base_layer, progress)
        packages = pool.submit(packages_layer, progress)
        return [base.result(), packages.result(), code_layer(folder)]


def write_kubeshare_archive(path: Path, layers: list[Layer], present: set[str]) -> None:
    """Write ``kubeshare:dev`` without the layers whose digests are ``present``."""
    write_archive(path, KUBESHARE_IMAGE, layers, _CONFIG, leave_out=present)


def pause_program(progress: Progress) -> Path:
    """The static program that holds the namespaces of sandboxes and machines."""
    source = SOURCES / "pause.c"
    compiler = ["gcc"] if shutil.which("gcc") else [sys.executable, "-m", "ziglang", "cc"]
    target = [] if compiler == ["gcc"] else ["-target", "x86_64-linux-musl"]
    warnings = ["-Wall", "-Wextra", "-Wconversion", "-Werror"]

    def build(folder: Path) -> None:
        with progress.step("compile the pause program"):
            output = ["-o", str(folder / "pause"), str(source)]
            command = [*compiler, *target, "-std=gnu11", "-O2", "-static", "-s", *warnings, *output]
            _run(command, f"compiling {source}")

    return cached("pause", digest([source]), build) / "pause"


def write_pause_archive(path: Path, program: Path) -> None:
    """Write the pause image: one layer with one file."""
    tar = path.with_suffix(".layer")
    only = write_layer(tar, [Entry(program, "pause")])
    write_archive(path, PAUSE_IMAGE, [only], {"Entrypoint": ["/pause"]})
    tar.unlink()

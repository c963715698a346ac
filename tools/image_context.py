"""Writes the context from which the image of all programs is built.

The files lie under ``root`` as they will in the image, packages included, so that building it
only copies: no network, no shell and nothing of the base but Python 3.11 is needed, and an image
for another architecture needs no emulator.

    python -m tools.image_context dist/image --architecture arm64
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from kubeshare import compiled, native
from kubeshare.lab.errors import LabError
from kubeshare.lab.images import python_packages
from kubeshare.lab.images.images import compile_bytecode

ROOT: Final = Path(__file__).resolve().parents[1]
INSTALLED: Final = Path("usr/local/lib/kubeshare")
ARCHITECTURES: Final = {"amd64": "x86_64-manylinux_2_28", "arm64": "aarch64-manylinux_2_28"}
"""Architecture of the image -> the platform of its Python packages, as uv names it."""
NOT_IN_THE_IMAGE: Final = ("demo", "fakegpu", "lab")


class ImageError(Exception):
    """The context cannot be written; the message says what is missing."""


def write_context(folder: Path, architecture: str = "amd64") -> None:
    """Write the ``Containerfile`` and ``root``, in place of what the folder has.

    Raises:
        ImageError: the native programs are not built, or the packages cannot be had.
    """
    shutil.rmtree(folder, ignore_errors=True)
    installed, programs = folder / "root" / INSTALLED, folder / "root" / "usr/local/bin"
    for each in (installed, programs):
        each.mkdir(parents=True)
    shutil.copy(ROOT / "Containerfile", folder)
    try:
        python_packages.install(
            ROOT / "requirements" / "runtime.txt",
            installed / "packages",
            "the image's Python packages",
            platform=ARCHITECTURES[architecture],
        )
    except LabError as error:
        raise ImageError(str(error)) from None
    _copy_sources(installed)
    for source, target in _native_files(architecture, installed, programs).items():
        if not source.exists():
            raise ImageError(f"{source.relative_to(ROOT)} is not built: run {_MADE[architecture]}")
        (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
    licence = folder / "root/usr/share/doc/kubeshare"
    licence.mkdir(parents=True)
    shutil.copy(ROOT / "LICENSE", licence)


_MADE: Final = {"amd64": "`make native`", "arm64": "`make native-aarch64`"}


def _copy_sources(installed: Path) -> None:
    code = installed / "src" / "kubeshare"
    shutil.copytree(
        ROOT / "src" / "kubeshare",
        code,
        ignore=shutil.ignore_patterns("__pycache__", "*.pyi"),
    )
    for name in NOT_IN_THE_IMAGE:
        shutil.rmtree(code / name)
    for each in (code, installed / "packages"):
        compile_bytecode(each)
    # The hooks of the Helm chart read what they check and remove.
    shutil.copytree(ROOT / "deploy", installed / "deploy")


def _native_files(architecture: str, installed: Path, programs: Path) -> dict[Path, Path]:
    """What is built in C -> where it goes; on arm64 the daemon's handover is not compiled."""
    if architecture == "arm64":
        library = ROOT / "native" / "build" / "aarch64" / native.DEVICE_LIBRARY
        return {library: installed / native.DEVICE_LIBRARY}
    names = (native.DEVICE_LIBRARY, compiled.FOLDER)
    return {native.path(name): installed / name for name in names} | {
        # The workload of the examples.
        native.path("burn"): programs / "burn"
    }


def build(context: Path, base: str, tag: str, architecture: str = "amd64") -> None:
    """Build the image with buildah.

    Args:
        context: what ``write_context`` has written.
        base: an image with Python 3.11 by its digest, ``NAME@sha256:…``.
        tag: the name of the image.
        architecture: of the context; of a base for several, that one is taken.

    Raises:
        ImageError: the base has no digest, there is no buildah, or it failed.
    """
    if "@sha256:" not in base:
        raise ImageError(
            f"{base!r} is no image by its digest: give NAME@sha256:…, so that the same commit "
            "always has the same base"
        )
    if shutil.which("buildah") is None:
        raise ImageError(
            f"buildah is missing: install it, or build {context} with another builder and "
            f"--build-arg BASE={base}"
        )
    options = ["--isolation", "chroot", "--layers=false", "--timestamp", "0", "--quiet"]
    options += ["--arch", architecture]
    command = ["buildah", "build", *options, "--build-arg", f"BASE={base}", "--tag", tag]
    done = subprocess.run([*command, str(context)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ImageError(f"buildah failed; its last words: {done.stderr.strip()[-800:]}")


def main() -> int:
    """Write the context, and build the image where a base is given."""
    parser = argparse.ArgumentParser(description="Write the context of the image, and build it.")
    parser.add_argument("folder", type=Path, help="where to write it, such as dist/image")
    parser.add_argument("--architecture", choices=ARCHITECTURES, default="amd64")
    parser.add_argument("--base", metavar="NAME@sha256:…", help="build on this image, with buildah")
    parser.add_argument("--tag", default="kubeshare:dev", help="the name of the image")
    given = parser.parse_args()
    try:
        write_context(given.folder, given.architecture)
        if given.base:
            build(given.folder, given.base, given.tag, given.architecture)
    except ImageError as error:
        print(f"image: {error}", file=sys.stderr)
        return 1
    if given.base:
        print(f"built {given.tag}; next: push it, and `kubeshare install --image` its name")
    else:
        print(f"wrote {given.folder}; next: build it with --build-arg BASE=NAME@sha256:…")
    return 0


if __name__ == "__main__":
    sys.exit(main())

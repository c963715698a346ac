"""Builds what a release consists of into ``dist/`` and publishes nothing.

Wheels of KubeShare and of its lab, the sdist, and the context of the container image: a tar of
the ``Containerfile`` and all that it copies. The version stands in ``kubeshare.__version__``;
the changelog must have a section for it, or ``Unreleased`` for a trial.
"""

import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from tools.image_context import ImageError, write_context

from kubeshare import __version__

ROOT: Final = Path(__file__).resolve().parents[1]
NOT_IN_THE_WHEEL: Final = ("kubeshare/demo/", "kubeshare/fakegpu/", "kubeshare/lab/")


class ReleaseError(Exception):
    """The release is not complete; the message says what is missing."""


def changelog_section(text: str, version: str) -> str:
    """The heading of the section for `version`; ``Unreleased`` where it has none yet.

    Raises:
        ReleaseError: there is neither.
    """
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    for heading in headings:
        if heading.split()[0].strip("[]") in {version, "Unreleased"}:
            return str(heading)
    raise ReleaseError(f"CHANGELOG.md has no section for {version}: write one")


def build(project: Path, dist: Path, *kinds: str) -> None:
    """Build a project's packages with the pinned build backend.

    Raises:
        ReleaseError: the build failed; the message has its last words.
    """
    uv, pins = Path(sys.executable).with_name("uv"), ROOT / "requirements" / "build.txt"
    pinned = ["--build-constraints", str(pins), "--require-hashes"]
    command = [str(uv), "build", *kinds, "--quiet", "--out-dir", str(dist), *pinned, str(project)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ReleaseError(f"building {project} failed: {done.stderr.strip()[-800:]}")


def check_wheel(wheel: Path) -> None:
    """See that the wheel has the manifests and nothing of the lab.

    Raises:
        ReleaseError: it is not so.
    """
    names = zipfile.ZipFile(wheel).namelist()
    extra = [name for name in names if name.startswith(NOT_IN_THE_WHEEL)]
    if extra:
        raise ReleaseError(f"{wheel.name} has {extra[0]}, which belongs to the lab's wheel")
    if "kubeshare/deploy/chart/kubeshare/manifests/crds/vgpus.yaml" not in names:
        raise ReleaseError(f"{wheel.name} lacks the manifests of deploy/")


def image_context(path: Path) -> None:
    """Write a tar of the context of the image.

    Raises:
        ReleaseError: something of it is missing.
    """
    with tempfile.TemporaryDirectory() as folder, tarfile.open(path, "w:gz") as tar:
        context = Path(folder, "image")
        try:
            write_context(context)
        except ImageError as error:
            raise ReleaseError(str(error)) from None
        for each in sorted(context.iterdir()):
            tar.add(each, each.name)


def main() -> int:
    """Build all of it; exit code 1 when something is missing."""
    dist = ROOT / "dist"
    try:
        section = changelog_section((ROOT / "CHANGELOG.md").read_text(), __version__)
        print(f"release {__version__} (changelog: {section}), a dry run: nothing is published")
        build(ROOT, dist)
        build(ROOT / "packaging" / "lab", dist, "--wheel")
        check_wheel(dist / f"kubeshare-{__version__}-py3-none-any.whl")
        image_context(dist / f"kubeshare-image-{__version__}.tar.gz")
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    for path in sorted(dist.iterdir()):
        if __version__ in path.name:
            print(f"  dist/{path.name}  {path.stat().st_size / 1024:.0f} KiB")
    print("next: tag the commit, upload dist/*.whl and *.tar.gz, build the image from its context")
    return 0


if __name__ == "__main__":
    sys.exit(main())
